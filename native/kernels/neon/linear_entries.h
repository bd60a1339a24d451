// The functions of this folder that stand in the kernel table.
#pragma once

#include "kernels/table.h"

namespace twostroke::neon {

// The type of LinearPanel, as a declaration.
using LinearFunction = void(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens,
                            float* out, size_t out_stride, int32_t num_rows, void* scratch);

LinearFunction linear_f32, linear_f16, linear_bf16, linear_q8_0, linear_q4_0, linear_q4_1, linear_q5_0,
    linear_q5_1, linear_q4_k, linear_q5_k, linear_q6_k;

void quantise_a8(const float* x, int32_t K, int8_t* q, float* scale, int32_t* sum, int32_t* half_sum);
void to_bf16(const float* x, int32_t n, uint16_t* out);

}  // namespace twostroke::neon
