// AVX-VNNI is AVX2 with a better product of bytes: every other entry of the table is AVX2's own.
#include "kernels/table.h"

#include "kernels/avxvnni/linear_entries.h"

namespace twostroke {

const KernelTable& avxvnni_kernels() {
    static const KernelTable table = [] {
        KernelTable filled = avx2_kernels();
        filled.isa = "avxvnni";
        const auto entry = [&filled](TensorType type) -> LinearPanel& {
            return filled.linear[static_cast<int32_t>(type)];
        };
        entry(TensorType::Q8_0) = avxvnni::linear_q8_0;
        entry(TensorType::Q4_0) = avxvnni::linear_q4_0;
        entry(TensorType::Q4_1) = avxvnni::linear_q4_1;
        entry(TensorType::Q5_0) = avxvnni::linear_q5_0;
        entry(TensorType::Q5_1) = avxvnni::linear_q5_1;
        entry(TensorType::Q4_K) = avxvnni::linear_q4_k;
        entry(TensorType::Q5_K) = avxvnni::linear_q5_k;
        entry(TensorType::Q6_K) = avxvnni::linear_q6_k;
        return filled;
    }();
    return table;
}

}  // namespace twostroke
