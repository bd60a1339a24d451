// Integer dots of unsigned weights and signed activations (vpdpbusd): what the int8 kernels of this ISA
// share.
//
// A tile is 32 rows x T tokens, lane = row; a unit of weights is [16 rows][4 columns] of bytes, one per half.
#pragma once

#include <immintrin.h>

#include "kernels/avx512/linear_parts.h"

namespace twostroke::avx512 {
namespace {

// Four columns of one token, for every row.
ALWAYS_INLINE __m512i broadcast_four(const int8_t* a) {
    int32_t four;
    __builtin_memcpy(&four, a, 4);
    return _mm512_set1_epi32(four);
}

// Four columns of every token.
template <int T>
ALWAYS_INLINE void add_group(__m512i (&dot)[T][2], __m512i w0, __m512i w1, const int8_t* a, size_t stride) {
    UNROLL
    for (int t = 0; t < T; t++) {
        const __m512i x = broadcast_four(a + t * stride);
        dot[t][0] = _mm512_dpbusd_epi32(dot[t][0], w0, x);
        dot[t][1] = _mm512_dpbusd_epi32(dot[t][1], w1, x);
    }
}

// Groups of four columns that are stored as bytes, one after the other.
template <int kNumGroups, int T>
ALWAYS_INLINE void add_bytes(__m512i (&dot)[T][2], const uint8_t* w, const int8_t* a, size_t stride) {
    UNROLL
    for (int j = 0; j < kNumGroups; j++) {
        add_group<T>(dot, _mm512_load_si512(w + 128 * j), _mm512_load_si512(w + 128 * j + 64), a + 4 * j,
                     stride);
    }
}

// Four columns of 16 rows as bytes; with `mask`, u64, where a set bit is worth 16.
template <bool kHigh, bool kHasFifth>
ALWAYS_INLINE __m512i nibbles(const uint8_t* unit, const uint8_t* mask) {
    const __m512i both = _mm512_load_si512(unit);
    const __m512i four = _mm512_and_si512(kHigh ? _mm512_srli_epi16(both, 4) : both, _mm512_set1_epi8(15));
    if constexpr (!kHasFifth) return four;
    uint64_t bits;
    __builtin_memcpy(&bits, mask, 8);
    return _mm512_mask_add_epi8(four, _cvtu64_mask64(bits), four, _mm512_set1_epi8(16));
}

// Four columns of nibbles; with `masks`, u64 per half.
template <bool kHigh, bool kHasFifth, int T>
ALWAYS_INLINE void add_nibble_group(__m512i (&dot)[T][2], const uint8_t* units, const uint8_t* masks,
                                    const int8_t* a, size_t stride) {
    add_group<T>(dot, nibbles<kHigh, kHasFifth>(units, masks),
                 nibbles<kHigh, kHasFifth>(units + 64, masks + 8), a, stride);
}

// Where the dots of a block start so that the offset of the weights, 2^kOffsetBits, is taken off: at -offset
// * sum. Weights with a minimum have none.
template <class Format>
ALWAYS_INLINE __m512i start(const int32_t* sums, size_t at) {
    if constexpr (Format::kHasMin) {
        return _mm512_setzero_si512();
    } else {
        const __m512i offset = _mm512_slli_epi32(_mm512_set1_epi32(sums[at]), Format::kOffsetBits);
        return _mm512_sub_epi32(_mm512_setzero_si512(), offset);
    }
}

// sum += dot * weight scale * activation scale, one activation scale per token.
template <int T>
ALWAYS_INLINE void add_scaled(__m512 (&sum)[T][2], const __m512i (&dot)[T][2], __m512 scale0, __m512 scale1,
                              const float* scales, size_t stride) {
    UNROLL
    for (int t = 0; t < T; t++) {
        const __m512 x = _mm512_set1_ps(scales[t * stride]);
        sum[t][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t][0]), _mm512_mul_ps(scale0, x), sum[t][0]);
        sum[t][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t][1]), _mm512_mul_ps(scale1, x), sum[t][1]);
    }
}

// sum += minimum * activation scale * sum of activations, the last two as one factor per token.
template <int T>
ALWAYS_INLINE void add_minimums(__m512 (&sum)[T][2], __m512 m0, __m512 m1, const float* factors,
                                size_t stride) {
    UNROLL
    for (int t = 0; t < T; t++) {
        const __m512 x = _mm512_set1_ps(factors[t * stride]);
        sum[t][0] = _mm512_fmadd_ps(m0, x, sum[t][0]);
        sum[t][1] = _mm512_fmadd_ps(m1, x, sum[t][1]);
    }
}

// Into L2: what L1 may wait for at once is half of what memory can deliver.
ALWAYS_INLINE void prefetch_lines(const uint8_t* block, int num_bytes) {
    UNROLL
    for (int line = 0; line < num_bytes; line += 64) _mm_prefetch(block + line, _MM_HINT_T1);
}

}  // namespace
}  // namespace twostroke::avx512
