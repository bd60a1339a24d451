// The floating-point control word every thread of a step computes under: round to nearest even, no traps,
// denormals read and written as zero (bf16 dot products do so in any case). Sampling compares logits as they
// are.
#pragma once

#include <cstdint>

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
#elif TWOSTROKE_AARCH64
    explicit FloatState(Denormals denormals = Denormals::zero) {
        __asm__ volatile("mrs %0, fpcr" : "=r"(saved_));
        set(denormals == Denormals::zero ? kFlush : 0);
    }
    ~FloatState() { set(saved_); }

  private:
    static constexpr uint64_t kFlush = 1 << 24;  // FZ
    static void set(uint64_t word) { __asm__ volatile("msr fpcr, %0" ::"r"(word)); }
    uint64_t saved_;
#else
    explicit FloatState(Denormals = Denormals::zero) {}
    ~FloatState() {}
#endif
};

}  // namespace twostroke
