#include "kernels/rows.h"

#include "exp.h"

namespace twostroke::avx512 {
namespace {

__m512 square(const float* x, int32_t n) {
    const __m512 v = _mm512_maskz_loadu_ps(first_lanes(n), x);
    return _mm512_mul_ps(v, v);
}

// Squares of up to 32 elements: lanes i and i + 16 first, then halves onto halves.
float square_partial(const float* x, int32_t n) {
    __m512 lanes = square(x, n);
    if (n > 16) {
        const __m512 v = _mm512_maskz_loadu_ps(first_lanes(n - 16), x + 16);
        lanes = _mm512_fmadd_ps(v, v, lanes);
    }
    return sum_lanes(lanes);
}

// out[i] = op(a[i], b[i]) for any n.
template <class Op>
void map(const float* a, const float* b, int32_t n, float* out, Op op) {
    int32_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(out + i, op(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i)));
    if (i == n) return;
    const __mmask16 lanes = first_lanes(n - i);
    const __m512 y = op(_mm512_maskz_loadu_ps(lanes, a + i), _mm512_maskz_loadu_ps(lanes, b + i));
    _mm512_mask_storeu_ps(out + i, lanes, y);
}

template <class Op>
void map_runs(const float* a, const float* b, int32_t n, float* out, const Runs& runs, Op op) {
    for (int32_t run = 0; run < runs.count; ++run)
        map(a + run * runs.a_stride, b + run * runs.b_stride, n, out + run * runs.out_stride, op);
}

// Of an op with one operand, which is passed as both.
Runs both(const Runs& runs) { return {runs.count, runs.a_stride, runs.a_stride, runs.out_stride}; }

void rmsnorm(const float* x, const float* weight, int32_t n, float eps, float* out) {
    float sum = 0.0f;
    for (int32_t i = 0; i < n; i += kBlock) sum += square_partial(x + i, n - i < kBlock ? n - i : kBlock);
    const float mean = sum / static_cast<float>(n);
    const __m512 inverse = _mm512_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps))));
    map(x, weight, n, out, [=](__m512 v, __m512 w) { return _mm512_mul_ps(_mm512_mul_ps(v, inverse), w); });
}

void rope_halves(const float* x, const float* cos, const float* sin, int32_t half, float* out) {
    for (int32_t i = 0; i < half; i += 16) {
        const __mmask16 lanes = first_lanes(half - i);
        const __m512 a = _mm512_maskz_loadu_ps(lanes, x + i);
        const __m512 b = _mm512_maskz_loadu_ps(lanes, x + half + i);
        const __m512 c = _mm512_maskz_loadu_ps(lanes, cos + i);
        const __m512 s = _mm512_maskz_loadu_ps(lanes, sin + i);
        _mm512_mask_storeu_ps(out + i, lanes, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
        _mm512_mask_storeu_ps(out + half + i, lanes, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
    }
}

void rope_pairs(const float* x, const float* cos, const float* sin, int32_t half, float* out) {
    const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    for (int32_t i = 0; i < half; i += 8) {
        const __mmask16 lanes = first_lanes(2 * (half - i));
        const __mmask16 angles = first_lanes(half - i < 8 ? half - i : 8);
        const __m512 v = _mm512_maskz_loadu_ps(lanes, x + 2 * i);
        const __m512 c = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(angles, cos + i));
        const __m512 s = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(angles, sin + i));
        const __m512 crossed = _mm512_mul_ps(_mm512_permute_ps(v, 0xB1), s);  // (b, a) * sin
        _mm512_mask_storeu_ps(out + 2 * i, lanes, _mm512_fmaddsub_ps(v, c, crossed));
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
    const __m512 one = _mm512_set1_ps(1.0f);
    if (activation == Activation::silu) {
        map_runs(gate, up, n, out, runs, [=](__m512 g, __m512 u) {
            const __m512 e = exp_of(_mm512_sub_ps(_mm512_setzero_ps(), g));
            return _mm512_mul_ps(_mm512_div_ps(g, _mm512_add_ps(one, e)), u);
        });
    } else {
        map_runs(gate, up, n, out, runs, [=](__m512 g, __m512 u) {
            const __m512 cube = _mm512_mul_ps(_mm512_mul_ps(g, g), g);
            const __m512 z = _mm512_fmadd_ps(cube, _mm512_set1_ps(kGeluCube), g);
            const __m512 e = exp_of(_mm512_mul_ps(z, _mm512_set1_ps(-2.0f * kGeluScale)));
            return _mm512_mul_ps(_mm512_div_ps(g, _mm512_add_ps(one, e)), u);
        });
    }
}

void add(const float* a, const float* b, int32_t n, float* out, const Runs& runs) {
    map_runs(a, b, n, out, runs, [](__m512 x, __m512 y) { return _mm512_add_ps(x, y); });
}

void scale(const float* x, int32_t n, float factor, float* out, const Runs& runs) {
    map_runs(x, x, n, out, both(runs),
             [=](__m512 v, __m512) { return _mm512_mul_ps(v, _mm512_set1_ps(factor)); });
}

void softcap(const float* x, int32_t n, float cap, float* out, const Runs& runs) {
    const __m512 limit = _mm512_set1_ps(cap);
    map_runs(x, x, n, out, both(runs),
             [=](__m512 v, __m512) { return _mm512_mul_ps(limit, tanh_of(_mm512_div_ps(v, limit))); });
}

constexpr RowKernels kRows = {rmsnorm, rope, glu, add, scale, softcap};

}  // namespace

void fill_rows(KernelTable& table) { table.rows = &kRows; }

}  // namespace twostroke::avx512
