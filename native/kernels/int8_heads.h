// K, V and queries as whole numbers, in plain C++ that every ISA's file compiles with its own flags (internal
// linkage): each addition and rounding is one operation on one element, so all ISAs get the same numbers.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/tiles.h"

namespace twostroke {
namespace {

constexpr uint32_t kSmallestHead = (127 - 100) << 23;  // bits of 2^-100: below, a head counts as zero

// Elements the Hadamard matrix mixes: the largest power of two that divides a head.
ALWAYS_INLINE int32_t rotation_size(int32_t head_dim) { return head_dim & -head_dim; }

// One stage of the product with the Hadamard matrix: pairs that lie `half` apart.
ALWAYS_INLINE void rotate_stage(float* x, int32_t n, int32_t half) {
    for (int32_t first = 0; first < n; first += 2 * half)
        for (int32_t i = first; i < first + half; ++i) {
            const float low = x[i], high = x[i + half];
            x[i] = low + high;
            x[i + half] = low - high;
        }
}

ALWAYS_INLINE void rotate(const float* x, int32_t n, float* out) {
    __builtin_memcpy(out, x, sizeof(float) * n);
    for (int32_t half = 1; half < rotation_size(n); half *= 2) rotate_stage(out, n, half);
}

// Magnitudes sort like integers, infinity and NaN on top: such a head gets the scale NaN, and zeros.
struct HeadScale {
    float scale;
    float inverse;  // 0: all zeros
    bool is_finite;
};

ALWAYS_INLINE HeadScale head_scale(uint32_t largest) {
    const bool is_finite = largest < 0x7f800000;
    if (!is_finite) return {__builtin_nanf(""), 0.0f, false};
    if (largest < kSmallestHead) return {0.0f, 0.0f, true};
    const float amax = std::bit_cast<float>(largest);
    return {amax / kInt8Steps, kInt8Steps / amax, true};
}

ALWAYS_INLINE float quantise_head(const float* x, int32_t n, int8_t* q) {
    uint32_t largest = 0;
    for (int32_t i = 0; i < n; ++i) {
        const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    const HeadScale head = head_scale(largest);
    for (int32_t i = 0; i < n; ++i)
        q[i] = head.is_finite ? static_cast<int8_t>(std::nearbyint(x[i] * head.inverse)) : 0;
    return head.scale;
}

// Where the parts of an int8 unit lie.
struct Int8Unit {
    explicit Int8Unit(const uint8_t* unit, int32_t head_dim)
        : keys(unit),
          key_scales(reinterpret_cast<const float*>(unit + kUnitTokens * int8_stride(head_dim))),
          values(reinterpret_cast<const int8_t*>(key_scales + kUnitTokens)),
          value_scales(reinterpret_cast<const float*>(values + kUnitTokens * int8_stride(head_dim))) {}

    const uint8_t* keys;      // [d/4][16][4], k + 128
    const float* key_scales;  // [16]
    const int8_t* values;     // [4][d][4]
    const float* value_scales;
};

ALWAYS_INLINE void write_int8(const float* k, const float* v, int32_t head_dim, int32_t slot, uint8_t* unit) {
    const Int8Unit parts(unit, head_dim);
    float rotated[kMostInt8Dims];
    int8_t integers[kMostInt8Dims];
    rotate(k, head_dim, rotated);
    const_cast<float*>(parts.key_scales)[slot] = quantise_head(rotated, head_dim, integers);
    for (int32_t d = 0; d < head_dim; ++d)
        unit[(d / 4 * kUnitTokens + slot) * 4 + d % 4] = static_cast<uint8_t>(integers[d] + 128);
    const_cast<float*>(parts.value_scales)[slot] = quantise_head(v, head_dim, integers);
    for (int32_t d = 0; d < head_dim; ++d)
        const_cast<int8_t*>(parts.values)[(slot / 4 * head_dim + d) * 4 + slot % 4] = integers[d];
}

ALWAYS_INLINE void pack_int8(const float* q, int32_t num_rows, int32_t head_dim, const PackedQueries& out) {
    for (int32_t row = 0; row < num_rows; ++row) {
        float rotated[kMostInt8Dims];
        int8_t* integers = static_cast<int8_t*>(out.q) + static_cast<size_t>(row) * int8_stride(head_dim);
        rotate(q + static_cast<size_t>(row) * head_dim, head_dim, rotated);
        out.scale[row] = quantise_head(rotated, head_dim, integers);
        out.sum[row] = 0;
        for (int32_t d = 0; d < head_dim; ++d) out.sum[row] += integers[d];
        for (int32_t d = head_dim; d < int8_stride(head_dim); ++d) integers[d] = 0;
    }
}

// What a row's whole numbers q * k are multiplied with, after the key's scale.
ALWAYS_INLINE float score_factor(const QueryTile& tile, int32_t row) {
    return tile.q_scale[row] * (tile.scale / static_cast<float>(rotation_size(tile.head_dim)));
}

// The step of P in a chunk whose largest scale * P has these bits, and its inverse; both 0 when nothing
// counts.
struct ProbabilityStep {
    float step;
    float inverse;
};

ALWAYS_INLINE ProbabilityStep probability_step(uint32_t largest_bits) {
    const float largest = std::bit_cast<float>(largest_bits);
    if (largest < kSmallestChunk) return {0.0f, 0.0f};
    return {largest / kProbabilitySteps, kProbabilitySteps / largest};
}

}  // namespace
}  // namespace twostroke
