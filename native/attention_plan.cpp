#include "attention_plan.h"

#include <algorithm>

namespace twostroke {

AttentionPlan::AttentionPlan(const Frame& frame, int32_t num_kv_heads, int32_t heads_per_kv, int32_t window)
    : frame_(frame), num_kv_heads_(num_kv_heads), tile_tokens_(tile_tokens(heads_per_kv)), window_(window) {
    entries_.reserve(frame.limits.max_rows +
                     frame.limits.max_tokens / std::min(tile_tokens_, kMinTileTokens) + 1);
    first_items_.reserve(max_split_entries() + 1);
}

void AttentionPlan::begin_step() {
    const StepInput& step = frame_.step;
    entries_.clear();
    first_items_.clear();
    writes_inline_ = true;
    bool can_split = step.num_rows <= max_split_entries();
    for (int32_t row = 0; row < step.num_rows; ++row) {
        const int32_t num_tokens = step.row_starts[row + 1] - step.row_starts[row];
        writes_inline_ &= num_tiles(num_tokens) == 1;
        can_split &= num_tokens <= std::min(kSplitTokens, tile_tokens_);
        add_row(row);
    }
    if (!can_split) {
        is_split_ = false;
        return;
    }
    int32_t num_items = 0;
    for (const AttendEntry& entry : entries_) {
        first_items_.push_back(num_items);
        num_items += entry.end_chunk - entry.first_chunk;
    }
    first_items_.push_back(num_items);
    is_split_ = num_items > static_cast<int32_t>(entries_.size());
}

AttentionPlan::Item AttentionPlan::item(int32_t index) const {
    if (!is_split_) return {index, entries_[index].first_chunk};
    int32_t entry = 0;
    while (index >= first_items_[entry + 1]) ++entry;
    return {entry, entries_[entry].first_chunk + index - first_items_[entry]};
}

// Equal tiles, as few as kTileRows allows or as many as give every thread its pairs.
int32_t AttentionPlan::num_tiles(int32_t num_tokens) const {
    const int32_t fewest = (num_tokens + tile_tokens_ - 1) / tile_tokens_;
    const int32_t pairs = num_kv_heads_ * frame_.step.num_rows;
    const int32_t wanted = (frame_.num_threads * kPairsPerThread + pairs - 1) / pairs;
    return std::max(fewest, std::min(wanted, num_tokens / kMinTileTokens));
}

// Tiles in the order first, last, second, last but one, ...: later ones see more keys, so any half of the
// list is about half of the work.
void AttentionPlan::add_row(int32_t row) {
    const StepInput& step = frame_.step;
    const int32_t start = step.row_starts[row];
    const int32_t num_tokens = step.row_starts[row + 1] - start;
    const int32_t tiles = num_tiles(num_tokens);
    for (int32_t i = 0; i < tiles; ++i) {
        const int32_t tile = i % 2 == 0 ? i / 2 : tiles - 1 - i / 2;
        const auto offset = static_cast<int32_t>(int64_t{num_tokens} * tile / tiles);
        const auto end = static_cast<int32_t>(int64_t{num_tokens} * (tile + 1) / tiles);
        const int32_t pos = step.row_positions[row] + offset;
        const int32_t first_key = std::max(0, pos - window_ + 1);
        entries_.push_back({row, start + offset, end - offset, pos, first_key / kChunk,
                            (pos + end - offset - 1) / kChunk + 1});
    }
}

}  // namespace twostroke
