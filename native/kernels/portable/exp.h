// The one exp and tanh of the portable kernels, in plain float arithmetic that compilers vectorise.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/rows.h"

namespace twostroke {
namespace {

inline float exp_of(float x) {
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the integer in the low bits
    const float shifted = x * kLog2E + kRound;
    const float n = shifted - kRound;
    const float r = (x - n * kLn2High) - n * kLn2Low;
    const float poly = kExp2 + r * (kExp3 + r * (kExp4 + r * (kExp5 + r * kExp6)));
    const float y = 1.0f + (r + r * r * poly);
    const float result =
        std::bit_cast<float>(std::bit_cast<uint32_t>(y) + (std::bit_cast<uint32_t>(shifted) << 23));
    const float low = x < -87.3f ? 0.0f : result;
    const float high = x > 88.3f ? HUGE_VALF : low;
    return x != x ? x : high;
}

inline float tanh_of(float y) {
    const float z = y * y;
    const float series = y + y * z * (kTanh3 + z * (kTanh5 + z * (kTanh7 + z * (kTanh9 + z * kTanh11))));
    const float size = std::fabs(y);
    const float e = exp_of(-2.0f * size);
    const float large = std::copysign((1.0f - e) / (1.0f + e), y);
    return size < kTanhSeries ? series : large;
}

}  // namespace
}  // namespace twostroke
