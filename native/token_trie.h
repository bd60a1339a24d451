// Tokens by what they are made of, those with one beginning together: what cannot follow is passed over
// whole.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace twostroke {

// For every byte the number of its class.
using ByteClasses = std::array<uint8_t, 256>;
constexpr uint8_t kNoClass = 0;  // of bytes that nothing asks for

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
        uint32_t key : 8;     // a byte, or the class of bytes
    };

    explicit TokenTrie(std::vector<Token> tokens);

    // The same tokens by the classes of their bytes, those with a byte of no class left out. Null where it
    // would have more nodes than that.
    std::unique_ptr<const TokenTrie> merged(const ByteClasses& class_of, size_t most_nodes) const;

    uint32_t num_nodes() const { return static_cast<uint32_t>(nodes_.size() - 1); }
    const Node& node(uint32_t index) const { return nodes_[index]; }
    bool has_ids(uint32_t index) const { return nodes_[index].first_id != nodes_[index + 1].first_id; }
    std::span<const int32_t> ids(uint32_t index) const {
        const uint32_t first = nodes_[index].first_id;
        return std::span(ids_).subspan(first, nodes_[index + 1].first_id - first);
    }
    uint32_t depth() const { return depth_; }
    // Nodes right below the root, with their keys: most lead nowhere, and then are not looked at.
    struct Top {
        uint8_t key;
        uint32_t node;
    };
    const std::vector<Top>& tops() const { return tops_; }

  private:
    class Writer;
    class Joints;

    TokenTrie() = default;

    std::vector<Node> nodes_;  // and one behind the last, where its ids end
    std::vector<int32_t> ids_;
    std::vector<Top> tops_;
    uint32_t depth_ = 0;
};

}  // namespace twostroke
