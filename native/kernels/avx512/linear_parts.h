// What the linear kernels of this ISA share. Everything has internal linkage: an inline function compiled
// with these flags must never be merged with another file's.
#pragma once

#include <immintrin.h>

#include "kernels/table.h"

namespace twostroke {
namespace {

// A mask of the first n lanes, for any n.
inline __mmask16 first_lanes(int32_t n) {
    return static_cast<__mmask16>(n >= 16 ? 0xffff : n <= 0 ? 0 : (1 << n) - 1);
}

// The next of the tiles that cut `left` tokens into as few and as equal pieces as `largest` allows.
inline int32_t next_tile(int32_t left, int32_t largest) {
    const int32_t num_tiles = (left + largest - 1) / largest;
    return (left + num_tiles - 1) / num_tiles;
}

// The panel's 32 outputs of each token; rows beyond num_rows are neither read nor written.
struct OutputTile {
    OutputTile(float* at, size_t stride, int32_t num_rows)
        : at(at), stride(stride), low(first_lanes(num_rows)), high(first_lanes(num_rows - 16)) {}

    void store(int32_t token, __m512 rows0, __m512 rows1) const {
        _mm512_mask_storeu_ps(at + token * stride, low, rows0);
        _mm512_mask_storeu_ps(at + token * stride + 16, high, rows1);
    }
    __m512 load0(int32_t token) const { return _mm512_maskz_loadu_ps(low, at + token * stride); }
    __m512 load1(int32_t token) const { return _mm512_maskz_loadu_ps(high, at + token * stride + 16); }

    float* at;
    size_t stride;
    __mmask16 low, high;
};

}  // namespace
}  // namespace twostroke
