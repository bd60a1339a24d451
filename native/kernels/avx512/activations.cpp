// Preparing the input of a linear: int8 per 32, and the one float -> bf16 conversion of this ISA.
#include "kernels/portable/activations.h"

#include <immintrin.h>

#include "kernels/avx512/linear_entries.h"

namespace twostroke {
namespace {

// One block of 32; the same integers and scales as the portable definition. Magnitudes are compared as
// integers, where infinity and NaN are the largest.
void quantise_block(const float* x, int8_t* q, float* scale, int32_t* sum) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
    const uint32_t largest =
        _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(x0), magnitude),
                                                 _mm512_and_si512(_mm512_castps_si512(x1), magnitude)));
    float amax;
    __builtin_memcpy(&amax, &largest, 4);
    const bool is_finite = largest < 0x7f800000;
    const bool is_zero = largest < portable::kSmallestScaled;
    const __m512 inverse = _mm512_set1_ps(is_finite && !is_zero ? 127.0f / amax : 0.0f);
    *scale = !is_finite ? __builtin_nanf("") : is_zero ? 0.0f : amax / 127.0f;
    const __mmask16 keep = is_finite ? 0xffff : 0;
    const __m512i q0 = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(x0, inverse));
    const __m512i q1 = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(x1, inverse));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(q0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(q1));
    *sum = _mm512_reduce_add_epi32(_mm512_add_epi32(q0, q1));
}

}  // namespace

namespace avx512 {

void quantise_a8(const float* x, int32_t K, int8_t* q, float* scale, int32_t* sum) {
    for (int32_t block = 0; block < K / kBlock; block++) {
        quantise_block(x + block * kBlock, q + block * kBlock, scale + block, sum + block);
    }
}

void to_bf16(const float* x, int32_t n, uint16_t* out) {
    for (int32_t i = 0; i < n; i += 16) {
        const __mmask16 valid = static_cast<__mmask16>(n - i >= 16 ? 0xffff : (1 << (n - i)) - 1);
        const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(valid, x + i));
        _mm256_mask_storeu_epi16(out + i, valid, (__m256i)rounded);
    }
}

}  // namespace avx512
}  // namespace twostroke
