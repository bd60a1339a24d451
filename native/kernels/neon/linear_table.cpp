// Fills the entries of linear.
#include "kernels/linear.h"
#include "kernels/neon/linear_entries.h"
#include "pack.h"

namespace twostroke::neon {

void fill_linear(KernelTable& table) {
    const auto entry = [&table](TensorType type) -> LinearPanel& {
        return table.linear[static_cast<int32_t>(type)];
    };
    entry(TensorType::F32) = linear_f32;
    entry(TensorType::F16) = linear_f16;
    entry(TensorType::BF16) = linear_bf16;
    entry(TensorType::Q8_0) = linear_q8_0;
    entry(TensorType::Q4_0) = linear_q4_0;
    entry(TensorType::Q4_1) = linear_q4_1;
    entry(TensorType::Q5_0) = linear_q5_0;
    entry(TensorType::Q5_1) = linear_q5_1;
    entry(TensorType::Q4_K) = linear_q4_k;
    entry(TensorType::Q5_K) = linear_q5_k;
    entry(TensorType::Q6_K) = linear_q6_k;
    table.quantise_a8 = quantise_a8;
    table.to_bf16 = to_bf16;
    table.unpack_row = unpack_row;
}

}  // namespace twostroke::neon
