// What the linear kernels of AVX2 and AVX-VNNI share: a panel of 32 rows is four vectors of 8 lanes.
#pragma once

#include "kernels/avx2/lanes.h"

namespace twostroke::avx2 {
namespace {

constexpr int kVectors = kPanelRows / 8;

ALWAYS_INLINE __m256i load_units(const uint8_t* at) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
}

// The panel's 32 outputs of each token; rows beyond num_rows are neither read nor written.
struct OutputTile {
    float* at;
    size_t stride;
    int32_t num_rows;

    void store(int32_t token, const __m256 (&sum)[kVectors]) const {
        float* to = at + token * stride;
        if (num_rows == kPanelRows) {
            UNROLL
            for (int v = 0; v < kVectors; v++) _mm256_storeu_ps(to + 8 * v, sum[v]);
        } else {
            for (int v = 0; v < kVectors; v++) store_first(to + 8 * v, sum[v], num_rows - 8 * v);
        }
    }
    void load(int32_t token, __m256 (&sum)[kVectors]) const {
        const float* from = at + token * stride;
        if (num_rows == kPanelRows) {
            UNROLL
            for (int v = 0; v < kVectors; v++) sum[v] = _mm256_loadu_ps(from + 8 * v);
        } else {
            for (int v = 0; v < kVectors; v++) sum[v] = load_first(from + 8 * v, num_rows - 8 * v);
        }
    }
};

// Sums of T tokens where a piece of K begins: zero, or what the pieces before it left in the output.
template <int T>
ALWAYS_INLINE void begin_sums(bool is_first_piece, const OutputTile& out, int32_t token,
                              __m256 (&sum)[T][kVectors]) {
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < kVectors; v++) sum[t][v] = _mm256_setzero_ps();
        if (!is_first_piece) out.load(token + t, sum[t]);
    }
}

}  // namespace
}  // namespace twostroke::avx2
