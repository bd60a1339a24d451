#include "kernels/rows.h"

#include <cstring>

#include "exp.h"

namespace twostroke {
namespace {

// Squares of up to 32 elements: lanes i and i + 16 first, then halves onto halves.
float square_partial(const float* x, int32_t n) {
    float lanes[16] = {};
    for (int32_t i = 0; i < n && i < 16; ++i) lanes[i] = x[i] * x[i];
    for (int32_t i = 16; i < n; ++i) lanes[i - 16] += x[i] * x[i];
    for (int32_t half = 8; half > 0; half /= 2)
        for (int32_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    return lanes[0];
}

void rmsnorm(const float* x, const float* weight, int32_t n, float eps, float* out) {
    float sum = 0.0f;
    for (int32_t i = 0; i < n; i += kBlock) sum += square_partial(x + i, n - i < kBlock ? n - i : kBlock);
    const float inverse = 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
    for (int32_t i = 0; i < n; ++i) out[i] = x[i] * inverse * weight[i];
}

void rope(const float* x, const float* cos, const float* sin, int32_t head_dim, int32_t rotary_dim,
          RopeStyle style, float* out) {
    const int32_t half = rotary_dim / 2;
    const int32_t step = style == RopeStyle::halves ? 1 : 2;
    const int32_t partner = style == RopeStyle::halves ? half : 1;
    for (int32_t i = 0; i < half; ++i) {
        const float a = x[i * step];
        const float b = x[i * step + partner];
        out[i * step] = a * cos[i] - b * sin[i];
        out[i * step + partner] = b * cos[i] + a * sin[i];
    }
    if (out != x) std::memcpy(out + rotary_dim, x + rotary_dim, sizeof(float) * (head_dim - rotary_dim));
}

// out[i] = op(a[i], b[i]) in every run.
template <class Op>
void map_runs(const float* a, const float* b, int32_t n, float* out, const Runs& runs, Op op) {
    for (int32_t run = 0; run < runs.count; ++run) {
        for (int32_t i = 0; i < n; ++i) out[i] = op(a[i], b[i]);
        a += runs.a_stride;
        b += runs.b_stride;
        out += runs.out_stride;
    }
}

// Of an op with one operand, which is passed as both.
Runs both(const Runs& runs) { return {runs.count, runs.a_stride, runs.a_stride, runs.out_stride}; }

void glu(Activation activation, const float* gate, const float* up, int32_t n, float* out, const Runs& runs) {
    if (activation == Activation::silu) {
        map_runs(gate, up, n, out, runs, [](float g, float u) { return g / (1.0f + exp_of(-g)) * u; });
    } else {
        map_runs(gate, up, n, out, runs, [](float g, float u) {
            const float z = kGeluScale * (g + kGeluCube * g * g * g);
            return g / (1.0f + exp_of(-2.0f * z)) * u;
        });
    }
}

void add(const float* a, const float* b, int32_t n, float* out, const Runs& runs) {
    map_runs(a, b, n, out, runs, [](float x, float y) { return x + y; });
}

void scale(const float* x, int32_t n, float factor, float* out, const Runs& runs) {
    map_runs(x, x, n, out, both(runs), [=](float v, float) { return v * factor; });
}

void softcap(const float* x, int32_t n, float cap, float* out, const Runs& runs) {
    map_runs(x, x, n, out, both(runs), [=](float v, float) { return cap * tanh_of(v / cap); });
}

constexpr RowKernels kRows = {rmsnorm, rope, glu, add, scale, softcap};

}  // namespace

void portable_fill_rows(KernelTable& table) { table.rows = &kRows; }

}  // namespace twostroke
