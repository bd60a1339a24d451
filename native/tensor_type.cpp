#include "tensor_type.h"

#include <cstring>

namespace twostroke {
namespace {

struct TypeFacts {
    const char* name;
    Arithmetic arithmetic;
    int32_t block_elements;
    int32_t block_bytes;
};

constexpr TypeFacts kFacts[kNumTensorTypes] = {
    {"F32", Arithmetic::fp32, 1, 4},      {"F16", Arithmetic::fp32, 1, 2},
    {"BF16", Arithmetic::bf16, 1, 2},     {"Q8_0", Arithmetic::int8, 32, 34},
    {"Q4_0", Arithmetic::int8, 32, 18},   {"Q4_1", Arithmetic::int8, 32, 20},
    {"Q5_0", Arithmetic::int8, 32, 22},   {"Q5_1", Arithmetic::int8, 32, 24},
    {"Q4_K", Arithmetic::int8, 256, 144}, {"Q5_K", Arithmetic::int8, 256, 176},
    {"Q6_K", Arithmetic::int8, 256, 210},
};

const TypeFacts& facts(TensorType type) { return kFacts[static_cast<int32_t>(type)]; }

}  // namespace

Arithmetic arithmetic_of(TensorType type) { return facts(type).arithmetic; }
bool needs_half_sums(TensorType type) { return type == TensorType::Q6_K; }
bool needs_scaled_sums(TensorType type) {
    return type == TensorType::Q4_1 || type == TensorType::Q5_1 || type == TensorType::Q4_K ||
           type == TensorType::Q5_K;
}
int32_t block_elements(TensorType type) { return facts(type).block_elements; }
int32_t block_bytes(TensorType type) { return facts(type).block_bytes; }
const char* tensor_type_name(TensorType type) { return facts(type).name; }

bool tensor_type_from_name(const char* name, TensorType* type) {
    for (int32_t i = 0; i < kNumTensorTypes; i++) {
        if (std::strcmp(name, kFacts[i].name) == 0) {
            *type = static_cast<TensorType>(i);
            return true;
        }
    }
    return false;
}

}  // namespace twostroke
