// The input of a linear in every arithmetic its weights ask for, for a number of tokens.
#pragma once

#include <span>

#include "frame.h"

namespace twostroke {

// Activations::a8_scaled_sum of one token.
void scale_sums(const float* scale, const int32_t* sum, int32_t num_blocks, float* out);

class Prepared {
  public:
    struct Needs {
        int32_t K = 0;
        bool fp32 = false;
        bool int8 = false;
        bool half_sums = false;
        bool scaled_sums = false;
        bool bf16 = false;
    };
    static Needs needs_of(std::span<const Weight* const> weights);

    // Pieces for `num_tokens` from the carver.
    Prepared(const Needs& needs, int32_t num_tokens, Carver& carver);

    // Fills token `index` from x [K].
    void fill(const KernelTable& kernels, const float* x, int32_t index) const;

    // Whether the input can be filled some columns at a time.
    static bool takes_columns(const Needs& needs) { return needs.int8 && !needs.fp32 && !needs.bf16; }
    // Fills columns [column, column + n) of tokens from `first` on, from x [num_tokens][n]; both are
    // multiples of kBlock. `scratch`: put_bytes(num_tokens * n) of the calling thread.
    void put(const KernelTable& kernels, const float* x, int32_t num_tokens, int32_t n, int32_t first,
             int32_t column, uint8_t* scratch) const;
    static size_t put_bytes(size_t num_floats);
    // What the kernels read, from token `first` on.
    Activations from(int32_t first) const;

  private:
    struct Blocks {
        int8_t* q;
        float* scale;
        int32_t* sum;
        int32_t* half_sum;
    };
    static Blocks carve_blocks(Carver& carver, size_t num_floats);

    Needs needs_;
    Activations all_;
};

// Up to so many tokens every thread prepares the input itself: cheaper than one more meeting of all threads,
// or than blocks that lie in another core's cache (measured at one token: a step takes 2 % more).
inline constexpr int32_t kRedundantTokens = 4;

// The input of a linear group that the group before it leaves prepared, block by block as it computes it,
// where there are more than kRedundantTokens.
struct Handover {
    int32_t value;
    Prepared::Needs needs;
    int32_t slot;  // of Frame::shared
};

}  // namespace twostroke
