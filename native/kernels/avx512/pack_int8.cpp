// Heads -> whole numbers: the same as int8_heads.h gives, 16 elements at a time.
#include "exp.h"
#include "kernels/avx512/attention_int8.h"
#include "kernels/int8_heads.h"

namespace twostroke::avx512 {
namespace {

// Pairs `half` lanes apart: low + high where the bit of a lane is 0, low - high where it is 1.
template <int kHalf>
ALWAYS_INLINE __m512 rotate_lanes(__m512 x) {
    __m512 other;
    if constexpr (kHalf == 1) other = _mm512_permute_ps(x, 0xB1);
    if constexpr (kHalf == 2) other = _mm512_permute_ps(x, 0x4E);
    if constexpr (kHalf == 4) other = _mm512_shuffle_f32x4(x, x, 0xB1);
    if constexpr (kHalf == 8) other = _mm512_shuffle_f32x4(x, x, 0x4E);
    constexpr __mmask16 kHigh = kHalf == 1 ? 0xAAAA : kHalf == 2 ? 0xCCCC : kHalf == 4 ? 0xF0F0 : 0xFF00;
    return _mm512_mask_sub_ps(_mm512_add_ps(x, other), kHigh, other, x);
}

// Heads of whole vectors; others take the plain way.
ALWAYS_INLINE void rotate_head(const float* x, int32_t n, float* out) {
    if (n % 16 != 0) return rotate(x, n, out);
    for (int32_t i = 0; i < n; i += 16) {
        const __m512 once = rotate_lanes<2>(rotate_lanes<1>(_mm512_loadu_ps(x + i)));
        _mm512_storeu_ps(out + i, rotate_lanes<8>(rotate_lanes<4>(once)));
    }
    for (int32_t half = 16; half < rotation_size(n); half *= 2)
        for (int32_t first = 0; first < n; first += 2 * half)
            for (int32_t i = first; i < first + half; i += 16) {
                const __m512 low = _mm512_loadu_ps(out + i), high = _mm512_loadu_ps(out + i + half);
                _mm512_storeu_ps(out + i, _mm512_add_ps(low, high));
                _mm512_storeu_ps(out + i + half, _mm512_sub_ps(low, high));
            }
}

ALWAYS_INLINE HeadScale scale_of(const float* x, int32_t n) {
    __m512i largest = _mm512_setzero_si512();
    for (int32_t i = 0; i < n; i += 16) {
        const __m512i bits = _mm512_castps_si512(_mm512_maskz_loadu_ps(first_lanes(n - i), x + i));
        largest = _mm512_max_epu32(largest, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
    }
    return head_scale(_mm512_reduce_max_epu32(largest));
}

// Up to 16 whole numbers from x[i] on, zeros behind the head.
ALWAYS_INLINE __m512i integers_of(const float* x, int32_t i, int32_t n, const HeadScale& head) {
    const __mmask16 lanes = first_lanes(n - i);
    const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, x + i), _mm512_set1_ps(head.inverse));
    return _mm512_maskz_mov_epi32(head.is_finite ? 0xFFFF : 0, _mm512_cvtps_epi32(scaled));
}

}  // namespace

void write_kv_int8(const float* k, const float* v, int32_t head_dim, int32_t slot, uint8_t* unit) {
    const Int8Unit parts(unit, head_dim);
    alignas(64) float rotated[kMostInt8Dims];
    rotate_head(k, head_dim, rotated);
    const HeadScale key = scale_of(rotated, head_dim), value = scale_of(v, head_dim);
    const_cast<float*>(parts.key_scales)[slot] = key.scale;
    const_cast<float*>(parts.value_scales)[slot] = value.scale;
    for (int32_t d = 0; d < head_dim; d += 16) {
        const __m512i biased =
            _mm512_add_epi32(integers_of(rotated, d, head_dim, key), _mm512_set1_epi32(128));
        alignas(16) uint32_t words[4];
        _mm_store_si128(reinterpret_cast<__m128i*>(words), _mm512_cvtepi32_epi8(biased));
        for (int32_t i = 0; i < 4 && d + 4 * i < head_dim; ++i)
            __builtin_memcpy(unit + ((d / 4 + i) * kUnitTokens + slot) * 4, &words[i], 4);

        const int32_t lane = slot % 4, count = head_dim - d < 16 ? head_dim - d : 16;
        const __mmask64 written = (count == 16 ? ~__mmask64{0} : (__mmask64{1} << (4 * count)) - 1) &
                                  (__mmask64{0x1111111111111111} << lane);
        const __m512i integers =
            _mm512_sll_epi32(integers_of(v, d, head_dim, value), _mm_cvtsi32_si128(8 * lane));
        _mm512_mask_storeu_epi8(const_cast<int8_t*>(parts.values) + (slot / 4 * head_dim + d) * 4, written,
                                integers);
    }
}

void pack_queries_int8(const float* q, int32_t num_rows, int32_t head_dim, const PackedQueries& out) {
    const int32_t stride = int8_stride(head_dim);
    for (int32_t row = 0; row < num_rows; ++row) {
        alignas(64) float rotated[kMostInt8Dims];
        int8_t* packed = static_cast<int8_t*>(out.q) + static_cast<size_t>(row) * stride;
        rotate_head(q + static_cast<size_t>(row) * head_dim, head_dim, rotated);
        const HeadScale head = scale_of(rotated, head_dim);
        __m512i sum = _mm512_setzero_si512();
        for (int32_t d = 0; d < head_dim; d += 16) {
            const __m512i integers = integers_of(rotated, d, head_dim, head);
            sum = _mm512_add_epi32(sum, integers);
            _mm_mask_storeu_epi8(packed + d, first_lanes(stride - d), _mm512_cvtepi32_epi8(integers));
        }
        out.scale[row] = head.scale;
        out.sum[row] = _mm512_reduce_add_epi32(sum);
    }
}

}  // namespace twostroke::avx512
