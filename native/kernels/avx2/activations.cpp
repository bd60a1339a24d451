// Preparing the input of a linear: int8 per 32, and the one float -> bf16 conversion of this ISA.
#include "kernels/portable/activations.h"

#include "kernels/avx2/lanes.h"
#include "kernels/avx2/linear_entries.h"

namespace twostroke::avx2 {
namespace {

ALWAYS_INLINE int32_t reduce_max(__m256i v) {
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xB1));
    return _mm_cvtsi128_si32(four);
}

ALWAYS_INLINE int32_t reduce_add(__m256i v) {
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1));
    return _mm_cvtsi128_si32(four);
}

// One block of 32; the same integers and scales as the portable definition. Magnitudes are compared as
// integers, where infinity and NaN are the largest.
void quantise_block(const float* x, int8_t* q, float* scale, int32_t (&half_sums)[2]) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256 v[4];
    __m256i largest_lanes = _mm256_setzero_si256();
    UNROLL
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        largest_lanes =
            _mm256_max_epi32(largest_lanes, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
    }
    const auto largest = static_cast<uint32_t>(reduce_max(largest_lanes));
    float amax;
    __builtin_memcpy(&amax, &largest, 4);
    const bool is_finite = largest < 0x7f800000;
    const bool is_zero = largest < portable::kSmallestScaled;
    const __m256 inverse = _mm256_set1_ps(is_finite && !is_zero ? 127.0f / amax : 0.0f);
    *scale = !is_finite ? __builtin_nanf("") : is_zero ? 0.0f : amax / 127.0f;
    const __m256i keep = _mm256_set1_epi32(is_finite ? -1 : 0);
    __m256i values[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        values[i] = _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse)), keep);
    // Packing works within 128 bits: the groups of 4 come out as 0 2 4 6 1 3 5 7.
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(values[0], values[1]),
                                             _mm256_packs_epi32(values[2], values[3]));
    const __m256i ordered = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), ordered);
    half_sums[0] = reduce_add(_mm256_add_epi32(values[0], values[1]));
    half_sums[1] = reduce_add(_mm256_add_epi32(values[2], values[3]));
}

}  // namespace

void quantise_a8(const float* x, int32_t K, int8_t* q, float* scale, int32_t* sum, int32_t* half_sum) {
    for (int32_t block = 0; block < K / kBlock; block++) {
        int32_t halves[2];
        quantise_block(x + block * kBlock, q + block * kBlock, scale + block, halves);
        sum[block] = halves[0] + halves[1];
        if (half_sum) __builtin_memcpy(half_sum + 2 * block, halves, sizeof halves);
    }
}

void to_bf16(const float* x, int32_t n, uint16_t* out) {
    int32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                         upper_halves(round_to_bf16(_mm256_loadu_ps(x + i))));
    if (i == n) return;
    alignas(16) uint16_t rest[8];
    _mm_store_si128(reinterpret_cast<__m128i*>(rest), upper_halves(round_to_bf16(load_first(x + i, n - i))));
    for (int32_t j = 0; i + j < n; j++) out[i + j] = rest[j];
}

}  // namespace twostroke::avx2
