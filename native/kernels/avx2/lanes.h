// Vectors of 8 floats: the first n lanes, and the one exp and tanh of the AVX2 kernels. Everything has
// internal linkage: an inline function compiled with these flags must never be merged with another file's.
#pragma once

#include <immintrin.h>

#include "kernels/rows.h"
#include "kernels/tiles.h"

namespace twostroke::avx2 {
namespace {

// All bits of the first n lanes, for any n.
ALWAYS_INLINE __m256i first_lanes(int32_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// Lanes beyond n are zero, and their memory is not touched.
ALWAYS_INLINE __m256 load_first(const float* x, int32_t n) {
    return n >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, first_lanes(n));
}

ALWAYS_INLINE void store_first(float* to, __m256 v, int32_t n) {
    if (n >= 8)
        _mm256_storeu_ps(to, v);
    else
        _mm256_maskstore_ps(to, first_lanes(n), v);
}

// 8 floats from f16, aligned to 16 bytes.
ALWAYS_INLINE __m256 load_halves(const uint8_t* halves) {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(halves)));
}

// The one float -> bf16 conversion of this ISA: the float that the rounded bits stand for.
ALWAYS_INLINE __m256 round_to_bf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    const __m256 either = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), is_nan);
    return _mm256_and_ps(either, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int32_t>(0xffff0000))));
}

// The upper 16 bits of each lane.
ALWAYS_INLINE __m128i upper_halves(__m256 v) {
    const __m256i bits = _mm256_srli_epi32(_mm256_castps_si256(v), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
}

// The sum of 16 lanes: halves onto halves, one order everywhere.
ALWAYS_INLINE float sum_lanes(__m256 low, __m256 high) {
    const __m256 eight = _mm256_add_ps(low, high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The largest lane, in every lane.
ALWAYS_INLINE __m256 spread_maximum(__m256 v) {
    v = _mm256_max_ps(v, _mm256_permute2f128_ps(v, v, 1));
    v = _mm256_max_ps(v, _mm256_permute_ps(v, 0x4E));
    return _mm256_max_ps(v, _mm256_permute_ps(v, 0xB1));
}

// Below -87.3 zero, above 88.3 infinite; NaN stays: its bits survive, as its exponent converts to 1 << 31.
inline __m256 exp_of(__m256 x) {
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(kLog2E)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2High), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2Low), r);
    __m256 poly = _mm256_fmadd_ps(r, _mm256_set1_ps(kExp6), _mm256_set1_ps(kExp5));
    poly = _mm256_fmadd_ps(poly, r, _mm256_set1_ps(kExp4));
    poly = _mm256_fmadd_ps(poly, r, _mm256_set1_ps(kExp3));
    poly = _mm256_fmadd_ps(poly, r, _mm256_set1_ps(kExp2));
    const __m256 tail = _mm256_fmadd_ps(_mm256_mul_ps(r, r), poly, r);
    const __m256i y = _mm256_castps_si256(_mm256_add_ps(tail, _mm256_set1_ps(1.0f)));
    const __m256 scaled =
        _mm256_castsi256_ps(_mm256_add_epi32(y, _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
    const __m256 is_low = _mm256_cmp_ps(x, _mm256_set1_ps(-87.3f), _CMP_LT_OQ);
    const __m256 is_high = _mm256_cmp_ps(x, _mm256_set1_ps(88.3f), _CMP_GT_OQ);
    return _mm256_blendv_ps(_mm256_andnot_ps(is_low, scaled), _mm256_set1_ps(__builtin_inff()), is_high);
}

inline __m256 tanh_of(__m256 y) {
    const __m256 z = _mm256_mul_ps(y, y);
    __m256 poly = _mm256_fmadd_ps(z, _mm256_set1_ps(kTanh11), _mm256_set1_ps(kTanh9));
    poly = _mm256_fmadd_ps(poly, z, _mm256_set1_ps(kTanh7));
    poly = _mm256_fmadd_ps(poly, z, _mm256_set1_ps(kTanh5));
    poly = _mm256_fmadd_ps(poly, z, _mm256_set1_ps(kTanh3));
    const __m256 series = _mm256_fmadd_ps(_mm256_mul_ps(y, z), poly, y);
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 sign = _mm256_and_ps(y, _mm256_set1_ps(-0.0f));
    const __m256 size = _mm256_xor_ps(y, sign);
    const __m256 e = exp_of(_mm256_mul_ps(size, _mm256_set1_ps(-2.0f)));
    const __m256 large = _mm256_div_ps(_mm256_sub_ps(one, e), _mm256_add_ps(one, e));
    const __m256 is_small = _mm256_cmp_ps(size, _mm256_set1_ps(kTanhSeries), _CMP_LT_OQ);
    return _mm256_blendv_ps(_mm256_or_ps(large, sign), series, is_small);
}

}  // namespace
}  // namespace twostroke::avx2
