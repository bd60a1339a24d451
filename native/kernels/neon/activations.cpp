// Preparing the input of a linear: int8 per 32, and the one float -> bf16 conversion of this ISA.
#include "kernels/portable/activations.h"

#include "kernels/neon/lanes.h"
#include "kernels/neon/linear_entries.h"

namespace twostroke::neon {
namespace {

// One block of 32; the same integers and scales as the portable definition. Magnitudes are compared as
// integers, where infinity and NaN are the largest.
void quantise_block(const float* x, int8_t* q, float* scale, int32_t (&half_sums)[2]) {
    float32x4_t v[8];
    uint32x4_t largest_lanes = vdupq_n_u32(0);
    UNROLL
    for (int i = 0; i < 8; i++) {
        v[i] = vld1q_f32(x + 4 * i);
        const uint32x4_t magnitude = vandq_u32(vreinterpretq_u32_f32(v[i]), vdupq_n_u32(0x7fffffff));
        largest_lanes = vmaxq_u32(largest_lanes, magnitude);
    }
    const uint32_t largest = vmaxvq_u32(largest_lanes);
    float amax;
    __builtin_memcpy(&amax, &largest, 4);
    const bool is_finite = largest < 0x7f800000;
    const bool is_zero = largest < portable::kSmallestScaled;
    const float inverse = is_finite && !is_zero ? 127.0f / amax : 0.0f;
    *scale = !is_finite ? __builtin_nanf("") : is_zero ? 0.0f : amax / 127.0f;
    const int32x4_t keep = vdupq_n_s32(is_finite ? -1 : 0);
    UNROLL
    for (int half = 0; half < 2; half++) {
        int32x4_t values[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            values[i] = vandq_s32(vcvtnq_s32_f32(vmulq_n_f32(v[4 * half + i], inverse)), keep);
        const int16x8_t low = vcombine_s16(vmovn_s32(values[0]), vmovn_s32(values[1]));
        const int16x8_t high = vcombine_s16(vmovn_s32(values[2]), vmovn_s32(values[3]));
        vst1q_s8(q + 16 * half, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
        half_sums[half] = vaddlvq_s16(vaddq_s16(low, high));
    }
}

}  // namespace

void quantise_a8(const float* x, int32_t K, int8_t* q, float* scale, int32_t* sum, int32_t* half_sum) {
    for (int32_t block = 0; block < K / kBlock; block++) {
        int32_t halves[2];
        quantise_block(x + block * kBlock, q + block * kBlock, scale + block, halves);
        sum[block] = halves[0] + halves[1];
        if (half_sum) __builtin_memcpy(half_sum + 2 * block, halves, sizeof halves);
    }
}

void to_bf16(const float* x, int32_t n, uint16_t* out) {
    int32_t i = 0;
    for (; i + 4 <= n; i += 4) vst1_u16(out + i, upper_halves(round_to_bf16(vld1q_f32(x + i))));
    if (i == n) return;
    uint16_t rest[4];
    vst1_u16(rest, upper_halves(round_to_bf16(load_first(x + i, n - i))));
    for (int32_t j = 0; i + j < n; j++) out[i + j] = rest[j];
}

}  // namespace twostroke::neon
