// Tensor types as stored in files, with the arithmetic each one is computed in.
#pragma once

#include <cstdint>

namespace twostroke {

enum class TensorType : int32_t { F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K };
inline constexpr int32_t kNumTensorTypes = 11;

// One arithmetic per tensor, the same in every phase (rule 1 of the numeric contract). It says which part of
// Activations a linear reads: f32, bf16 or a8.
enum class Arithmetic : int32_t { fp32, bf16, int8 };

Arithmetic arithmetic_of(TensorType type);
// An int8 type whose offset is scaled per 16 columns: its linear reads the sums of half blocks too.
bool needs_half_sums(TensorType type);
// An int8 type with minimums: its linear reads the scaled sums too.
bool needs_scaled_sums(TensorType type);

// Elements of a row that are stored together: 1, 32 or 256. A row has a multiple of it.
int32_t block_elements(TensorType type);
// Bytes of one such block in a file.
int32_t block_bytes(TensorType type);

// The spelling of GGUF ("Q4_K"); an unknown name gives false.
const char* tensor_type_name(TensorType type);
bool tensor_type_from_name(const char* name, TensorType* type);

}  // namespace twostroke
