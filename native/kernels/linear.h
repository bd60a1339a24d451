// The entries of the kernel table that belong to linear: linear[], quantise_a8, to_bf16, unpack_row.
#pragma once

#include "table.h"

namespace twostroke {

void portable_fill_linear(KernelTable& table);
#if TWOSTROKE_X86_64
namespace avx2 {
void fill_linear(KernelTable& table);
}
namespace avx512 {
void fill_linear(KernelTable& table);
}
#elif TWOSTROKE_AARCH64
namespace neon {
void fill_linear(KernelTable& table);
}
#endif

}  // namespace twostroke
