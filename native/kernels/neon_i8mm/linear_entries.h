// The functions of this folder that stand in the kernel table.
#pragma once

#include "kernels/neon/linear_entries.h"

namespace twostroke::neon_i8mm {

neon::LinearFunction linear_q8_0, linear_q4_0, linear_q4_1, linear_q5_0, linear_q5_1, linear_q4_k,
    linear_q5_k, linear_q6_k;

}  // namespace twostroke::neon_i8mm
