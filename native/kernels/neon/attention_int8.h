// Attention over int8 keys and values: products of bytes, probabilities as two of them.
#pragma once

#include "kernels/int8_heads.h"

namespace twostroke::neon {

void attend_int8(const QueryTile& tile, int32_t chunk_pos, const uint8_t* const* units, void* scratch,
                 const Partial& partial);

}  // namespace twostroke::neon
