// Tokens by what they are made of, those with one beginning together: what cannot follow is passed over
// whole.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace twostroke {

class TokenTrie {
  public:
    struct Token {
        std::string_view text;  // not empty
        int32_t id;
    };
    // Below the root, in depth-first order.
    struct Node {
        uint32_t behind;      // the next node that is not below this one
        uint32_t first_id;    // its tokens' ids lie from here on, to those of the next node
        uint32_t depth : 24;  // 1 below the root
        uint32_t key : 8;     // a byte, or what stands for several
    };
    // A node right below the root. Most of them lead nowhere, and by their keys alone are not looked at.
    struct Top {
        uint8_t key;
        uint32_t node;
    };

    TokenTrie() = default;
    explicit TokenTrie(std::vector<Token> tokens);

    uint32_t num_nodes() const { return static_cast<uint32_t>(nodes_.size() - 1); }
    const Node& node(uint32_t index) const { return nodes_[index]; }
    bool has_children(uint32_t index) const { return nodes_[index].behind > index + 1; }
    bool has_ids(uint32_t index) const { return nodes_[index].first_id != nodes_[index + 1].first_id; }
    std::span<const int32_t> ids(uint32_t index) const {
        const uint32_t first = nodes_[index].first_id;
        return std::span(ids_).subspan(first, nodes_[index + 1].first_id - first);
    }
    const std::vector<Top>& tops() const { return tops_; }
    uint32_t depth() const { return depth_; }
    size_t memory_bytes() const;

  private:
    friend class TokenTrieWriter;

    std::vector<Node> nodes_;  // and one behind the last, where its ids end
    std::vector<int32_t> ids_;
    std::vector<Top> tops_;
    uint32_t depth_ = 0;
};

// Fills an empty trie in depth-first order.
class TokenTrieWriter {
  public:
    explicit TokenTrieWriter(TokenTrie& trie) : trie_(trie) {}

    // A node below the newest one of depth - 1, and its tokens.
    void append(uint32_t depth, uint8_t key);
    void append_id(int32_t id) { trie_.ids_.push_back(id); }
    // Room for so many ids of the newest node; where they lie.
    size_t append_room(size_t num_ids);
    void put(size_t place, int32_t id) { trie_.ids_[place] = id; }
    void finish();

  private:
    uint32_t next() const { return static_cast<uint32_t>(trie_.nodes_.size()); }
    uint32_t num_ids() const { return static_cast<uint32_t>(trie_.ids_.size()); }
    // No node of this depth or below grows any more.
    void close(uint32_t depth);

    TokenTrie& trie_;
    std::vector<uint32_t> open_;  // the path to the newest node
};

}  // namespace twostroke
