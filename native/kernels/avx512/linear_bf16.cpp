// Linear for BF16: vdpbf16ps on pairs of columns.
//
// A tile is 32 rows x T tokens, lane = row; a unit of weights is [16 rows][2 columns]. Sixteen chains at T =
// 8 hide the latency (6) of two vdpbf16ps per cycle.
#include <immintrin.h>

#include "kernels/avx512/linear_entries.h"
#include "kernels/avx512/linear_parts.h"

namespace twostroke::avx512 {
namespace {

constexpr int kMaxTokens = 8;
constexpr int kPairBytes = 128;  // one pair of columns, 32 rows

ALWAYS_INLINE __m512bh broadcast_pair(const uint16_t* a) {
    int32_t pair;
    __builtin_memcpy(&pair, a, 4);
    return (__m512bh)_mm512_set1_epi32(pair);
}

struct PairTile {
    const uint8_t* units;
    int32_t num_pairs;
    const Activations& in;
    const OutputTile& out;

    template <int T>
    void compute(int32_t first) const {
        const uint16_t* a = in.bf16 + first * in.bf16_stride;
        const size_t stride = in.bf16_stride;
        const uint8_t* w = units;
        __m512 sum[T][2];
        UNROLL
        for (int t = 0; t < T; t++) sum[t][0] = sum[t][1] = _mm512_setzero_ps();
        for (int32_t pair = 0; pair < num_pairs; pair++) {
            const __m512bh w0 = (__m512bh)_mm512_load_si512(w), w1 = (__m512bh)_mm512_load_si512(w + 64);
            UNROLL
            for (int t = 0; t < T; t++) {
                const __m512bh x = broadcast_pair(a + t * stride);
                sum[t][0] = _mm512_dpbf16_ps(sum[t][0], w0, x);
                sum[t][1] = _mm512_dpbf16_ps(sum[t][1], w1, x);
            }
            w += kPairBytes;
            a += 2;
        }
        UNROLL
        for (int t = 0; t < T; t++) out.store(first + t, sum[t][0], sum[t][1]);
    }
};

}  // namespace

void linear_bf16(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void*) {
    const OutputTile output(out, out_stride, num_rows);
    for_each_tile<kMaxTokens>(num_tokens, PairTile{panel, (K + 1) / 2, in, output});
}

}  // namespace twostroke::avx512
