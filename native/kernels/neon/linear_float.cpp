// Linear for F32 and F16 in fp32, and for BF16: operands widened and multiplied in fp32, activations rounded
// to bf16 before. Either way an output is one FMA chain in K order.
//
// A panel of F16 or BF16 is unpacked to floats, 128 columns at a time, into scratch that stays in L1, and all
// tokens pass over it. A tile is 32 rows x T tokens, lane = row: 24 sums, three activations and a weight at
// T = 3 fit 32 registers, and 24 chains hide the latency of four FMAs a cycle.
#include "kernels/neon/linear_entries.h"
#include "kernels/neon/linear_parts.h"

namespace twostroke::neon {
namespace {

constexpr int kMaxTokens = 3;
constexpr int32_t kPieceColumns = 128;
// Tokens whose widened activations lie beside a piece of weights in L1.
constexpr int32_t kGroupTokens = 24;

// Columns of a piece for T tokens: weights [k][32 rows].
struct Tile {
    const float* weights;
    int32_t num_columns;
    bool is_first_piece;
    const float* activations;  // of token 0 of the tile's group, [tokens][stride]
    size_t stride;
    const OutputTile& out;

    template <int T>
    void compute(int32_t first) const {
        const float* w = weights;
        const float* a = activations + first * stride;
        const size_t a_stride = stride;
        float32x4_t sum[T][kVectors];
        begin_sums<T>(is_first_piece, out, first, sum);
        for (int32_t k = 0; k < num_columns; k++) {
            UNROLL
            for (int v = 0; v < kVectors; v++) {
                const float32x4_t column = vld1q_f32(w + 4 * v);
                UNROLL
                for (int t = 0; t < T; t++) sum[t][v] = vfmaq_n_f32(sum[t][v], column, a[t * a_stride]);
            }
            w += kPanelRows;
            a++;
        }
        UNROLL
        for (int t = 0; t < T; t++) out.store(first + t, sum[t]);
    }
};

constexpr int kPairBytes = 128;

// Each format unpacks a pair of columns of 4 rows, vector v of the panel.
struct BF16 {
    static ALWAYS_INLINE void unpack(const uint8_t* pair, int v, float* out) {
        const uint32x4_t both = vreinterpretq_u32_u8(vld1q_u8(pair + v * 16));
        vst1q_f32(out, vreinterpretq_f32_u32(vshlq_n_u32(both, 16)));
        vst1q_f32(out + kPanelRows, vreinterpretq_f32_u32(vandq_u32(both, vdupq_n_u32(0xffff0000))));
    }
};

struct F16 {
    static ALWAYS_INLINE void unpack(const uint8_t* pair, int v, float* out) {
        const uint32x4_t both = vreinterpretq_u32_u8(vld1q_u8(pair + v * 16));
        vst1q_f32(out, vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(both))));
        vst1q_f32(out + kPanelRows, vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(both, 16))));
    }
};

// Scratch of one thread: a piece of weights, and the activations of a group of tokens for it.
struct alignas(64) Scratch {
    float weights[kPieceColumns * kPanelRows];
    float activations[kGroupTokens][kPieceColumns];
};
static_assert(sizeof(Scratch) <= kLinearScratchBytes);

int32_t columns_of_piece(int32_t K, int32_t first_k) {
    return K - first_k < kPieceColumns ? K - first_k : kPieceColumns;
}

template <class Format>
void unpack_piece(const uint8_t* panel, int32_t first_k, int32_t num_columns, float* out) {
    const uint8_t* pair = panel + static_cast<size_t>(first_k / 2) * kPairBytes;
    for (int32_t k = 0; k < num_columns; k += 2) {
        UNROLL
        for (int v = 0; v < kVectors; v++) Format::unpack(pair, v, out + k * kPanelRows + 4 * v);
        pair += kPairBytes;
    }
}

void widen(const uint16_t* from, int32_t num_columns, float* to) {
    int32_t k = 0;
    for (; k + 4 <= num_columns; k += 4) vst1q_f32(to + k, widen_bf16(vld1_u16(from + k)));
    for (; k < num_columns; k++) {
        const uint32_t bits = static_cast<uint32_t>(from[k]) << 16;
        __builtin_memcpy(to + k, &bits, 4);
    }
}

// Tokens of bf16 activations against a piece, group by group.
void multiply_widened(const Activations& in, int32_t num_tokens, int32_t first_k, int32_t num_columns,
                      Scratch& scratch, const OutputTile& out) {
    for (int32_t first = 0; first < num_tokens; first += kGroupTokens) {
        const int32_t count = num_tokens - first < kGroupTokens ? num_tokens - first : kGroupTokens;
        for (int32_t t = 0; t < count; t++)
            widen(in.bf16 + (first + t) * in.bf16_stride + first_k, num_columns, scratch.activations[t]);
        const OutputTile group = {out.at + first * out.stride, out.stride, out.num_rows};
        for_each_tile<kMaxTokens>(count, Tile{scratch.weights, num_columns, first_k == 0,
                                              scratch.activations[0], kPieceColumns, group});
    }
}

}  // namespace

void linear_f32(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                size_t out_stride, int32_t num_rows, void*) {
    const OutputTile output = {out, out_stride, num_rows};
    const auto* weights = reinterpret_cast<const float*>(panel);
    for_each_tile<kMaxTokens>(num_tokens, Tile{weights, K, true, in.f32, in.f32_stride, output});
}

void linear_f16(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                size_t out_stride, int32_t num_rows, void* memory) {
    auto& scratch = *static_cast<Scratch*>(memory);
    const OutputTile output = {out, out_stride, num_rows};
    for (int32_t k = 0; k < K; k += kPieceColumns) {
        unpack_piece<F16>(panel, k, columns_of_piece(K, k), scratch.weights);
        for_each_tile<kMaxTokens>(num_tokens, Tile{scratch.weights, columns_of_piece(K, k), k == 0,
                                                   in.f32 + k, in.f32_stride, output});
    }
}

void linear_bf16(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* memory) {
    auto& scratch = *static_cast<Scratch*>(memory);
    for (int32_t k = 0; k < K; k += kPieceColumns) {
        unpack_piece<BF16>(panel, k, columns_of_piece(K, k), scratch.weights);
        multiply_widened(in, num_tokens, k, columns_of_piece(K, k), scratch, {out, out_stride, num_rows});
    }
}

}  // namespace twostroke::neon
