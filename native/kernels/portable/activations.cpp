// Preparing the input of a linear, in plain C++.
#include "kernels/portable/activations.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace twostroke::portable {
namespace {

// Bits of |x|: as integers they sort like the numbers, infinity and NaN on top, whatever the control word.
uint32_t magnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffff; }

void quantise_block(const float* x, int8_t* q, float* scale, int32_t (&half_sums)[2]) {
    uint32_t largest = 0;
    for (int32_t k = 0; k < kBlock; k++) {
        const uint32_t bits = magnitude(x[k]);
        largest = bits > largest ? bits : largest;
    }
    const float amax = std::bit_cast<float>(largest);
    const bool is_finite = largest < 0x7f800000;
    const bool is_zero = largest < kSmallestScaled;
    const float inverse = is_finite && !is_zero ? 127.0f / amax : 0.0f;
    *scale = !is_finite ? std::numeric_limits<float>::quiet_NaN() : is_zero ? 0.0f : amax / 127.0f;
    half_sums[0] = half_sums[1] = 0;
    for (int32_t k = 0; k < kBlock; k++) {
        const int32_t value = is_finite ? static_cast<int32_t>(std::nearbyint(x[k] * inverse)) : 0;
        q[k] = static_cast<int8_t>(value);
        half_sums[k / 16] += value;
    }
}

}  // namespace

void quantise_a8(const float* x, int32_t K, int8_t* q, float* scale, int32_t* sum, int32_t* half_sum) {
    for (int32_t block = 0; block < K / kBlock; block++) {
        int32_t halves[2];
        quantise_block(x + block * kBlock, q + block * kBlock, scale + block, halves);
        sum[block] = halves[0] + halves[1];
        if (half_sum) std::memcpy(half_sum + 2 * block, halves, sizeof halves);
    }
}

uint16_t to_bf16(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    if (magnitude(x) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void to_bf16(const float* x, int32_t n, uint16_t* out) {
    for (int32_t i = 0; i < n; i++) out[i] = to_bf16(x[i]);
}

}  // namespace twostroke::portable
