#include "kernels/rows.h"

#include "kernels/neon/lanes.h"

namespace twostroke::neon {
namespace {

// Squares of up to 32 elements: lanes i and i + 16 first, then halves onto halves.
float square_partial(const float* x, int32_t n) {
    float32x4_t sums[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        const float32x4_t low = load_first(x + 4 * i, n - 4 * i);
        const float32x4_t high = load_first(x + 16 + 4 * i, n - 16 - 4 * i);
        sums[i] = vfmaq_f32(vmulq_f32(low, low), high, high);
    }
    return sum_lanes(sums[0], sums[1], sums[2], sums[3]);
}

// out[i] = op(a[i], b[i]) for any n.
template <class Op>
ALWAYS_INLINE void map(const float* a, const float* b, int32_t n, float* out, Op op) {
    int32_t i = 0;
    for (; i + 4 <= n; i += 4) vst1q_f32(out + i, op(vld1q_f32(a + i), vld1q_f32(b + i)));
    if (i < n) store_first(out + i, op(load_first(a + i, n - i), load_first(b + i, n - i)), n - i);
}

template <class Op>
ALWAYS_INLINE void map_runs(const float* a, const float* b, int32_t n, float* out, const Runs& runs, Op op) {
    for (int32_t run = 0; run < runs.count; ++run)
        map(a + run * runs.a_stride, b + run * runs.b_stride, n, out + run * runs.out_stride, op);
}

// Of an op with one operand, which is passed as both.
Runs both(const Runs& runs) { return {runs.count, runs.a_stride, runs.a_stride, runs.out_stride}; }

void rmsnorm(const float* x, const float* weight, int32_t n, float eps, float* out) {
    float sum = 0.0f;
    for (int32_t i = 0; i < n; i += kBlock) sum += square_partial(x + i, n - i < kBlock ? n - i : kBlock);
    const float mean = sum / static_cast<float>(n);
    const float inverse = 1.0f / __builtin_sqrtf(mean + eps);
    map(x, weight, n, out,
        [=](float32x4_t v, float32x4_t w) { return vmulq_f32(vmulq_n_f32(v, inverse), w); });
}

void rope_halves(const float* x, const float* cos, const float* sin, int32_t half, float* out) {
    for (int32_t i = 0; i < half; i += 4) {
        const int32_t left = half - i;
        const float32x4_t a = load_first(x + i, left), b = load_first(x + half + i, left);
        const float32x4_t c = load_first(cos + i, left), s = load_first(sin + i, left);
        store_first(out + i, vfmaq_f32(vnegq_f32(vmulq_f32(b, s)), a, c), left);
        store_first(out + half + i, vfmaq_f32(vmulq_f32(a, s), b, c), left);
    }
}

void rope_pairs(const float* x, const float* cos, const float* sin, int32_t half, float* out) {
    alignas(16) static constexpr float kSigns[4] = {-1.0f, 1.0f, -1.0f, 1.0f};
    const float32x4_t signs = vld1q_f32(kSigns);
    for (int32_t i = 0; i < half; i += 2) {
        const int32_t left = half - i;
        const float32x4_t v = load_first(x + 2 * i, 2 * left);
        const float32x4_t c = load_first(cos + i, left < 2 ? left : 2);
        const float32x4_t s = load_first(sin + i, left < 2 ? left : 2);
        const float32x4_t crossed = vmulq_f32(vrev64q_f32(v), vzip1q_f32(s, s));  // (b, a) * sin
        store_first(out + 2 * i, vfmaq_f32(vmulq_f32(crossed, signs), v, vzip1q_f32(c, c)), 2 * left);
    }
}

void rope(const float* x, const float* cos, const float* sin, int32_t head_dim, int32_t rotary_dim,
          RopeStyle style, float* out) {
    if (style == RopeStyle::halves)
        rope_halves(x, cos, sin, rotary_dim / 2, out);
    else
        rope_pairs(x, cos, sin, rotary_dim / 2, out);
    for (int32_t i = rotary_dim; i < head_dim; ++i) out[i] = x[i];
}

void glu(Activation activation, const float* gate, const float* up, int32_t n, float* out, const Runs& runs) {
    const float32x4_t one = vdupq_n_f32(1.0f);
    if (activation == Activation::silu) {
        map_runs(gate, up, n, out, runs, [=](float32x4_t g, float32x4_t u) {
            const float32x4_t e = exp_of(vnegq_f32(g));
            return vmulq_f32(vdivq_f32(g, vaddq_f32(one, e)), u);
        });
    } else {
        map_runs(gate, up, n, out, runs, [=](float32x4_t g, float32x4_t u) {
            const float32x4_t cube = vmulq_f32(vmulq_f32(g, g), g);
            const float32x4_t z = vfmaq_f32(g, cube, vdupq_n_f32(kGeluCube));
            const float32x4_t e = exp_of(vmulq_f32(z, vdupq_n_f32(-2.0f * kGeluScale)));
            return vmulq_f32(vdivq_f32(g, vaddq_f32(one, e)), u);
        });
    }
}

void add(const float* a, const float* b, int32_t n, float* out, const Runs& runs) {
    map_runs(a, b, n, out, runs, [](float32x4_t x, float32x4_t y) { return vaddq_f32(x, y); });
}

void scale(const float* x, int32_t n, float factor, float* out, const Runs& runs) {
    map_runs(x, x, n, out, both(runs), [=](float32x4_t v, float32x4_t) { return vmulq_n_f32(v, factor); });
}

void softcap(const float* x, int32_t n, float cap, float* out, const Runs& runs) {
    const float32x4_t limit = vdupq_n_f32(cap);
    map_runs(x, x, n, out, both(runs),
             [=](float32x4_t v, float32x4_t) { return vmulq_f32(limit, tanh_of(vdivq_f32(v, limit))); });
}

constexpr RowKernels kRows = {rmsnorm, rope, glu, add, scale, softcap};

}  // namespace

void fill_rows(KernelTable& table) { table.rows = &kRows; }

}  // namespace twostroke::neon
