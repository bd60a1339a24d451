// Attention over the paged KV store, and the layout both of them share.
//
// Physical unit: 16 tokens of one layer and kv head, K then V, each 16 * head_dim elements:
//
//   bf16       K [d/2][16 tokens][2]   V [8 token pairs][d][2]
//   f32, f16   K [d][16 tokens]        V [16 tokens][d]
//   int8       K [d/4][16 tokens][4] as u8 = k + 128, then their scales [16] as float
//              V [4 token quads][d][4] as s8, then their scales [16] as float; d rounded up to a multiple of
//              4
//
// Per query row the keys are cut at absolute multiples of kChunk. A chunk gives a partial: maximum score,
// sum of P = exp(score - maximum) as rounded, and sum of P * V from zero in key order. Partials are folded
// left to right. Only visible keys enter, so the bits of a row depend on nothing computed beside it.
//
// int8: K and queries are rotated (int8_heads.h), K, V and queries have 127 steps of a scale each way. A
// score is a whole number times the key's scale times (the query's scale * `scale` / rotation size). Each P
// takes its value's scale along and becomes a whole number of steps, kProbabilitySteps for the largest of the
// chunk: P * V is a whole number times one step. The sum of P is of the exponentials. Whole numbers have no
// order: they are the same for every tile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "table.h"

namespace twostroke {

enum class KVPrecision : int32_t { f32, f16, bf16, int8 };

inline constexpr int32_t kUnitTokens = 16;
inline constexpr int32_t kChunk = 256;
inline constexpr int32_t kChunkUnits = kChunk / kUnitTokens;

// 256 * 127 steps of a value times so many add up to less than 2^31.
inline constexpr int32_t kProbabilitySteps = 1 << 14;
inline constexpr int32_t kInt8Steps = 127;
// Largest scale * P of a chunk that counts: below it, its inverse would overflow.
inline constexpr float kSmallestChunk = 0x1p-100f;
inline constexpr int32_t kMostInt8Dims = 512;  // of a head: kernels keep one on the stack

// Bytes of one int8 token: whole words.
inline int32_t int8_stride(int32_t head_dim) { return (head_dim + 3) / 4 * 4; }

inline size_t kv_unit_bytes(KVPrecision precision, int32_t head_dim) {
    if (precision == KVPrecision::int8)
        return 2 * size_t{kUnitTokens} * (static_cast<size_t>(int8_stride(head_dim)) + sizeof(float));
    const size_t element = precision == KVPrecision::f32 ? 4 : 2;
    return 2 * element * kUnitTokens * static_cast<size_t>(head_dim);
}

// Floats from one row of a partial's output to the next: whole vectors.
inline int32_t partial_stride(int32_t head_dim) { return (head_dim + 15) / 16 * 16; }

// The queries of consecutive tokens of one sequence, for the heads that share a kv head: row = token * heads
// + head.
struct QueryTile {
    const void* q;         // [rows][head_dim], packed by pack_queries; int8: [rows][int8_stride(head_dim)]
    const float* q_scale;  // int8: [rows]
    const int32_t* q_sum;  // int8: [rows], of the whole numbers
    int32_t num_tokens;
    int32_t heads;
    int32_t head_dim;
    int32_t first_pos;  // position of the first token
    int32_t window;     // a query at p sees (p - window, p]
    float scale;
    float softcap;  // 0: none
    // The units that the calling thread attends after these, to be asked for early; null: unknown. Never
    // read.
    const uint8_t* const* next_units;

    int32_t num_rows() const { return num_tokens * heads; }
};

// A partial per row. A row that saw no key has sum 0 and max -inf.
struct Partial {
    float* max;  // [rows]
    float* sum;  // [rows]
    float* out;  // [rows][partial_stride(head_dim)], 64-aligned
};

// Where packed queries go: at least as many bytes as the floats have, rounded up to whole words per row.
struct PackedQueries {
    void* q;
    float* scale;
    int32_t* sum;
};

struct AttentionKernels {
    // The K and V of one token and head into slot [0, 16) of a unit.
    void (*write_kv)(KVPrecision precision, const float* k, const float* v, int32_t head_dim, int32_t slot,
                     uint8_t* unit);
    // Queries [rows][head_dim] in the precision their products are computed in.
    void (*pack_queries)(KVPrecision precision, const float* q, int32_t num_rows, int32_t head_dim,
                         const PackedQueries& out);
    // The partial of keys [chunk_pos, chunk_pos + kChunk). units[i] holds keys from chunk_pos + 16 * i; null
    // where no query sees any. Scratch: attend_scratch_bytes(rows), 64-aligned.
    void (*attend_chunk)(KVPrecision precision, const QueryTile& tile, int32_t chunk_pos,
                         const uint8_t* const* units, void* scratch, const Partial& partial);
    // total = total then chunk, for every row.
    void (*fold)(const Partial& total, const Partial& chunk, int32_t num_rows, int32_t head_dim);
    // out = the row's sum of P * V over its sum of P.
    void (*finish)(const Partial& total, int32_t row, int32_t head_dim, float* out);
};

inline size_t attend_scratch_bytes(int32_t num_rows) {
    return static_cast<size_t>(num_rows) * kChunk * (sizeof(float) + sizeof(uint16_t));
}

// The keys of a chunk one query sees: [begin, end) relative to the chunk; begin >= end: none.
struct Visible {
    int32_t begin;
    int32_t end;
};

void portable_fill_attention(KernelTable& table);
#if TWOSTROKE_X86_64
namespace avx2 {
void fill_attention(KernelTable& table);
}
namespace avx512 {
void fill_attention(KernelTable& table);
}
#elif TWOSTROKE_AARCH64
namespace neon {
void fill_attention(KernelTable& table);
}
#endif

}  // namespace twostroke
