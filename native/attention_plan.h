// How the queries of a step are cut into work for one attend: the same in all layers that share window and
// heads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "frame.h"

namespace twostroke {

// Tokens [token, token + num_tokens) of one row, for every kv head; chunks [first_chunk, end_chunk).
struct AttendEntry {
    int32_t row;
    int32_t token;
    int32_t num_tokens;
    int32_t first_pos;
    int32_t first_chunk;
    int32_t end_chunk;
};

class AttentionPlan {
  public:
    // Query rows of a tile: 96 keep scores and queries of head_dim <= 128 in half of L2.
    static constexpr int32_t kTileRows = 96;
    // Tokens a tile may be cut down to where threads would have too little to share.
    static constexpr int32_t kMinTileTokens = 8;
    // Rows with at most so many tokens may be cut into chunks.
    static constexpr int32_t kSplitTokens = 4;
    // With fewer (entry, kv head) pairs per thread than this, tiles become smaller, or chunks work of their
    // own.
    static constexpr int32_t kPairsPerThread = 4;

    AttentionPlan(const Frame& frame, int32_t num_kv_heads, int32_t heads_per_kv, int32_t window);

    static int32_t tile_tokens(int32_t heads_per_kv) { return std::max(1, kTileRows / heads_per_kv); }
    int32_t max_split_entries() const {
        return std::max(1, frame_.num_threads * kPairsPerThread / num_kv_heads_);
    }
    int32_t max_chunks() const { return (frame_.limits.context_length - 1) / kChunk + 2; }

    // Reads the step in the frame. No allocation.
    void begin_step();

    // Every row is one entry: its K and V can be written by whoever attends it.
    bool writes_inline() const { return writes_inline_; }
    // Items are chunks of entries; else whole entries.
    bool is_split() const { return is_split_; }
    int32_t num_items() const {
        return is_split_ ? first_items_.back() : static_cast<int32_t>(entries_.size());
    }
    // An item's index among the entries, and its first chunk.
    struct Item {
        int32_t entry;
        int32_t chunk;
    };
    Item item(int32_t index) const;
    const AttendEntry& entry(int32_t index) const { return entries_[index]; }

  private:
    int32_t num_tiles(int32_t num_tokens) const;
    void add_row(int32_t row);

    const Frame& frame_;
    const int32_t num_kv_heads_;
    const int32_t tile_tokens_;
    const int32_t window_;
    bool writes_inline_ = false;
    bool is_split_ = false;
    std::vector<AttendEntry> entries_;
    std::vector<int32_t> first_items_;  // split: of each entry, and one past the last item
};

}  // namespace twostroke
