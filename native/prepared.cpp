#include "prepared.h"

#include <cstring>

namespace twostroke {
namespace {

// Rows a power of two apart would share few cache sets: one line more breaks the pattern.
size_t padded(int32_t count, int32_t element_bytes) {
    const int32_t bytes = round_up(count * element_bytes, 64);
    return static_cast<size_t>(bytes % 512 == 0 ? bytes + 64 : bytes) / element_bytes;
}

}  // namespace

void scale_sums(const float* scale, const int32_t* sum, int32_t num_blocks, float* out) {
    for (int32_t b = 0; b < num_blocks; b++) out[b] = scale[b] * static_cast<float>(sum[b]);
}

Prepared::Needs Prepared::needs_of(std::span<const Weight* const> weights) {
    Needs needs;
    for (const Weight* weight : weights) {
        needs.K = weight->cols;
        needs.fp32 |= arithmetic_of(weight->type) == Arithmetic::fp32;
        needs.int8 |= arithmetic_of(weight->type) == Arithmetic::int8;
        needs.half_sums |= needs_half_sums(weight->type);
        needs.scaled_sums |= needs_scaled_sums(weight->type);
        needs.bf16 |= arithmetic_of(weight->type) == Arithmetic::bf16;
    }
    return needs;
}

Prepared::Prepared(const Needs& needs, int32_t num_tokens, Carver& carver) : needs_(needs) {
    if (needs.fp32) {
        all_.f32_stride = padded(needs.K, 4);
        all_.f32 = carver.take<float>(num_tokens * all_.f32_stride);
    }
    if (needs.int8) {
        all_.a8_stride = padded(needs.K, 1);
        all_.a8_block_stride = padded(needs.K / kBlock, 4);
        all_.a8 = carver.take<int8_t>(num_tokens * all_.a8_stride);
        all_.a8_scale = carver.take<float>(num_tokens * all_.a8_block_stride);
        all_.a8_sum = carver.take<int32_t>(num_tokens * all_.a8_block_stride);
    }
    if (needs.scaled_sums) all_.a8_scaled_sum = carver.take<float>(num_tokens * all_.a8_block_stride);
    if (needs.half_sums) all_.a8_half_sum = carver.take<int32_t>(num_tokens * 2 * all_.a8_block_stride);
    if (needs.bf16) {
        all_.bf16_stride = padded(needs.K + needs.K % 2, 2);
        all_.bf16 = carver.take<uint16_t>(num_tokens * all_.bf16_stride);
    }
}

Activations Prepared::from(int32_t first) const {
    Activations view = all_;
    if (needs_.fp32) view.f32 += first * all_.f32_stride;
    if (needs_.int8) {
        view.a8 += first * all_.a8_stride;
        view.a8_scale += first * all_.a8_block_stride;
        view.a8_sum += first * all_.a8_block_stride;
    }
    if (needs_.scaled_sums) view.a8_scaled_sum += first * all_.a8_block_stride;
    if (needs_.half_sums) view.a8_half_sum += first * 2 * all_.a8_block_stride;
    if (needs_.bf16) view.bf16 += first * all_.bf16_stride;
    return view;
}

void Prepared::fill(const KernelTable& kernels, const float* x, int32_t index) const {
    const Activations row = from(index);
    if (needs_.fp32) std::memcpy(const_cast<float*>(row.f32), x, sizeof(float) * needs_.K);
    if (needs_.int8)
        kernels.quantise_a8(x, needs_.K, const_cast<int8_t*>(row.a8), const_cast<float*>(row.a8_scale),
                            const_cast<int32_t*>(row.a8_sum), const_cast<int32_t*>(row.a8_half_sum));
    if (needs_.scaled_sums)
        scale_sums(row.a8_scale, row.a8_sum, needs_.K / kBlock, const_cast<float*>(row.a8_scaled_sum));
    if (needs_.bf16) {
        auto* out = const_cast<uint16_t*>(row.bf16);
        kernels.to_bf16(x, needs_.K, out);
        if (needs_.K % 2 != 0) out[needs_.K] = 0;
    }
}

Prepared::Blocks Prepared::carve_blocks(Carver& carver, size_t num_floats) {
    auto* q = carver.take<int8_t>(num_floats);
    auto* scale = carver.take<float>(num_floats / kBlock);
    auto* sum = carver.take<int32_t>(num_floats / kBlock);
    return {q, scale, sum, carver.take<int32_t>(2 * num_floats / kBlock)};
}

size_t Prepared::put_bytes(size_t num_floats) {
    Carver carver(nullptr);
    carve_blocks(carver, num_floats);
    return carver.used();
}

// All blocks are quantised in one go, where they share reductions, and then brought to their tokens.
void Prepared::put(const KernelTable& kernels, const float* x, int32_t num_tokens, int32_t n, int32_t first,
                   int32_t column, uint8_t* scratch) const {
    Carver carver(scratch);
    const Blocks blocks = carve_blocks(carver, static_cast<size_t>(num_tokens) * n);
    kernels.quantise_a8(x, num_tokens * n, blocks.q, blocks.scale, blocks.sum,
                        needs_.half_sums ? blocks.half_sum : nullptr);
    size_t from = 0;
    for (int32_t t = 0; t < num_tokens; ++t) {
        const size_t token = static_cast<size_t>(first) + t;
        int8_t* q = const_cast<int8_t*>(all_.a8) + token * all_.a8_stride + column;
        size_t to = token * all_.a8_block_stride + column / kBlock;
        for (int32_t i = 0; i < n; i += kBlock, ++from, ++to, q += kBlock) {
            std::memcpy(q, blocks.q + from * kBlock, kBlock);
            const_cast<float*>(all_.a8_scale)[to] = blocks.scale[from];
            const_cast<int32_t*>(all_.a8_sum)[to] = blocks.sum[from];
            if (needs_.scaled_sums)
                scale_sums(blocks.scale + from, blocks.sum + from, 1,
                           const_cast<float*>(all_.a8_scaled_sum) + to);
            if (needs_.half_sums)
                std::memcpy(const_cast<int32_t*>(all_.a8_half_sum) + 2 * to, blocks.half_sum + 2 * from,
                            2 * sizeof(int32_t));
        }
    }
}

}  // namespace twostroke
