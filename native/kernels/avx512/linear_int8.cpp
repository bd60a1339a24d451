// Linear for Q8_0, Q4_0 and Q4_1: unsigned weights x signed activations per 32, vpdpbusd.
//
// A tile is 32 rows x T tokens, lane = row. Twelve int32 sums, twelve fp32 sums, two weights, one activation
// and a mask fill 28 of the 32 registers at T = 6; more tokens spill. Per block the int32 sums start at
// -offset * sum(a), which makes the weights' offset free and keeps the dot exact.
#include <immintrin.h>

#include "kernels/avx512/linear_entries.h"
#include "kernels/avx512/linear_parts.h"

namespace twostroke {
namespace {

#define TWOSTROKE_UNROLL _Pragma("GCC unroll 16")

constexpr int kMaxTokens = 6;

struct Q8_0 {
    static constexpr int kBlockBytes = 1088;
    static constexpr int kOffset = 128;
    static constexpr bool kHasMin = false;
    static constexpr int kScales = 1024;
};

struct Q4_0 {
    static constexpr int kBlockBytes = 576;
    static constexpr int kOffset = 8;
    static constexpr bool kHasMin = false;
    static constexpr int kScales = 512;
};

struct Q4_1 {
    static constexpr int kBlockBytes = 640;
    static constexpr int kOffset = 0;
    static constexpr bool kHasMin = true;
    static constexpr int kScales = 512;
};

// Four bytes of one token, in every lane.
inline __attribute__((always_inline)) __m512i broadcast_group(const int8_t* a) {
    int32_t four;
    __builtin_memcpy(&four, a, 4);
    return _mm512_set1_epi32(four);
}

template <int T>
inline __attribute__((always_inline)) void add_group(__m512i (&dot)[T][2], __m512i w0, __m512i w1,
                                                     const int8_t* a, size_t stride) {
    TWOSTROKE_UNROLL
    for (int t = 0; t < T; t++) {
        const __m512i x = broadcast_group(a + t * stride);
        dot[t][0] = _mm512_dpbusd_epi32(dot[t][0], w0, x);
        dot[t][1] = _mm512_dpbusd_epi32(dot[t][1], w1, x);
    }
}

// The integer part of one block: 8 groups of 4 k.
template <class Format, int T>
inline __attribute__((always_inline)) void add_block(__m512i (&dot)[T][2], const uint8_t* w, const int8_t* a,
                                                     size_t stride) {
    if constexpr (Format::kBlockBytes == 1088) {
        TWOSTROKE_UNROLL
        for (int j = 0; j < 8; j++) {
            add_group<T>(dot, _mm512_load_si512(w + 128 * j), _mm512_load_si512(w + 128 * j + 64), a + 4 * j,
                         stride);
        }
    } else {
        const __m512i low = _mm512_set1_epi8(15);
        TWOSTROKE_UNROLL
        for (int j = 0; j < 4; j++) {
            const __m512i p0 = _mm512_load_si512(w + 128 * j), p1 = _mm512_load_si512(w + 128 * j + 64);
            add_group<T>(dot, _mm512_and_si512(p0, low), _mm512_and_si512(p1, low), a + 4 * j, stride);
            add_group<T>(dot, _mm512_and_si512(_mm512_srli_epi16(p0, 4), low),
                         _mm512_and_si512(_mm512_srli_epi16(p1, 4), low), a + 16 + 4 * j, stride);
        }
    }
}

inline __attribute__((always_inline)) __m512 load_halves(const uint8_t* halves) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
}

// What a block adds beside its dot, per token and block: the start of the int32 sums (-offset * sum), or the
// factor of the minimum (scale * sum). Rows of `stride` blocks.
template <class Format>
void prepare_corrections(const Activations& in, int32_t first, int32_t num_tokens, int32_t num_blocks,
                         int32_t stride, int32_t* out) {
    for (int32_t t = 0; t < num_tokens; t++) {
        const size_t at = (first + t) * in.a8_block_stride;
        for (int32_t b = 0; b < num_blocks; b += 16) {
            const __mmask16 valid = first_lanes(num_blocks - b);
            const __m512i sum = _mm512_maskz_loadu_epi32(valid, in.a8_sum + at + b);
            __m512i correction;
            if constexpr (Format::kHasMin) {
                const __m512 scale = _mm512_maskz_loadu_ps(valid, in.a8_scale + at + b);
                correction = _mm512_castps_si512(_mm512_mul_ps(scale, _mm512_cvtepi32_ps(sum)));
            } else {
                correction = _mm512_mullo_epi32(sum, _mm512_set1_epi32(-Format::kOffset));
            }
            _mm512_store_si512(out + t * stride + b, correction);
        }
    }
}

template <class Format, int T>
void tile(const uint8_t* w, int32_t num_blocks, const Activations& in, int32_t first,
          const int32_t* corrections, int32_t correction_stride, const OutputTile& out) {
    const int8_t* a = in.a8 + first * in.a8_stride;
    const float* scales = in.a8_scale + first * in.a8_block_stride;
    const size_t a_stride = in.a8_stride, scale_stride = in.a8_block_stride, fix_stride = correction_stride;
    __m512 sum[T][2];
    TWOSTROKE_UNROLL
    for (int t = 0; t < T; t++) sum[t][0] = sum[t][1] = _mm512_setzero_ps();
    for (int32_t b = 0; b < num_blocks; b++) {
        __m512i dot[T][2];
        TWOSTROKE_UNROLL
        for (int t = 0; t < T; t++) {
            dot[t][0] = dot[t][1] =
                Format::kHasMin ? _mm512_setzero_si512() : _mm512_set1_epi32(corrections[t * fix_stride]);
        }
        add_block<Format, T>(dot, w, a, a_stride);
        const __m512 d0 = load_halves(w + Format::kScales), d1 = load_halves(w + Format::kScales + 32);
        TWOSTROKE_UNROLL
        for (int t = 0; t < T; t++) {
            const __m512 scale = _mm512_set1_ps(scales[t * scale_stride]);
            sum[t][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t][0]), _mm512_mul_ps(d0, scale), sum[t][0]);
            sum[t][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t][1]), _mm512_mul_ps(d1, scale), sum[t][1]);
        }
        if constexpr (Format::kHasMin) {
            const __m512 m0 = load_halves(w + Format::kScales + 64),
                         m1 = load_halves(w + Format::kScales + 96);
            TWOSTROKE_UNROLL
            for (int t = 0; t < T; t++) {
                const __m512 factor = _mm512_castsi512_ps(_mm512_set1_epi32(corrections[t * fix_stride]));
                sum[t][0] = _mm512_fmadd_ps(m0, factor, sum[t][0]);
                sum[t][1] = _mm512_fmadd_ps(m1, factor, sum[t][1]);
            }
        }
        w += Format::kBlockBytes;
        a += kBlock;
        scales++;
        corrections++;
    }
    TWOSTROKE_UNROLL
    for (int t = 0; t < T; t++) out.store(first + t, sum[t][0], sum[t][1]);
}

template <class Format>
void linear(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
            size_t out_stride, int32_t num_rows, void* scratch) {
    const int32_t num_blocks = K / kBlock, stride = (num_blocks + 15) / 16 * 16;
    int32_t* corrections = static_cast<int32_t*>(scratch);
    const OutputTile output(out, out_stride, num_rows);
    for (int32_t first = 0; first < num_tokens;) {
        const int32_t num = next_tile(num_tokens - first, kMaxTokens);
        prepare_corrections<Format>(in, first, num, num_blocks, stride, corrections);
        switch (num) {
            case 1:
                tile<Format, 1>(panel, num_blocks, in, first, corrections, stride, output);
                break;
            case 2:
                tile<Format, 2>(panel, num_blocks, in, first, corrections, stride, output);
                break;
            case 3:
                tile<Format, 3>(panel, num_blocks, in, first, corrections, stride, output);
                break;
            case 4:
                tile<Format, 4>(panel, num_blocks, in, first, corrections, stride, output);
                break;
            case 5:
                tile<Format, 5>(panel, num_blocks, in, first, corrections, stride, output);
                break;
            default:
                tile<Format, 6>(panel, num_blocks, in, first, corrections, stride, output);
                break;
        }
        first += num;
    }
}

}  // namespace

namespace avx512 {

void linear_q8_0(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear<Q8_0>(panel, K, in, num_tokens, out, out_stride, num_rows, scratch);
}

void linear_q4_0(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear<Q4_0>(panel, K, in, num_tokens, out, out_stride, num_rows, scratch);
}

void linear_q4_1(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear<Q4_1>(panel, K, in, num_tokens, out, out_stride, num_rows, scratch);
}

}  // namespace avx512
}  // namespace twostroke
