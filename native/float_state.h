// The floating-point control word every thread of a step computes under: round to nearest even, no traps,
// denormals read and written as zero (bf16 dot products do so in any case). Sampling compares logits as they
// are.
#pragma once

#if TWOSTROKE_X86_64
#include <xmmintrin.h>
#endif

namespace twostroke {

enum class Denormals { zero, kept };

// Sets the control word for its scope and puts the thread's own one back.
class FloatState {
  public:
    FloatState(const FloatState&) = delete;
    FloatState& operator=(const FloatState&) = delete;
#if TWOSTROKE_X86_64
    explicit FloatState(Denormals denormals = Denormals::zero) : saved_(_mm_getcsr()) {
        _mm_setcsr(denormals == Denormals::zero ? kMasked | kFlush : kMasked);
    }
    ~FloatState() { _mm_setcsr(saved_); }

  private:
    static constexpr unsigned kMasked = 0x1F80;
    static constexpr unsigned kFlush = 0x8000 | 0x0040;  // FTZ, DAZ
    unsigned saved_;
#else
    explicit FloatState(Denormals = Denormals::zero) {}
    ~FloatState() {}
#endif
};

}  // namespace twostroke
