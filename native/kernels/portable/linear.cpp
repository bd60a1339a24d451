// Linear in plain C++: any processor, and the twin the other ISAs are judged by.
#include "kernels/linear.h"

#include <cmath>
#include <cstdint>

#include "kernels/portable/activations.h"
#include "kernels/portable/unpack.h"
#include "pack.h"

namespace twostroke {
namespace portable {
namespace {

// Columns unpacked at a time: one super-block; 32 KiB of floats.
constexpr int32_t kPieceColumns = 256;

struct Output {
    float* at;
    size_t stride;
    int32_t num_rows;

    float* token(int32_t t) const { return at + t * stride; }
};

void clear(const Output& out, int32_t num_tokens) {
    for (int32_t t = 0; t < num_tokens; t++) {
        for (int32_t r = 0; r < out.num_rows; r++) out.token(t)[r] = 0;
    }
}

// dot[r] += exact products of num_k columns.
void add_dots(const int32_t (*w)[kPanelRows], const int8_t* a, int32_t num_k, int32_t (&dot)[kPanelRows]) {
    for (int32_t k = 0; k < num_k; k++) {
        const int32_t activation = a[k];
        for (int32_t r = 0; r < kPanelRows; r++) dot[r] += w[k][r] * activation;
    }
}

// Adds one block of 32 columns for one token. The dot product is exact; the scaled sum is one FMA chain in
// K order, carried in `out` from block to block.
void add_int8_block(const Block32<kPanelRows>& w, bool has_min, const int8_t* a, float scale, int32_t sum,
                    float* out, int32_t num_rows) {
    int32_t dot[kPanelRows] = {};
    add_dots(w.q, a, kBlock, dot);
    const float scaled_sum = scale * static_cast<float>(sum);
    for (int32_t r = 0; r < num_rows; r++) {
        out[r] = std::fma(static_cast<float>(dot[r]), w.d[r] * scale, out[r]);
        if (has_min) out[r] = std::fma(w.m[r], scaled_sum, out[r]);
    }
}

template <TensorType kType>
void linear_int8(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void*) {
    const bool has_min = kType == TensorType::Q4_1 || kType == TensorType::Q5_1;
    const Output output = {out, out_stride, num_rows};
    clear(output, num_tokens);
    Block32<kPanelRows> w;
    for (int32_t block = 0; block < K / kBlock; block++) {
        load_block_32<kPanelRows>(kType, panel + static_cast<size_t>(block) * packed_block_bytes(kType), 0,
                                  &w);
        for (int32_t t = 0; t < num_tokens; t++) {
            const size_t at = t * in.a8_block_stride + block;
            add_int8_block(w, has_min, in.a8 + t * in.a8_stride + block * kBlock, in.a8_scale[at],
                           in.a8_sum[at], output.token(t), num_rows);
        }
    }
}

// Adds block b of a super-block with a scale and a minimum per 32 columns.
void add_block_k4(const Block256<kPanelRows>& w, int32_t b, const int8_t* a, float scale, int32_t sum,
                  float* out, int32_t num_rows) {
    int32_t dot[kPanelRows] = {};
    add_dots(w.q + kBlock * b, a, kBlock, dot);
    const float scaled_sum = scale * static_cast<float>(sum);
    for (int32_t r = 0; r < num_rows; r++) {
        out[r] = std::fma(static_cast<float>(dot[r]), w.scale[b][r] * scale, out[r]);
        out[r] = std::fma(-w.min[b][r], scaled_sum, out[r]);
    }
}

// The same with a scale per 16: both scaled dots are added before the activation scale.
void add_block_k6(const Block256<kPanelRows>& w, int32_t b, const int8_t* a, float scale, float* out,
                  int32_t num_rows) {
    int32_t even[kPanelRows] = {}, odd[kPanelRows] = {};
    add_dots(w.q + kBlock * b, a, 16, even);
    add_dots(w.q + kBlock * b + 16, a + 16, 16, odd);
    for (int32_t r = 0; r < num_rows; r++) {
        const float first = static_cast<float>(even[r]) * w.scale[2 * b][r];
        const float both = std::fma(static_cast<float>(odd[r]), w.scale[2 * b + 1][r], first);
        out[r] = std::fma(both, scale, out[r]);
    }
}

template <TensorType kType>
void linear_int8_k(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                   size_t out_stride, int32_t num_rows, void* scratch) {
    const Output output = {out, out_stride, num_rows};
    clear(output, num_tokens);
    auto& w = *static_cast<Block256<kPanelRows>*>(scratch);
    for (int32_t block = 0; block < K / kBlock; block++) {
        if (block % 8 == 0) {
            const uint8_t* from = panel + static_cast<size_t>(block / 8) * packed_block_bytes(kType);
            load_block_256<kPanelRows>(kType, from, 0, &w);
        }
        for (int32_t t = 0; t < num_tokens; t++) {
            const size_t at = t * in.a8_block_stride + block;
            const int8_t* a = in.a8 + t * in.a8_stride + block * kBlock;
            if (kType == TensorType::Q6_K) {
                add_block_k6(w, block % 8, a, in.a8_scale[at], output.token(t), num_rows);
            } else {
                add_block_k4(w, block % 8, a, in.a8_scale[at], in.a8_sum[at], output.token(t), num_rows);
            }
        }
    }
}

// Adds num_k columns for one token; products of bf16 numbers are exact, so this is an FMA chain for them.
template <class Activation>
void add_columns(const float* w, int32_t num_k, Activation activation, float* out, int32_t num_rows) {
    float sums[kPanelRows] = {};
    for (int32_t r = 0; r < num_rows; r++) sums[r] = out[r];
    for (int32_t k = 0; k < num_k; k++) {
        const float a = activation(k);
        for (int32_t r = 0; r < kPanelRows; r++) sums[r] += w[k * kPanelRows + r] * a;
    }
    for (int32_t r = 0; r < num_rows; r++) out[r] = sums[r];
}

template <TensorType kType, Arithmetic kArithmetic>
void linear_float(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                  size_t out_stride, int32_t num_rows, void* scratch) {
    const Output output = {out, out_stride, num_rows};
    clear(output, num_tokens);
    float* piece = static_cast<float*>(scratch);
    for (int32_t k = 0; k < K; k += kPieceColumns) {
        const int32_t num_k = K - k < kPieceColumns ? K - k : kPieceColumns;
        unpack_columns<kPanelRows>(kType, panel, k, num_k, 0, piece);
        if (kArithmetic == Arithmetic::bf16) {
            for (int32_t i = 0; i < num_k * kPanelRows; i++) piece[i] = bf16_to_float(to_bf16(piece[i]));
        }
        for (int32_t t = 0; t < num_tokens; t++) {
            if (kArithmetic == Arithmetic::bf16) {
                const uint16_t* a = in.bf16 + t * in.bf16_stride + k;
                add_columns(
                    piece, num_k, [a](int32_t i) { return bf16_to_float(a[i]); }, output.token(t), num_rows);
            } else {
                const float* a = in.f32 + t * in.f32_stride + k;
                add_columns(piece, num_k, [a](int32_t i) { return a[i]; }, output.token(t), num_rows);
            }
        }
    }
}

}  // namespace
}  // namespace portable

void portable_fill_linear(KernelTable& table) {
    using enum TensorType;
    const auto entry = [&table](TensorType type) -> LinearPanel& {
        return table.linear[static_cast<int32_t>(type)];
    };
    entry(F32) = portable::linear_float<F32, Arithmetic::fp32>;
    entry(F16) = portable::linear_float<F16, Arithmetic::fp32>;
    entry(BF16) = portable::linear_float<BF16, Arithmetic::bf16>;
    entry(Q8_0) = portable::linear_int8<Q8_0>;
    entry(Q4_0) = portable::linear_int8<Q4_0>;
    entry(Q4_1) = portable::linear_int8<Q4_1>;
    entry(Q5_0) = portable::linear_int8<Q5_0>;
    entry(Q5_1) = portable::linear_int8<Q5_1>;
    entry(Q4_K) = portable::linear_int8_k<Q4_K>;
    entry(Q5_K) = portable::linear_int8_k<Q5_K>;
    entry(Q6_K) = portable::linear_int8_k<Q6_K>;
    table.quantise_a8 = portable::quantise_a8;
    table.to_bf16 = portable::to_bf16;
    table.unpack_row = unpack_row;
}

}  // namespace twostroke
