// Exact products of bytes with sdot, which adds four of them in int32, of four columns taken by lane.
#include "kernels/neon/linear_int8.h"

#include "kernels/neon/linear_entries.h"

namespace twostroke::neon {
namespace {

// 16 sums over 16 rows, 4 activations of 16 columns, a weight. Weights of up to 7 bits are the same signed;
// those of 8 lose their offset of 128.
template <class Format>
struct Products {
    static constexpr int kMaxTokens = 4;
    static constexpr bool kKeepsOffset = Format::kMaxWeight < 128;

    static ALWAYS_INLINE WeightPair arrange(WeightPair pair) { return pair; }
    static ALWAYS_INLINE int8x16_t weigh(uint8x16_t bytes) {
        return vreinterpretq_s8_u8(kKeepsOffset ? bytes : veorq_u8(bytes, vdupq_n_u8(0x80)));
    }

    template <int T, bool>
    struct Sums {
        int32x4_t sum[T][kHalfVectors];

        template <class Start>
        ALWAYS_INLINE void begin(Start start) {
            UNROLL
            for (int t = 0; t < T; t++) {
                UNROLL
                for (int v = 0; v < kHalfVectors; v++) sum[t][v] = vdupq_n_s32(start(t));
            }
        }
        // Groups [kFirst, kFirst + kNum) of four columns, four groups at a time.
        template <int kFirst, int kNum, class Blocks>
        ALWAYS_INLINE void add(const Blocks& weights, int first_vector, const int8_t* a, size_t stride) {
            int8x16_t x[T];
            UNROLL
            for (int t = 0; t < T; t++) x[t] = vld1q_s8(a + t * stride + 4 * kFirst);
            add_pair<kFirst, 0>(weights, first_vector, x);
            add_pair<kFirst + 2, 2>(weights, first_vector, x);
            if constexpr (kNum > 4) add<kFirst + 4, kNum - 4>(weights, first_vector, a, stride);
        }
        ALWAYS_INLINE int32x4_t dot(int t, int v) const { return sum[t][v]; }

      private:
        template <int kGroup, int kLane, class Blocks>
        ALWAYS_INLINE void add_pair(const Blocks& weights, int first_vector, const int8x16_t (&x)[T]) {
            UNROLL
            for (int v = 0; v < kHalfVectors; v++) {
                const WeightPair pair = weights.pair(kGroup, first_vector + v);
                const int8x16_t first = weigh(pair.first), second = weigh(pair.second);
                UNROLL
                for (int t = 0; t < T; t++) {
                    sum[t][v] = vdotq_laneq_s32(sum[t][v], first, x[t], kLane);
                    sum[t][v] = vdotq_laneq_s32(sum[t][v], second, x[t], kLane + 1);
                }
            }
        }
    };
};

}  // namespace

void linear_q8_0(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void*) {
    linear_bytes<Products>(panel, K, in, num_tokens, {out, out_stride, num_rows});
}

void linear_q4_0(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear_pieces<Products, Nibbles<false, false>>(panel, K, in, num_tokens, {out, out_stride, num_rows},
                                                   scratch);
}

void linear_q4_1(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear_pieces<Products, Nibbles<false, true>>(panel, K, in, num_tokens, {out, out_stride, num_rows},
                                                  scratch);
}

void linear_q5_0(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear_pieces<Products, Nibbles<true, false>>(panel, K, in, num_tokens, {out, out_stride, num_rows},
                                                  scratch);
}

void linear_q5_1(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear_pieces<Products, Nibbles<true, true>>(panel, K, in, num_tokens, {out, out_stride, num_rows},
                                                 scratch);
}

void linear_q4_k(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear_pieces<Products, K4<false>>(panel, K, in, num_tokens, {out, out_stride, num_rows}, scratch);
}

void linear_q5_k(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear_pieces<Products, K4<true>>(panel, K, in, num_tokens, {out, out_stride, num_rows}, scratch);
}

void linear_q6_k(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear_pieces<Products, Q6_K>(panel, K, in, num_tokens, {out, out_stride, num_rows}, scratch);
}

}  // namespace twostroke::neon
