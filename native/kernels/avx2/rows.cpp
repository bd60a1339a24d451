#include "kernels/rows.h"

#include "kernels/avx2/lanes.h"

namespace twostroke::avx2 {
namespace {

// Squares of up to 32 elements: lanes i and i + 16 first, then halves onto halves.
float square_partial(const float* x, int32_t n) {
    const __m256 a = load_first(x, n), b = load_first(x + 8, n - 8);
    const __m256 c = load_first(x + 16, n - 16), d = load_first(x + 24, n - 24);
    return sum_lanes(_mm256_fmadd_ps(c, c, _mm256_mul_ps(a, a)), _mm256_fmadd_ps(d, d, _mm256_mul_ps(b, b)));
}

// out[i] = op(a[i], b[i]) for any n.
template <class Op>
ALWAYS_INLINE void map(const float* a, const float* b, int32_t n, float* out, Op op) {
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, op(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
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
    const __m256 inverse = _mm256_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps))));
    map(x, weight, n, out, [=](__m256 v, __m256 w) { return _mm256_mul_ps(_mm256_mul_ps(v, inverse), w); });
}

void rope_halves(const float* x, const float* cos, const float* sin, int32_t half, float* out) {
    for (int32_t i = 0; i < half; i += 8) {
        const int32_t left = half - i;
        const __m256 a = load_first(x + i, left), b = load_first(x + half + i, left);
        const __m256 c = load_first(cos + i, left), s = load_first(sin + i, left);
        store_first(out + i, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)), left);
        store_first(out + half + i, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)), left);
    }
}

void rope_pairs(const float* x, const float* cos, const float* sin, int32_t half, float* out) {
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    for (int32_t i = 0; i < half; i += 4) {
        const int32_t left = half - i < 4 ? half - i : 4;
        const __m256 v = load_first(x + 2 * i, 2 * left);
        const __m256 c = _mm256_permutevar8x32_ps(_mm256_maskload_ps(cos + i, first_lanes(left)), twice);
        const __m256 s = _mm256_permutevar8x32_ps(_mm256_maskload_ps(sin + i, first_lanes(left)), twice);
        const __m256 crossed = _mm256_mul_ps(_mm256_permute_ps(v, 0xB1), s);  // (b, a) * sin
        store_first(out + 2 * i, _mm256_fmaddsub_ps(v, c, crossed), 2 * left);
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
    const __m256 one = _mm256_set1_ps(1.0f);
    if (activation == Activation::silu) {
        map_runs(gate, up, n, out, runs, [=](__m256 g, __m256 u) {
            const __m256 e = exp_of(_mm256_sub_ps(_mm256_setzero_ps(), g));
            return _mm256_mul_ps(_mm256_div_ps(g, _mm256_add_ps(one, e)), u);
        });
    } else {
        map_runs(gate, up, n, out, runs, [=](__m256 g, __m256 u) {
            const __m256 cube = _mm256_mul_ps(_mm256_mul_ps(g, g), g);
            const __m256 z = _mm256_fmadd_ps(cube, _mm256_set1_ps(kGeluCube), g);
            const __m256 e = exp_of(_mm256_mul_ps(z, _mm256_set1_ps(-2.0f * kGeluScale)));
            return _mm256_mul_ps(_mm256_div_ps(g, _mm256_add_ps(one, e)), u);
        });
    }
}

void add(const float* a, const float* b, int32_t n, float* out, const Runs& runs) {
    map_runs(a, b, n, out, runs, [](__m256 x, __m256 y) { return _mm256_add_ps(x, y); });
}

void scale(const float* x, int32_t n, float factor, float* out, const Runs& runs) {
    map_runs(x, x, n, out, both(runs),
             [=](__m256 v, __m256) { return _mm256_mul_ps(v, _mm256_set1_ps(factor)); });
}

void softcap(const float* x, int32_t n, float cap, float* out, const Runs& runs) {
    const __m256 limit = _mm256_set1_ps(cap);
    map_runs(x, x, n, out, both(runs),
             [=](__m256 v, __m256) { return _mm256_mul_ps(limit, tanh_of(_mm256_div_ps(v, limit))); });
}

constexpr RowKernels kRows = {rmsnorm, rope, glu, add, scale, softcap};

}  // namespace

void fill_rows(KernelTable& table) { table.rows = &kRows; }

}  // namespace twostroke::avx2
