// The bytes of the KV cache: blocks of 16 or 32 tokens per KV group. It knows layouts, never who owns a
// block.
//
//   group -> [block][layer of the group][kv head][16-token unit]     unit: kernels/attention.h
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "pages.h"

namespace twostroke {

struct KVGroupSpec {
    int32_t num_layers;
    int32_t num_kv_heads;
    int32_t head_dim;
    int32_t num_blocks;
};

class KVStore {
  public:
    // Throws std::invalid_argument with the number that is wrong. Memory is touched when it is written.
    KVStore(KVPrecision precision, int32_t block_size, std::vector<KVGroupSpec> groups);
    KVStore(const KVStore&) = delete;
    KVStore& operator=(const KVStore&) = delete;

    KVPrecision precision() const { return precision_; }
    int32_t block_size() const { return block_size_; }
    int32_t num_groups() const { return static_cast<int32_t>(groups_.size()); }
    const KVGroupSpec& group(int32_t index) const { return groups_[index].spec; }
    // Throws std::out_of_range.
    size_t block_bytes(int32_t group) const { return groups_.at(group).block_bytes; }

    // The unit that holds position `pos` of a sequence whose block there is `block`. Ids are checked by the
    // caller.
    uint8_t* unit(int32_t group, int32_t block, int32_t layer, int32_t kv_head, int32_t pos) const {
        const Group& g = groups_[group];
        const int32_t unit = pos % block_size_ / kUnitTokens;
        const size_t index =
            (static_cast<size_t>(layer) * g.spec.num_kv_heads + kv_head) * units_per_block_ + unit;
        return g.pages.as<uint8_t>() + block * g.block_bytes + index * g.unit_bytes;
    }

    // Copies every layer and head of a block. Throws std::out_of_range.
    void copy_block(int32_t group, int32_t source, int32_t target);

  private:
    struct Group {
        KVGroupSpec spec;
        size_t unit_bytes;
        size_t block_bytes;
        Pages pages;
    };

    KVPrecision precision_;
    int32_t block_size_;
    int32_t units_per_block_;
    std::vector<Group> groups_;
};

}  // namespace twostroke
