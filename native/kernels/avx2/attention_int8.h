// Attention over int8 keys and values, widened to 16 bits where they are read.
#pragma once

#include "kernels/int8_heads.h"

namespace twostroke::avx2 {

void attend_int8(const QueryTile& tile, int32_t chunk_pos, const uint8_t* const* units, void* scratch,
                 const Partial& partial);

}  // namespace twostroke::avx2
