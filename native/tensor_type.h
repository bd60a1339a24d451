// Tensor types as stored in files, with the arithmetic each one is computed in.
#pragma once

#include <cstdint>

namespace twostroke {

enum class TensorType : int32_t { F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K };
inline constexpr int32_t kNumTensorTypes = 11;

// One arithmetic per tensor, the same in every phase (rule 1 of the numeric contract).
enum class Arithmetic : int32_t { fp32, bf16, int8 };

}  // namespace twostroke
