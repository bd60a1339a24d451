// Weights as a file holds them, random in every bit but for their scales, and packed.
#pragma once

#include <cstdint>
#include <vector>

#include "checks.h"
#include "pack.h"

namespace twostroke::checks {

inline constexpr TensorType kTypes[kNumTensorTypes] = {TensorType::F32,  TensorType::F16,  TensorType::BF16,
                                                       TensorType::Q8_0, TensorType::Q4_0, TensorType::Q4_1,
                                                       TensorType::Q5_0, TensorType::Q5_1, TensorType::Q4_K,
                                                       TensorType::Q5_K, TensorType::Q6_K};

// The matrix [rows][cols] as in the file.
std::vector<uint8_t> make_source(TensorType type, int32_t rows, int32_t cols, Random& random);

// One packed panel of `rows` <= 32 rows.
std::vector<uint8_t> make_panel(TensorType type, int32_t rows, int32_t cols, Random& random);

}  // namespace twostroke::checks
