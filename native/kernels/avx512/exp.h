// The one exp and tanh of the AVX-512 kernels, and loads of the first `n` lanes.
#pragma once

#include <immintrin.h>

#include "kernels/rows.h"

namespace twostroke::avx512 {
namespace {

inline __mmask16 first_lanes(int32_t n) { return n >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << n) - 1); }

// exp of x <= 150, or NaN: bounds as second operand keep it. Below -150 the result is zero.
inline __m512 exp_of_bounded(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-150.0f), x);
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(kLog2E)),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2High), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2Low), r);
    __m512 poly = _mm512_fmadd_ps(r, _mm512_set1_ps(kExp6), _mm512_set1_ps(kExp5));
    poly = _mm512_fmadd_ps(poly, r, _mm512_set1_ps(kExp4));
    poly = _mm512_fmadd_ps(poly, r, _mm512_set1_ps(kExp3));
    poly = _mm512_fmadd_ps(poly, r, _mm512_set1_ps(kExp2));
    const __m512 tail = _mm512_fmadd_ps(_mm512_mul_ps(r, r), poly, r);
    return _mm512_scalef_ps(_mm512_add_ps(tail, _mm512_set1_ps(1.0f)), n);
}

// Above 150 the result is infinite.
inline __m512 exp_of(__m512 x) { return exp_of_bounded(_mm512_min_ps(_mm512_set1_ps(150.0f), x)); }

inline __m512 tanh_of(__m512 y) {
    const __m512 z = _mm512_mul_ps(y, y);
    __m512 poly = _mm512_fmadd_ps(z, _mm512_set1_ps(kTanh11), _mm512_set1_ps(kTanh9));
    poly = _mm512_fmadd_ps(poly, z, _mm512_set1_ps(kTanh7));
    poly = _mm512_fmadd_ps(poly, z, _mm512_set1_ps(kTanh5));
    poly = _mm512_fmadd_ps(poly, z, _mm512_set1_ps(kTanh3));
    const __m512 series = _mm512_fmadd_ps(_mm512_mul_ps(y, z), poly, y);
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 size = _mm512_abs_ps(y);
    const __m512 e = exp_of(_mm512_mul_ps(size, _mm512_set1_ps(-2.0f)));
    const __m512 large = _mm512_div_ps(_mm512_sub_ps(one, e), _mm512_add_ps(one, e));
    const __m512 sign = _mm512_and_ps(y, _mm512_set1_ps(-0.0f));
    const __mmask16 is_small = _mm512_cmp_ps_mask(size, _mm512_set1_ps(kTanhSeries), _CMP_LT_OQ);
    return _mm512_mask_mov_ps(_mm512_or_ps(large, sign), is_small, series);
}

// The sum of 16 lanes: halves onto halves, one order everywhere.
inline float sum_lanes(__m512 v) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace
}  // namespace twostroke::avx512
