// Row ops: runs of floats in, runs out. `out` may be `x` (or either input). Every element's arithmetic is
// the same in vectors and tails, so the bits do not depend on how a row is cut, except where a whole run is
// reduced.
#pragma once

#include <cstdint>

#include "table.h"

namespace twostroke {

enum class RopeStyle : int32_t { halves, pairs };     // order of program/op.py
enum class Activation : int32_t { silu, gelu_tanh };  // order of program/op.py

// An element-wise op is done `count` times; the operands of the next run lie so many floats further.
struct Runs {
    int32_t count = 1;
    size_t a_stride = 0;
    size_t b_stride = 0;
    size_t out_stride = 0;
};

struct RowKernels {
    // out = x / sqrt(mean(x^2) + eps) * weight. Squares are added in partials of 32, partials in index order.
    void (*rmsnorm)(const float* x, const float* weight, int32_t n, float eps, float* out);
    // One head: turns the first rotary_dim elements; cos and sin are [rotary_dim / 2].
    void (*rope)(const float* x, const float* cos, const float* sin, int32_t head_dim, int32_t rotary_dim,
                 RopeStyle style, float* out);
    // Element-wise, on runs of n. out = activation(gate) * up
    void (*glu)(Activation activation, const float* gate, const float* up, int32_t n, float* out,
                const Runs& runs);
    void (*add)(const float* a, const float* b, int32_t n, float* out, const Runs& runs);
    void (*scale)(const float* x, int32_t n, float factor, float* out, const Runs& runs);
    // out = cap * tanh(x / cap)
    void (*softcap)(const float* x, int32_t n, float cap, float* out, const Runs& runs);
};

// Coefficients of exp(r) = 1 + r + r^2 * (kExp2 + r * (kExp3 + ...)) on |r| <= ln(2) / 2; relative error 3e-9
// before rounding. ln(2) in two parts: the first has few bits, so n * kLn2High is exact.
inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440e-4f;
inline constexpr float kExp2 = 4.999999343e-01f;
inline constexpr float kExp3 = 1.666652040e-01f;
inline constexpr float kExp4 = 4.166839080e-02f;
inline constexpr float kExp5 = 8.368745184e-03f;
inline constexpr float kExp6 = 1.381453936e-03f;
// tanh(y): its series below this, where 1 - exp(-2y) would cancel.
inline constexpr float kTanhSeries = 0.3f;
inline constexpr float kTanh3 = -1.0f / 3;
inline constexpr float kTanh5 = 2.0f / 15;
inline constexpr float kTanh7 = -17.0f / 315;
inline constexpr float kTanh9 = 62.0f / 2835;
inline constexpr float kTanh11 = -1382.0f / 155925;
// gelu_tanh(g) = g * sigmoid(2z), z = kGeluScale * (g + kGeluCube * g^3)
inline constexpr float kGeluScale = 0.797884561f;
inline constexpr float kGeluCube = 0.044715f;

void portable_fill_rows(KernelTable& table);
#if TWOSTROKE_X86_64
namespace avx2 {
void fill_rows(KernelTable& table);
}
namespace avx512 {
void fill_rows(KernelTable& table);
}
#elif TWOSTROKE_AARCH64
namespace neon {
void fill_rows(KernelTable& table);
}
#endif

}  // namespace twostroke
