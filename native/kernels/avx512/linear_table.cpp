// Fills the entries of linear. Types without a kernel of this ISA keep the portable one.
#include "kernels/avx512/linear_entries.h"
#include "kernels/linear.h"
#include "pack.h"

namespace twostroke {

void avx512_fill_linear(KernelTable& table) {
    portable_fill_linear(table);
    table.linear[static_cast<int32_t>(TensorType::Q8_0)] = avx512::linear_q8_0;
    table.linear[static_cast<int32_t>(TensorType::Q4_0)] = avx512::linear_q4_0;
    table.linear[static_cast<int32_t>(TensorType::Q4_1)] = avx512::linear_q4_1;
    table.quantise_a8 = avx512::quantise_a8;
    table.to_bf16 = avx512::to_bf16;
    table.unpack_row = unpack_row;
}

}  // namespace twostroke
