// A program as the native reader holds it: values with a place in memory, instrs with plain attributes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/rows.h"
#include "weight.h"

namespace twostroke {

// Spelled as in program/op.py; the comment lists the integers | floats that `add` takes.
enum class Op : int32_t {
    embed,     // |
    rmsnorm,   // group | eps
    linear,    // |              (one vector per weight: its bias, or empty)
    rope,      // num_heads, head_dim, rotary_dim, style, table |
    kv_write,  // group, layer, num_kv_heads, head_dim |
    attend,    // group, layer, num_heads, num_kv_heads, head_dim, window (0: none) | scale, softcap (0: none)
    glu,       // activation |
    add,       // |
    scale,     // | factor
    softcap,   // | cap
    select,    // |
    logits,    // |
};
inline constexpr int32_t kNumOps = 12;
const char* op_name(Op op);
bool op_from_name(const std::string& name, Op* op);

enum class Axis : int32_t { tokens, selected };

// Where a value lives: at an offset in the arena, nowhere outside its group, or in the logits buffer of the
// step.
inline constexpr int64_t kLocal = -1;
inline constexpr int64_t kInLogits = -2;

struct Value {
    int32_t width;
    Axis axis;
    int64_t offset;                 // floats per token before it in the arena, or kLocal or kInLogits
    int32_t stride;                 // floats from one token to the next
    bool is_only_selected = false;  // nothing but select reads it: other tokens' rows need not be computed
};

// Attributes are those of program/op.py; each op uses its own.
struct Instr {
    Op op;
    std::string name;
    std::vector<int32_t> inputs;
    std::vector<int32_t> outputs;
    std::vector<const Weight*> weights;
    std::vector<std::vector<float>> vectors;  // norm weight or biases

    int32_t norm_group = 0;
    float eps = 0;
    int32_t num_heads = 0;
    int32_t num_kv_heads = 0;
    int32_t head_dim = 0;
    int32_t rotary_dim = 0;
    RopeStyle style = RopeStyle::halves;
    int32_t table = 0;
    int32_t group = 0;
    int32_t layer = 0;
    int32_t window = 0;
    float scale = 0;
    float softcap = 0;
    Activation activation = Activation::silu;
    float factor = 0;
    float cap = 0;
};

struct RopeTable {
    std::vector<double> inv_freq;  // [rotary_dim / 2]
    double magnitude;
};

}  // namespace twostroke
