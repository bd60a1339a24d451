// The kernels of one ISA as plain function pointers. Filled once per ISA; called per panel or per row, never
// per element. Every function obeys the numeric contract: the bits of an output do not depend on how many
// tokens, panels or threads are computed beside it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor_type.h"

namespace twostroke {

// Rows of a weight matrix that are stored, and computed, together.
inline constexpr int32_t kPanelRows = 32;
// Values that share one activation scale, and elements of a 32-wide weight block.
inline constexpr int32_t kBlock = 32;

// The input of a linear, prepared once in the arithmetic its weights ask for; the other pointers are null.
// Strides are in elements, from one token to the next.
struct Activations {
    const float* f32 = nullptr;  // [tokens][K]
    size_t f32_stride = 0;
    const int8_t* a8 = nullptr;  // [tokens][K], symmetric per 32, |q| <= 127
    size_t a8_stride = 0;
    const float* a8_scale = nullptr;  // [tokens][K/32]
    const int32_t* a8_sum = nullptr;  // [tokens][K/32], sum of the quantised values
    const float* a8_scaled_sum =
        nullptr;  // [tokens][K/32], a8_scale * a8_sum: what a minimum is multiplied by
    size_t a8_block_stride = 0;
    const int32_t* a8_half_sum = nullptr;  // [tokens][K/16], sums of half blocks; stride 2 * a8_block_stride
    const uint16_t* bf16 = nullptr;        // [tokens][K], K rounded up to even with zeros
    size_t bf16_stride = 0;
};

// out[t * out_stride + r] = dot(panel row r, token t) for r < num_rows (<= 32), t in [0, num_tokens).
// `panel` is packed (pack.h). `scratch` is the calling thread's, at least kLinearScratchBytes, 64-aligned.
using LinearPanel = void (*)(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens,
                             float* out, size_t out_stride, int32_t num_rows, void* scratch);
inline constexpr size_t kLinearScratchBytes = 256 * 1024;

struct KernelTable {
    const char* isa;

    // linear: one entry per tensor type
    LinearPanel linear[kNumTensorTypes];
    // K % 32 == 0. Symmetric int8 per 32: scale = amax / 127, round to nearest even, zero block -> scale 0.
    // `half_sum` may be null: only types with a scale per 16 ask for it.
    void (*quantise_a8)(const float* x, int32_t K, int8_t* q, float* scale, int32_t* sum, int32_t* half_sum);
    // The one float -> bf16 conversion of this ISA (round to nearest even, quiet NaN), any n.
    void (*to_bf16)(const float* x, int32_t n, uint16_t* out);
    // Row `row` of a packed weight as float32 [K]: embedding look-up.
    void (*unpack_row)(TensorType type, const uint8_t* packed, int32_t row, int32_t K, float* out);

    // defined in rows.h, attention.h and sample.h
    const struct RowKernels* rows;
    const struct AttentionKernels* attention;
    const struct SampleKernels* sample;
};

const KernelTable& portable_kernels();
#if TWOSTROKE_X86_64
const KernelTable& avx2_kernels();
const KernelTable& avxvnni_kernels();
const KernelTable& avx512_kernels();
#elif TWOSTROKE_AARCH64
const KernelTable& neon_kernels();
const KernelTable& neon_i8mm_kernels();
#endif

}  // namespace twostroke
