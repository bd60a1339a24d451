#include "token_groups.h"

#include <algorithm>
#include <span>
#include <utility>

namespace twostroke {
namespace {

constexpr uint32_t kMostNodes = 32768;

// Nodes while they are found, in no order.
class Joints {
  public:
    static constexpr uint32_t kRoot = 0;

    explicit Joints(uint32_t state) : joints_{{.state = state}} {}

    size_t size() const { return joints_.size(); }
    uint32_t state(uint32_t joint) const { return joints_[joint].state; }
    uint32_t& partition(uint32_t joint) { return joints_[joint].partition; }

    uint32_t below(uint32_t parent, uint8_t key, PatternStates& states) {
        uint32_t child = joints_[parent].recent;  // in a row of bytes many are of one part
        if (joints_[child].key == key) return child;
        for (child = joints_[parent].newest; child != kNone && joints_[child].key != key;)
            child = joints_[child].older;
        if (child == kNone) {
            child = static_cast<uint32_t>(joints_.size());
            joints_.push_back({.older = joints_[parent].newest,
                               .key = key,
                               .state = states.behind(joints_[parent].state, key)});
            joints_[parent].newest = child;
        }
        return joints_[parent].recent = child;
    }

    void give(uint32_t joint, std::span<const int32_t> ids) {
        joints_[joint].num_ids += static_cast<uint32_t>(ids.size());
        for (const int32_t id : ids) given_.push_back({joint, id});
    }

    void write(TokenGroups& groups) const {
        TokenTrieWriter writer(groups.trie);
        std::vector<size_t> place(joints_.size());                     // of each one's next id
        std::vector<std::pair<uint32_t, uint32_t>> ahead{{kRoot, 0}};  // with their depths
        while (!ahead.empty()) {
            const auto [joint, depth] = ahead.back();
            ahead.pop_back();
            if (joint != kRoot) {
                writer.append(depth, joints_[joint].key);
                groups.partition.push_back(joints_[joint].partition);
            }
            place[joint] = writer.append_room(joints_[joint].num_ids);
            for (uint32_t child = joints_[joint].newest; child != kNone; child = joints_[child].older)
                ahead.emplace_back(child, depth + 1);
        }
        writer.finish();
        for (const auto& [joint, id] : given_) writer.put(place[joint]++, id);
    }

  private:
    static constexpr uint32_t kNone = ~uint32_t{0};
    struct Joint {
        uint32_t newest = kNone;  // child
        uint32_t older = kNone;   // sibling
        uint32_t recent = kRoot;  // child that was asked for
        uint32_t num_ids = 0;
        uint32_t partition = TokenGroups::kLeaf;
        uint8_t key = kNoClass;
        uint32_t state;
    };
    struct Given {
        uint32_t joint;
        int32_t id;
    };

    std::vector<Joint> joints_;
    std::vector<Given> given_;
};

}  // namespace

std::unique_ptr<const TokenGroups> group_tokens(const TokenTrie& trie, PatternStates& states,
                                                BytePartitions& partitions, uint32_t state,
                                                const std::function<bool()>& is_too_much) {
    const size_t most_nodes = std::min(kMostNodes, trie.num_nodes() / 4);
    Joints joints(state);
    joints.partition(Joints::kRoot) = partitions.of(state);
    std::vector<uint32_t> path(trie.depth() + 1, Joints::kRoot);
    for (uint32_t at = 0; at < trie.num_nodes();) {
        const TokenTrie::Node& node = trie.node(at);
        const uint32_t parent = path[node.depth - 1];
        const uint8_t key = partitions.part(joints.partition(parent), states.class_of()[node.key]);
        if (key == kNoClass) {
            at = node.behind;
            continue;
        }
        const uint32_t joint = path[node.depth] = joints.below(parent, key, states);
        if (trie.has_children(at) && joints.partition(joint) == TokenGroups::kLeaf)
            joints.partition(joint) = partitions.of(joints.state(joint));
        if (joints.size() > most_nodes || is_too_much()) return nullptr;
        joints.give(joint, trie.ids(at));
        ++at;
    }
    auto groups = std::make_unique<TokenGroups>();
    joints.write(*groups);
    return groups;
}

size_t TokenGroups::memory_bytes() const { return trie.memory_bytes() + partition.size() * sizeof(uint32_t); }

}  // namespace twostroke
