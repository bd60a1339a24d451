// Exact products of bytes without VNNI: vpmaddubsw adds two of them in int16, where they must fit.
#include "kernels/avx2/linear_int8.h"

#include "kernels/avx2/linear_entries.h"

namespace twostroke::avx2 {
namespace {

// Small weights: a lane's two products of up to kMaxGroups groups of four columns add up in int16.
template <int kMaxWeight>
struct Products {
    static constexpr int kMaxTokens = 2;
    static constexpr int kMaxGroups = kMaxWeight <= 15 ? 8 : kMaxWeight <= 31 ? 4 : 2;
    static_assert(kMaxGroups * 2 * kMaxWeight * 127 <= 32767);
    static constexpr bool kKeepsOffset = true;
    using Weight = __m256i;

    static ALWAYS_INLINE Weight weigh(__m256i bytes) { return bytes; }
    static ALWAYS_INLINE __m256i add(__m256i sum, Weight w, __m256i x) {
        return pinned(_mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x)));
    }
    static ALWAYS_INLINE __m256i finish(__m256i sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
};

// Weights of 8 bits: |w| times the activation with the sign of w, two at a time, 2 * 128 * 127 = 32512.
template <>
struct Products<255> {
    static constexpr int kMaxTokens = 2;
    static constexpr int kMaxGroups = 8;
    static constexpr bool kKeepsOffset = false;
    struct Weight {
        __m256i value, size;
    };

    static ALWAYS_INLINE Weight weigh(__m256i bytes) {
        const __m256i value = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
        return {value, _mm256_abs_epi8(value)};
    }
    static ALWAYS_INLINE __m256i add(__m256i sum, const Weight& w, __m256i x) {
        const __m256i pairs = _mm256_maddubs_epi16(w.size, _mm256_sign_epi8(x, w.value));
        return pinned(_mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
    }
    static ALWAYS_INLINE __m256i finish(__m256i sum) { return sum; }
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

}  // namespace twostroke::avx2
