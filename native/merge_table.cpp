#include "merge_table.h"

#include <bit>

namespace twostroke {

MergeTable::MergeTable(size_t num_rules)
    : tags_(std::bit_ceil(2 * num_rules + 2), kFree),
      slots_(tags_.size()),
      shift_(64 - std::countr_zero(tags_.size())) {}

void MergeTable::add(int32_t left, int32_t right, Merge merge) {
    const uint64_t key = key_of(left, right);
    const size_t at = slot_of(key);
    tags_[at] = tag_of(hash_of(key));
    slots_[at] = {key, merge};
}

}  // namespace twostroke
