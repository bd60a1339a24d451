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
    // What the kernels read, from token `first` on.
    Activations from(int32_t first) const;

  private:
    Needs needs_;
    Activations all_;
};

}  // namespace twostroke
