#include "kernels/attention.h"

namespace twostroke {

void avx512_fill_attention(KernelTable& table) { portable_fill_attention(table); }

}  // namespace twostroke
