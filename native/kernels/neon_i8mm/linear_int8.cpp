// Exact products of bytes with usmmla: 2 rows x 8 columns times 8 columns x 2 tokens. A lone token has usdot.
#include "kernels/neon/linear_int8.h"

#include <type_traits>

#include "kernels/neon_i8mm/linear_entries.h"

namespace twostroke::neon_i8mm {
namespace {

using neon::kHalfVectors, neon::WeightPair;

// A token against weights as packed, four columns at a time taken by lane.
struct LoneToken {
    int32x4_t sum[kHalfVectors];

    template <class Start>
    ALWAYS_INLINE void begin(Start start) {
        UNROLL
        for (int v = 0; v < kHalfVectors; v++) sum[v] = vdupq_n_s32(start(0));
    }
    template <int kFirst, int kNum, class Blocks>
    ALWAYS_INLINE void add(const Blocks& weights, int first_vector, const int8_t* a, size_t stride) {
        const int8x16_t x = vld1q_s8(a + 4 * kFirst);
        UNROLL
        for (int v = 0; v < kHalfVectors; v++) {
            const WeightPair low = weights.pair(kFirst, first_vector + v);
            sum[v] = vusdotq_laneq_s32(sum[v], low.first, x, 0);
            sum[v] = vusdotq_laneq_s32(sum[v], low.second, x, 1);
            const WeightPair high = weights.pair(kFirst + 2, first_vector + v);
            sum[v] = vusdotq_laneq_s32(sum[v], high.first, x, 2);
            sum[v] = vusdotq_laneq_s32(sum[v], high.second, x, 3);
        }
        if constexpr (kNum > 4) add<kFirst + 4, kNum - 4>(weights, first_vector, a, stride);
    }
    ALWAYS_INLINE int32x4_t dot(int, int v) const { return sum[v]; }
};

// 24 sums of 2 rows x 2 tokens, 3 pairs of activations and two weights at 6 tokens. The last of an odd number
// of tokens is its own partner.
template <class Format>
struct Products {
    static constexpr int kMaxTokens = 6;
    static constexpr bool kKeepsOffset = true;

    // 8 columns of rows 0 and 1, then of rows 2 and 3.
    static ALWAYS_INLINE WeightPair arrange(WeightPair pair) {
        const uint32x4_t first = vreinterpretq_u32_u8(pair.first), second = vreinterpretq_u32_u8(pair.second);
        return {vreinterpretq_u8_u32(vzip1q_u32(first, second)),
                vreinterpretq_u8_u32(vzip2q_u32(first, second))};
    }

    template <int T>
    struct TokenPairs {
        static constexpr int kPairs = (T + 1) / 2;
        int32x4_t sum[kPairs][kHalfVectors][2];  // [2 rows][2 tokens]

        static constexpr int partner(int pair) { return 2 * pair + 1 < T ? 2 * pair + 1 : 2 * pair; }

        template <class Start>
        ALWAYS_INLINE void begin(Start start) {
            UNROLL
            for (int p = 0; p < kPairs; p++) {
                const int32x4_t both = vzip1q_s32(vdupq_n_s32(start(2 * p)), vdupq_n_s32(start(partner(p))));
                UNROLL
                for (int v = 0; v < kHalfVectors; v++) sum[p][v][0] = sum[p][v][1] = both;
            }
        }
        // Groups [kFirst, kFirst + kNum) of four columns, two groups at a time.
        template <int kFirst, int kNum, class Blocks>
        ALWAYS_INLINE void add(const Blocks& weights, int first_vector, const int8_t* a, size_t stride) {
            int8x16_t x[kPairs];
            UNROLL
            for (int p = 0; p < kPairs; p++) {
                const int8x8_t first = vld1_s8(a + 2 * p * stride + 4 * kFirst);
                x[p] = vcombine_s8(
                    first, partner(p) == 2 * p ? first : vld1_s8(a + partner(p) * stride + 4 * kFirst));
            }
            UNROLL
            for (int v = 0; v < kHalfVectors; v++) {
                WeightPair pair = weights.pair(kFirst, first_vector + v);
                if constexpr (!Blocks::kIsArranged) pair = arrange(pair);
                UNROLL
                for (int p = 0; p < kPairs; p++) {
                    sum[p][v][0] = vusmmlaq_s32(sum[p][v][0], pair.first, x[p]);
                    sum[p][v][1] = vusmmlaq_s32(sum[p][v][1], pair.second, x[p]);
                }
            }
            if constexpr (kNum > 2) add<kFirst + 2, kNum - 2>(weights, first_vector, a, stride);
        }
        ALWAYS_INLINE int32x4_t dot(int t, int v) const {
            const int32x4_t(&four)[2] = sum[t / 2][v];
            return t % 2 == 0 ? vuzp1q_s32(four[0], four[1]) : vuzp2q_s32(four[0], four[1]);
        }
    };

    template <int T, bool kIsArranged>
    using Sums = std::conditional_t<T == 1 && !kIsArranged, LoneToken, TokenPairs<T>>;
};

}  // namespace

void linear_q8_0(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void*) {
    neon::linear_bytes<Products>(panel, K, in, num_tokens, {out, out_stride, num_rows});
}

void linear_q4_0(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    neon::linear_pieces<Products, neon::Nibbles<false, false>>(panel, K, in, num_tokens,
                                                               {out, out_stride, num_rows}, scratch);
}

void linear_q4_1(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    neon::linear_pieces<Products, neon::Nibbles<false, true>>(panel, K, in, num_tokens,
                                                              {out, out_stride, num_rows}, scratch);
}

void linear_q5_0(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    neon::linear_pieces<Products, neon::Nibbles<true, false>>(panel, K, in, num_tokens,
                                                              {out, out_stride, num_rows}, scratch);
}

void linear_q5_1(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    neon::linear_pieces<Products, neon::Nibbles<true, true>>(panel, K, in, num_tokens,
                                                             {out, out_stride, num_rows}, scratch);
}

void linear_q4_k(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    neon::linear_pieces<Products, neon::K4<false>>(panel, K, in, num_tokens, {out, out_stride, num_rows},
                                                   scratch);
}

void linear_q5_k(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    neon::linear_pieces<Products, neon::K4<true>>(panel, K, in, num_tokens, {out, out_stride, num_rows},
                                                  scratch);
}

void linear_q6_k(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    neon::linear_pieces<Products, neon::Q6_K>(panel, K, in, num_tokens, {out, out_stride, num_rows}, scratch);
}

}  // namespace twostroke::neon_i8mm
