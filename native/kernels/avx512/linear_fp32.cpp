// Linear for F32 and F16: fp32 products, one FMA chain per output in K order.
//
// A tile is 32 rows x T tokens, lane = row. Sixteen chains at T = 8 hide the latency of two FMAs per cycle,
// and 16 sums, 4 weights, an activation and two permutations leave registers to spare.
#include <immintrin.h>

#include "kernels/avx512/linear_entries.h"
#include "kernels/avx512/linear_parts.h"

namespace twostroke::avx512 {
namespace {

constexpr int kMaxTokens = 8;

// Two columns of 32 rows: [column][half of the rows].
struct ColumnPair {
    __m512 w[2][2];
};

struct F32 {
    static ALWAYS_INLINE ColumnPair load(const uint8_t* w) {
        const float* at = reinterpret_cast<const float*>(w);
        return {{{_mm512_load_ps(at), _mm512_load_ps(at + 16)},
                 {_mm512_load_ps(at + 32), _mm512_load_ps(at + 48)}}};
    }
    // The last column of an odd K: there is no second one.
    static ALWAYS_INLINE ColumnPair load_last(const uint8_t* w) {
        const float* at = reinterpret_cast<const float*>(w);
        return {{{_mm512_load_ps(at), _mm512_load_ps(at + 16)}, {}}};
    }
    static constexpr int kPairBytes = 256;
};

// Rows lie as (k, k + 1) pairs: convert, then part even from odd.
struct F16 {
    static ALWAYS_INLINE void load_half(const uint8_t* w, __m512* even, __m512* odd) {
        const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        const __m512i odds = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
        const __m512 low = load_halves(w), high = load_halves(w + 32);
        *even = _mm512_permutex2var_ps(low, evens, high);
        *odd = _mm512_permutex2var_ps(low, odds, high);
    }
    static ALWAYS_INLINE ColumnPair load(const uint8_t* w) {
        ColumnPair pair;
        load_half(w, &pair.w[0][0], &pair.w[1][0]);
        load_half(w + 64, &pair.w[0][1], &pair.w[1][1]);
        return pair;
    }
    static ALWAYS_INLINE ColumnPair load_last(const uint8_t* w) { return load(w); }
    static constexpr int kPairBytes = 128;
};

template <int T>
ALWAYS_INLINE void add_column(__m512 (&sum)[T][2], const __m512 (&w)[2], const float* a, size_t stride) {
    UNROLL
    for (int t = 0; t < T; t++) {
        const __m512 x = _mm512_set1_ps(a[t * stride]);
        sum[t][0] = _mm512_fmadd_ps(w[0], x, sum[t][0]);
        sum[t][1] = _mm512_fmadd_ps(w[1], x, sum[t][1]);
    }
}

template <class Format>
struct Tile {
    const uint8_t* panel;
    int32_t K;
    const Activations& in;
    const OutputTile& out;

    template <int T>
    void compute(int32_t first) const {
        const uint8_t* w = panel;
        const float* a = in.f32 + first * in.f32_stride;
        const size_t stride = in.f32_stride;
        __m512 sum[T][2];
        UNROLL
        for (int t = 0; t < T; t++) sum[t][0] = sum[t][1] = _mm512_setzero_ps();
        for (int32_t k = 0; k + 2 <= K; k += 2) {
            const ColumnPair pair = Format::load(w);
            add_column<T>(sum, pair.w[0], a, stride);
            add_column<T>(sum, pair.w[1], a + 1, stride);
            w += Format::kPairBytes;
            a += 2;
        }
        if (K % 2 != 0) add_column<T>(sum, Format::load_last(w).w[0], a, stride);
        UNROLL
        for (int t = 0; t < T; t++) out.store(first + t, sum[t][0], sum[t][1]);
    }
};

template <class Format>
void linear(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
            size_t out_stride, int32_t num_rows) {
    const OutputTile output(out, out_stride, num_rows);
    for_each_tile<kMaxTokens>(num_tokens, Tile<Format>{panel, K, in, output});
}

}  // namespace

void linear_f32(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                size_t out_stride, int32_t num_rows, void*) {
    linear<F32>(panel, K, in, num_tokens, out, out_stride, num_rows);
}

void linear_f16(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                size_t out_stride, int32_t num_rows, void*) {
    linear<F16>(panel, K, in, num_tokens, out, out_stride, num_rows);
}

}  // namespace twostroke::avx512
