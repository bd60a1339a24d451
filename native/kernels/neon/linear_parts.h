// What the linear kernels of NEON share: a panel of 32 rows is eight vectors of 4 lanes.
#pragma once

#include "kernels/neon/lanes.h"

namespace twostroke::neon {
namespace {

constexpr int kVectors = kPanelRows / 4;

// The panel's 32 outputs of each token; rows beyond num_rows are neither read nor written.
struct OutputTile {
    float* at;
    size_t stride;
    int32_t num_rows;

    void store(int32_t token, const float32x4_t (&sum)[kVectors]) const {
        float* to = at + token * stride;
        if (num_rows == kPanelRows) {
            UNROLL
            for (int v = 0; v < kVectors; v++) vst1q_f32(to + 4 * v, sum[v]);
        } else {
            for (int v = 0; v < kVectors; v++) store_first(to + 4 * v, sum[v], num_rows - 4 * v);
        }
    }
    void load(int32_t token, float32x4_t (&sum)[kVectors]) const {
        const float* from = at + token * stride;
        if (num_rows == kPanelRows) {
            UNROLL
            for (int v = 0; v < kVectors; v++) sum[v] = vld1q_f32(from + 4 * v);
        } else {
            for (int v = 0; v < kVectors; v++) sum[v] = load_first(from + 4 * v, num_rows - 4 * v);
        }
    }
};

// Sums of T tokens where a piece of K begins: zero, or what the pieces before it left in the output.
template <int T>
ALWAYS_INLINE void begin_sums(bool is_first_piece, const OutputTile& out, int32_t token,
                              float32x4_t (&sum)[T][kVectors]) {
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < kVectors; v++) sum[t][v] = vdupq_n_f32(0.0f);
        if (!is_first_piece) out.load(token + t, sum[t]);
    }
}

}  // namespace
}  // namespace twostroke::neon
