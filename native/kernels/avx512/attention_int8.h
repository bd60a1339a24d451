// Attention over int8 keys and values: byte products of four at once, in whole numbers.
#pragma once

#include "kernels/attention.h"

namespace twostroke::avx512 {

void write_kv_int8(const float* k, const float* v, int32_t head_dim, int32_t slot, uint8_t* unit);
void pack_queries_int8(const float* q, int32_t num_rows, int32_t head_dim, const PackedQueries& out);
void attend_int8(const QueryTile& tile, int32_t chunk_pos, const uint8_t* const* units, void* scratch,
                 const Partial& partial);

}  // namespace twostroke::avx512
