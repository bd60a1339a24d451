// Preparing the input of a linear: int8 per 32, and the one float -> bf16 conversion of this ISA.
#include "kernels/portable/activations.h"

#include <immintrin.h>

#include "kernels/avx512/linear_entries.h"
#include "kernels/avx512/linear_parts.h"

namespace twostroke::avx512 {
namespace {

constexpr uint32_t kInfinity = 0x7f800000;

ALWAYS_INLINE __m512i magnitudes(const float* x) {
    return _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi32(0x7fffffff));
}

ALWAYS_INLINE __m512i to_int8_steps(const float* x, __m512 inverse) {
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), inverse));
}

// One block of 32; the same integers and scales as the portable definition. Magnitudes are compared as
// integers, where infinity and NaN are the largest.
void quantise_block(const float* x, int8_t* q, float* scale, int32_t* sum, int32_t* half_sum) {
    const uint32_t largest = _mm512_reduce_max_epu32(_mm512_max_epu32(magnitudes(x), magnitudes(x + 16)));
    float amax;
    __builtin_memcpy(&amax, &largest, 4);
    const bool is_finite = largest < kInfinity;
    const bool is_zero = largest < portable::kSmallestScaled;
    const __m512 inverse = _mm512_set1_ps(is_finite && !is_zero ? 127.0f / amax : 0.0f);
    *scale = !is_finite ? __builtin_nanf("") : is_zero ? 0.0f : amax / 127.0f;
    const __mmask16 keep = is_finite ? 0xffff : 0;
    const __m512i q0 = _mm512_maskz_mov_epi32(keep, to_int8_steps(x, inverse));
    const __m512i q1 = _mm512_maskz_mov_epi32(keep, to_int8_steps(x + 16, inverse));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(q0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(q1));
    const int32_t sum0 = _mm512_reduce_add_epi32(q0), sum1 = _mm512_reduce_add_epi32(q1);
    *sum = sum0 + sum1;
    if (half_sum) {
        half_sum[0] = sum0;
        half_sum[1] = sum1;
    }
}

// Eight blocks share their reductions and divisions.
constexpr int kTogether = 8;

// Largest magnitude of each of eight blocks. Every step halves the lanes of a block and doubles the blocks of
// a vector: [A], [A B], [A B C D] by whole 128-bit lanes, then inside those.
ALWAYS_INLINE __m256i largest_magnitudes(const float* x) {
    __m512i m[kTogether];
    UNROLL
    for (int i = 0; i < kTogether; i++)
        m[i] = _mm512_max_epu32(magnitudes(x + kBlock * i), magnitudes(x + kBlock * i + 16));
    UNROLL
    for (int i = 0; i < 4; i++) {
        m[i] = _mm512_max_epu32(_mm512_shuffle_i32x4(m[2 * i], m[2 * i + 1], 0x44),
                                _mm512_shuffle_i32x4(m[2 * i], m[2 * i + 1], 0xee));
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        m[i] = _mm512_max_epu32(_mm512_shuffle_i32x4(m[2 * i], m[2 * i + 1], 0x88),
                                _mm512_shuffle_i32x4(m[2 * i], m[2 * i + 1], 0xdd));
    }
    const __m512i pairs =
        _mm512_max_epu32(_mm512_unpacklo_epi32(m[0], m[1]), _mm512_unpackhi_epi32(m[0], m[1]));
    const __m512i all = _mm512_max_epu32(pairs, _mm512_shuffle_epi32(pairs, _MM_PERM_BADC));
    const __m512i order = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 13, 9, 5, 1, 12, 8, 4, 0);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, all));
}

// Sums of four bytes each -> sums of the 16 half blocks of eight blocks, two blocks per vector, in order.
ALWAYS_INLINE __m512i half_sums(const __m512i (&fours)[4], __m512i transpose) {
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(fours[0], fours[1]),
                                        _mm512_unpackhi_epi32(fours[0], fours[1]));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(fours[2], fours[3]),
                                        _mm512_unpackhi_epi32(fours[2], fours[3]));
    const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    return _mm512_permutexvar_epi32(transpose, all);
}

// False, and nothing written, when a block is not finite.
ALWAYS_INLINE bool quantise_eight(const float* x, int8_t* q, float* scale, int32_t* sum, int32_t* half_sum) {
    const __m256i largest = largest_magnitudes(x);
    if (_mm256_cmpge_epu32_mask(largest, _mm256_set1_epi32(kInfinity))) return false;
    const __mmask8 is_scaled = _mm256_cmpge_epu32_mask(largest, _mm256_set1_epi32(portable::kSmallestScaled));
    const __m256 amax = _mm256_castsi256_ps(largest), steps = _mm256_set1_ps(127.0f);
    const __m512 inverse = _mm512_castps256_ps512(_mm256_maskz_div_ps(is_scaled, steps, amax));
    _mm256_storeu_ps(scale, _mm256_maskz_div_ps(is_scaled, amax, steps));
    // Rows and columns of a 4 x 4 matrix of 32-bit elements change places.
    const __m512i transpose = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    __m512i fours[4];
    UNROLL
    for (int pair = 0; pair < 4; pair++) {
        const float* from = x + 2 * kBlock * pair;
        const __m512 inverse0 = _mm512_permutexvar_ps(_mm512_set1_epi32(2 * pair), inverse);
        const __m512 inverse1 = _mm512_permutexvar_ps(_mm512_set1_epi32(2 * pair + 1), inverse);
        const __m512i words0 =
            _mm512_packs_epi32(to_int8_steps(from, inverse0), to_int8_steps(from + 16, inverse0));
        const __m512i words1 =
            _mm512_packs_epi32(to_int8_steps(from + 32, inverse1), to_int8_steps(from + 48, inverse1));
        const __m512i bytes = _mm512_permutexvar_epi32(transpose, _mm512_packs_epi16(words0, words1));
        _mm512_storeu_si512(q + 2 * kBlock * pair, bytes);
        fours[pair] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes);
    }
    const __m512i halves = half_sums(fours, transpose);
    const __m512i pairs = _mm512_add_epi32(halves, _mm512_srli_epi64(halves, 32));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sum), _mm512_cvtepi64_epi32(pairs));
    if (half_sum) _mm512_storeu_si512(half_sum, halves);
    return true;
}

}  // namespace

void quantise_a8(const float* x, int32_t K, int8_t* q, float* scale, int32_t* sum, int32_t* half_sum) {
    const int32_t num_blocks = K / kBlock;
    for (int32_t block = 0; block < num_blocks;) {
        int32_t* halves = half_sum ? half_sum + 2 * block : nullptr;
        if (num_blocks - block >= kTogether &&
            quantise_eight(x + block * kBlock, q + block * kBlock, scale + block, sum + block, halves)) {
            block += kTogether;
            continue;
        }
        quantise_block(x + block * kBlock, q + block * kBlock, scale + block, sum + block, halves);
        block++;
    }
}

void to_bf16(const float* x, int32_t n, uint16_t* out) {
    for (int32_t i = 0; i < n; i += 16) {
        const __mmask16 valid = static_cast<__mmask16>(n - i >= 16 ? 0xffff : (1 << (n - i)) - 1);
        const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(valid, x + i));
        _mm256_mask_storeu_epi16(out + i, valid, (__m256i)rounded);
    }
}

}  // namespace twostroke::avx512
