#include "token_trie.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

namespace twostroke {
namespace {

constexpr size_t kMostDepth = (size_t{1} << 24) - 1;

size_t common_length(std::string_view left, std::string_view right) {
    const size_t most = std::min(left.size(), right.size());
    return std::mismatch(left.begin(), left.begin() + most, right.begin()).first - left.begin();
}

}  // namespace

// Appends nodes in depth-first order.
class TokenTrie::Writer {
  public:
    explicit Writer(TokenTrie& trie) : trie_(trie) {}

    // A node below the newest one of depth - 1.
    void append(uint32_t depth, uint8_t key, size_t first_id) {
        close(depth);
        if (depth == 1) trie_.tops_.push_back({key, next()});
        open_.push_back(next());
        trie_.nodes_.push_back({0, static_cast<uint32_t>(first_id), depth, key});
        trie_.depth_ = std::max(trie_.depth_, depth);
    }

    // All ids are there.
    void finish() {
        close(1);
        trie_.nodes_.push_back({next() + 1, static_cast<uint32_t>(trie_.ids_.size()), 0, 0});
    }

  private:
    uint32_t next() const { return static_cast<uint32_t>(trie_.nodes_.size()); }

    // No node of this depth or below grows any more.
    void close(uint32_t depth) {
        for (; open_.size() >= depth; open_.pop_back()) trie_.nodes_[open_.back()].behind = next();
    }

    TokenTrie& trie_;
    std::vector<uint32_t> open_;  // the path to the newest node
};

TokenTrie::TokenTrie(std::vector<Token> tokens) {
    std::sort(tokens.begin(), tokens.end(), [](const Token& left, const Token& right) {
        return std::tie(left.text, left.id) < std::tie(right.text, right.id);
    });
    Writer writer(*this);
    std::string_view before;
    for (const auto& [text, id] : tokens) {
        if (text.size() > kMostDepth)
            throw std::length_error("a token has " + std::to_string(text.size()) + " bytes: the limit is " +
                                    std::to_string(kMostDepth));
        for (size_t at = common_length(before, text); at < text.size(); ++at)
            writer.append(static_cast<uint32_t>(at + 1), static_cast<uint8_t>(text[at]), ids_.size());
        ids_.push_back(id);
        before = text;
    }
    writer.finish();
}

// Nodes of a merged trie while they are found, in no order.
class TokenTrie::Joints {
  public:
    static constexpr uint32_t kRoot = 0;

    // Without the root.
    size_t size() const { return joints_.size() - 1; }

    uint32_t below(uint32_t parent, uint8_t key) {
        uint32_t child = joints_[parent].recent;  // in a row of bytes many are of one class
        if (joints_[child].key == key) return child;
        for (child = joints_[parent].newest; child != kNone && joints_[child].key != key;)
            child = joints_[child].older;
        if (child == kNone) {
            child = static_cast<uint32_t>(joints_.size());
            joints_.push_back({kNone, joints_[parent].newest, kRoot, 0, key});
            joints_[parent].newest = child;
        }
        return joints_[parent].recent = child;
    }

    void give(uint32_t joint, std::span<const int32_t> ids) {
        joints_[joint].num_ids += static_cast<uint32_t>(ids.size());
        for (const int32_t id : ids) given_.push_back({joint, id});
    }

    // Into an empty trie.
    void write(TokenTrie& trie) const {
        Writer writer(trie);
        std::vector<uint32_t> place(joints_.size());  // of each one's next id
        uint32_t num_placed = 0;
        std::vector<std::pair<uint32_t, uint32_t>> ahead{{kRoot, 0}};  // with their depths
        trie.ids_.resize(given_.size());
        while (!ahead.empty()) {
            const auto [joint, depth] = ahead.back();
            ahead.pop_back();
            if (joint != kRoot) writer.append(depth, joints_[joint].key, num_placed);
            place[joint] = num_placed;
            num_placed += joints_[joint].num_ids;
            for (uint32_t child = joints_[joint].newest; child != kNone; child = joints_[child].older)
                ahead.emplace_back(child, depth + 1);
        }
        writer.finish();
        for (const auto& [joint, id] : given_) trie.ids_[place[joint]++] = id;
    }

  private:
    static constexpr uint32_t kNone = ~uint32_t{0};
    struct Joint {
        uint32_t newest;  // child
        uint32_t older;   // sibling
        uint32_t recent;  // child that was asked for, or kRoot
        uint32_t num_ids;
        uint8_t key;
    };
    struct Given {
        uint32_t joint;
        int32_t id;
    };

    std::vector<Joint> joints_{{kNone, kNone, kRoot, 0, kNoClass}};
    std::vector<Given> given_;
};

std::unique_ptr<const TokenTrie> TokenTrie::merged(const ByteClasses& class_of, size_t most_nodes) const {
    Joints joints;
    std::vector<uint32_t> path(depth_ + 1, Joints::kRoot);
    for (uint32_t at = 0; at < num_nodes();) {
        const uint8_t key = class_of[nodes_[at].key];
        if (key == kNoClass) {
            at = nodes_[at].behind;
            continue;
        }
        const uint32_t depth = nodes_[at].depth;
        path[depth] = joints.below(path[depth - 1], key);
        if (joints.size() > most_nodes) return nullptr;
        joints.give(path[depth], ids(at));
        ++at;
    }
    std::unique_ptr<TokenTrie> trie(new TokenTrie);
    joints.write(*trie);
    return trie;
}

}  // namespace twostroke
