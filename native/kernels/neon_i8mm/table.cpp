// i8mm is NEON with a better product of bytes: every other entry of the table is NEON's own.
#include "kernels/table.h"

#include "kernels/neon_i8mm/linear_entries.h"

namespace twostroke {

const KernelTable& neon_i8mm_kernels() {
    static const KernelTable table = [] {
        KernelTable filled = neon_kernels();
        filled.isa = "neon_i8mm";
        const auto entry = [&filled](TensorType type) -> LinearPanel& {
            return filled.linear[static_cast<int32_t>(type)];
        };
        entry(TensorType::Q8_0) = neon_i8mm::linear_q8_0;
        entry(TensorType::Q4_0) = neon_i8mm::linear_q4_0;
        entry(TensorType::Q4_1) = neon_i8mm::linear_q4_1;
        entry(TensorType::Q5_0) = neon_i8mm::linear_q5_0;
        entry(TensorType::Q5_1) = neon_i8mm::linear_q5_1;
        entry(TensorType::Q4_K) = neon_i8mm::linear_q4_k;
        entry(TensorType::Q5_K) = neon_i8mm::linear_q5_k;
        entry(TensorType::Q6_K) = neon_i8mm::linear_q6_k;
        return filled;
    }();
    return table;
}

}  // namespace twostroke
