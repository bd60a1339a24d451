// Exact products of bytes with vpdpbusd, which adds four of them in int32.
#include "kernels/avx2/linear_int8.h"

#include "kernels/avxvnni/linear_entries.h"

namespace twostroke::avxvnni {
namespace {

// 12 sums, 3 activations and a weight are all 16 registers. Weights of any size are the same.
template <int>
struct Products {
    static constexpr int kMaxTokens = 3;
    static constexpr int kMaxGroups = 8;
    static constexpr bool kKeepsOffset = true;
    using Weight = __m256i;

    static ALWAYS_INLINE Weight weigh(__m256i bytes) { return bytes; }
    static ALWAYS_INLINE __m256i add(__m256i sum, Weight w, __m256i x) {
        return _mm256_dpbusd_avx_epi32(sum, w, x);
    }
    static ALWAYS_INLINE __m256i finish(__m256i sum) { return sum; }
};

}  // namespace

void linear_q8_0(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void*) {
    avx2::linear_bytes<Products>(panel, K, in, num_tokens, {out, out_stride, num_rows});
}

void linear_q4_0(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    avx2::linear_pieces<Products, avx2::Nibbles<false, false>>(panel, K, in, num_tokens,
                                                               {out, out_stride, num_rows}, scratch);
}

void linear_q4_1(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    avx2::linear_pieces<Products, avx2::Nibbles<false, true>>(panel, K, in, num_tokens,
                                                              {out, out_stride, num_rows}, scratch);
}

void linear_q5_0(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    avx2::linear_pieces<Products, avx2::Nibbles<true, false>>(panel, K, in, num_tokens,
                                                              {out, out_stride, num_rows}, scratch);
}

void linear_q5_1(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    avx2::linear_pieces<Products, avx2::Nibbles<true, true>>(panel, K, in, num_tokens,
                                                             {out, out_stride, num_rows}, scratch);
}

void linear_q4_k(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    avx2::linear_pieces<Products, avx2::K4<false>>(panel, K, in, num_tokens, {out, out_stride, num_rows},
                                                   scratch);
}

void linear_q5_k(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    avx2::linear_pieces<Products, avx2::K4<true>>(panel, K, in, num_tokens, {out, out_stride, num_rows},
                                                  scratch);
}

void linear_q6_k(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    avx2::linear_pieces<Products, avx2::Q6_K>(panel, K, in, num_tokens, {out, out_stride, num_rows}, scratch);
}

}  // namespace twostroke::avxvnni
