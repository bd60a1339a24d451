// What the linear kernels of this ISA share. Everything has internal linkage: an inline function compiled
// with these flags must never be merged with another file's.
#pragma once

#include <immintrin.h>

#include "kernels/table.h"
#include "kernels/tiles.h"

namespace twostroke::avx512 {
namespace {

// A mask of the first n lanes, for any n.
ALWAYS_INLINE __mmask16 first_lanes(int32_t n) {
    return static_cast<__mmask16>(n >= 16 ? 0xffff : n <= 0 ? 0 : (1 << n) - 1);
}

ALWAYS_INLINE __m512 load_halves(const uint8_t* halves) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
}

// The panel's 32 outputs of each token; rows beyond num_rows are not written.
struct OutputTile {
    OutputTile(float* at, size_t stride, int32_t num_rows)
        : at(at), stride(stride), low(first_lanes(num_rows)), high(first_lanes(num_rows - 16)) {}

    void store(int32_t token, __m512 rows0, __m512 rows1) const {
        _mm512_mask_storeu_ps(at + token * stride, low, rows0);
        _mm512_mask_storeu_ps(at + token * stride + 16, high, rows1);
    }

    void load(int32_t token, __m512 (&rows)[2]) const {
        rows[0] = _mm512_maskz_loadu_ps(low, at + token * stride);
        rows[1] = _mm512_maskz_loadu_ps(high, at + token * stride + 16);
    }

    float* at;
    size_t stride;
    __mmask16 low, high;
};

}  // namespace
}  // namespace twostroke::avx512
