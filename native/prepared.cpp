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

}  // namespace twostroke
