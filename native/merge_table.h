// The merge rules of a BPE vocabulary by the pair of ids they join.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace twostroke {

struct Merge {
    uint32_t rank;  // lower goes first
    int32_t id;     // of the joint piece
};

class MergeTable {
  public:
    explicit MergeTable(size_t num_rules);

    // Of several rules for one pair the last counts. At most `num_rules` calls.
    void add(int32_t left, int32_t right, Merge merge);

    // The rule for this pair, or null.
    const Merge* find(int32_t left, int32_t right) const {
        const size_t at = slot_of(key_of(left, right));
        return tags_[at] == kFree ? nullptr : &slots_[at].merge;
    }

  private:
    struct Slot {
        uint64_t key;
        Merge merge;
    };
    static constexpr uint8_t kFree = 0;

    static uint64_t key_of(int32_t left, int32_t right) {
        return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    }

    static uint8_t tag_of(uint64_t hash) { return static_cast<uint8_t>(hash >> 8) | 1; }

    static uint64_t hash_of(uint64_t key) {
        constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;  // its high bits depend on the whole key
        const uint64_t hash = key * kGoldenRatio;
        return hash ^ hash >> 32;
    }

    // The slot of this pair, or the free one where it would be.
    size_t slot_of(uint64_t key) const {
        const uint64_t hash = hash_of(key);
        const uint8_t tag = tag_of(hash);
        const size_t mask = slots_.size() - 1;
        size_t at = hash >> shift_;
        while (tags_[at] != kFree && (tags_[at] != tag || slots_[at].key != key)) at = (at + 1) & mask;
        return at;
    }

    // Open addressing, a power of two of slots, at most half of them full. Most pairs that are looked up have
    // no rule, which a byte per slot tells without the slots themselves: those of a big vocabulary fit no
    // cache.
    std::vector<uint8_t> tags_;
    std::vector<Slot> slots_;
    int shift_;  // leaves as many high bits as slots are counted with
};

}  // namespace twostroke
