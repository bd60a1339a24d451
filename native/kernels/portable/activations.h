// Preparing the input of a linear: the portable definitions.
#pragma once

#include <cstdint>

#include "kernels/table.h"

namespace twostroke::portable {

// Bits of 2^-100. A block whose largest magnitude is below it counts as zero, on every ISA: 127 / amax would
// overflow near the end of the range, and such values carry nothing through a network.
inline constexpr uint32_t kSmallestScaled = (127 - 100) << 23;

// A block that holds infinity or NaN gets the scale NaN: it spoils its own token and no other.
void quantise_a8(const float* x, int32_t K, int8_t* q, float* scale, int32_t* sum, int32_t* half_sum);
uint16_t to_bf16(float x);
void to_bf16(const float* x, int32_t n, uint16_t* out);

}  // namespace twostroke::portable
