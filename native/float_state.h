// The floating-point control word every thread of a step computes under: round to nearest even, no traps,
// denormals read and written as zero (bf16 dot products do so in any case).
#pragma once

#if TWOSTROKE_X86_64
#include <xmmintrin.h>
#endif

namespace twostroke {

// Sets the control word for its scope and puts the thread's own one back.
class FloatState {
  public:
    FloatState(const FloatState&) = delete;
    FloatState& operator=(const FloatState&) = delete;
#if TWOSTROKE_X86_64
    FloatState() : saved_(_mm_getcsr()) { _mm_setcsr(kControlWord); }
    ~FloatState() { _mm_setcsr(saved_); }

  private:
    static constexpr unsigned kControlWord = 0x1F80 | 0x8000 | 0x0040;  // all masked, FTZ, DAZ
    unsigned saved_;
#else
    FloatState() {}
    ~FloatState() {}
#endif
};

}  // namespace twostroke
