// Vectors of 4 floats: the first n lanes, and the one exp and tanh of the NEON kernels. Everything has
// internal linkage: an inline function compiled with these flags must never be merged with another file's.
#pragma once

#include <arm_neon.h>

#include "kernels/rows.h"
#include "kernels/tiles.h"

namespace twostroke::neon {
namespace {

// All bits of the first n lanes, for any n.
ALWAYS_INLINE uint32x4_t first_lanes(int32_t n) {
    alignas(16) static constexpr int32_t kIndex[4] = {0, 1, 2, 3};
    return vcltq_s32(vld1q_s32(kIndex), vdupq_n_s32(n));
}

// Lanes beyond n are zero, and their memory is not touched.
ALWAYS_INLINE float32x4_t load_first(const float* x, int32_t n) {
    if (n >= 4) return vld1q_f32(x);
    alignas(16) float lanes[4] = {};
    for (int32_t i = 0; i < n; i++) lanes[i] = x[i];
    return vld1q_f32(lanes);
}

ALWAYS_INLINE void store_first(float* to, float32x4_t v, int32_t n) {
    if (n >= 4) return vst1q_f32(to, v);
    alignas(16) float lanes[4];
    vst1q_f32(lanes, v);
    for (int32_t i = 0; i < n; i++) to[i] = lanes[i];
}

// 4 floats from f16.
ALWAYS_INLINE float32x4_t load_halves(const uint8_t* halves) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(halves)));
}

// The one float -> bf16 conversion of this ISA: the float that the rounded bits stand for.
ALWAYS_INLINE float32x4_t round_to_bf16(float32x4_t x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    // As integers: a comparison of floats would read denormals as the control word says.
    const uint32x4_t is_nan = vcgtq_u32(vandq_u32(bits, vdupq_n_u32(0x7fffffff)), vdupq_n_u32(0x7f800000));
    return vreinterpretq_f32_u32(vandq_u32(vbslq_u32(is_nan, quiet, rounded), vdupq_n_u32(0xffff0000)));
}

// The upper 16 bits of each lane.
ALWAYS_INLINE uint16x4_t upper_halves(float32x4_t v) { return vshrn_n_u32(vreinterpretq_u32_f32(v), 16); }

// The floats of 4 bf16.
ALWAYS_INLINE float32x4_t widen_bf16(uint16x4_t bits) { return vreinterpretq_f32_u32(vshll_n_u16(bits, 16)); }

// The sum of 16 lanes: halves onto halves, one order everywhere.
ALWAYS_INLINE float sum_lanes(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d) {
    const float32x4_t four = vaddq_f32(vaddq_f32(a, c), vaddq_f32(b, d));
    return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}

// Below -87.3 zero, above 88.3 infinite; NaN stays: its exponent converts to 0.
inline float32x4_t exp_of(float32x4_t x) {
    const float32x4_t n = vrndnq_f32(vmulq_f32(x, vdupq_n_f32(kLog2E)));
    float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(kLn2High));
    r = vfmsq_f32(r, n, vdupq_n_f32(kLn2Low));
    float32x4_t poly = vfmaq_f32(vdupq_n_f32(kExp5), r, vdupq_n_f32(kExp6));
    poly = vfmaq_f32(vdupq_n_f32(kExp4), poly, r);
    poly = vfmaq_f32(vdupq_n_f32(kExp3), poly, r);
    poly = vfmaq_f32(vdupq_n_f32(kExp2), poly, r);
    const float32x4_t tail = vfmaq_f32(r, vmulq_f32(r, r), poly);
    const int32x4_t y = vreinterpretq_s32_f32(vaddq_f32(tail, vdupq_n_f32(1.0f)));
    const int32x4_t scaled = vaddq_s32(y, vshlq_n_s32(vcvtq_s32_f32(n), 23));
    const uint32x4_t is_low = vcltq_f32(x, vdupq_n_f32(-87.3f));
    const uint32x4_t is_high = vcgtq_f32(x, vdupq_n_f32(88.3f));
    const uint32x4_t kept = vbicq_u32(vreinterpretq_u32_s32(scaled), is_low);
    return vbslq_f32(is_high, vdupq_n_f32(__builtin_inff()), vreinterpretq_f32_u32(kept));
}

inline float32x4_t tanh_of(float32x4_t y) {
    const float32x4_t z = vmulq_f32(y, y);
    float32x4_t poly = vfmaq_f32(vdupq_n_f32(kTanh9), z, vdupq_n_f32(kTanh11));
    poly = vfmaq_f32(vdupq_n_f32(kTanh7), poly, z);
    poly = vfmaq_f32(vdupq_n_f32(kTanh5), poly, z);
    poly = vfmaq_f32(vdupq_n_f32(kTanh3), poly, z);
    const float32x4_t series = vfmaq_f32(y, vmulq_f32(y, z), poly);
    const float32x4_t one = vdupq_n_f32(1.0f);
    const float32x4_t size = vabsq_f32(y);
    const float32x4_t e = exp_of(vmulq_f32(size, vdupq_n_f32(-2.0f)));
    const float32x4_t large = vdivq_f32(vsubq_f32(one, e), vaddq_f32(one, e));
    const float32x4_t is_signed = vbslq_f32(vdupq_n_u32(0x80000000), y, large);
    return vbslq_f32(vcltq_f32(size, vdupq_n_f32(kTanhSeries)), series, is_signed);
}

}  // namespace
}  // namespace twostroke::neon
