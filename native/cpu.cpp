#include "cpu.h"

#if TWOSTROKE_X86_64
#include <cpuid.h>
#endif

namespace twostroke {
namespace {

#if TWOSTROKE_X86_64

struct Leaf {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf cpuid(uint32_t leaf, uint32_t subleaf) {
    Leaf out;
    __get_cpuid_count(leaf, subleaf, &out.eax, &out.ebx, &out.ecx, &out.edx);
    return out;
}

bool has(uint32_t word, int bit) { return (word >> bit & 1) != 0; }

// The operating system must save the registers too: XCR0 has SSE, AVX, opmask and both halves of zmm.
bool os_saves_zmm() {
    if (!has(cpuid(1, 0).ecx, 27)) return false;  // OSXSAVE
    uint32_t low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 0xE6) == 0xE6;
}

bool can_run_avx512() {
    if (!os_saves_zmm()) return false;
    const Leaf one = cpuid(1, 0);
    const Leaf seven = cpuid(7, 0);
    const bool older =
        has(one.ecx, 12) && has(one.ecx, 29) && has(seven.ebx, 5) && has(seven.ebx, 8);  // FMA F16C AVX2 BMI2
    const bool base =
        has(seven.ebx, 16) && has(seven.ebx, 17) && has(seven.ebx, 30) && has(seven.ebx, 31);  // F DQ BW VL
    const bool vnni = has(seven.ecx, 11);
    const bool bf16 = has(cpuid(7, 1).eax, 5);
    return older && base && vnni && bf16;
}

#endif

}  // namespace

std::vector<std::string_view> usable_isas() {
    std::vector<std::string_view> isas;
#if TWOSTROKE_X86_64
    if (can_run_avx512()) isas.push_back("avx512");
#endif
    isas.push_back("portable");
    return isas;
}

const KernelTable* find_kernels(std::string_view isa) {
    for (std::string_view usable : usable_isas()) {
        if (usable != isa) continue;
#if TWOSTROKE_X86_64
        if (isa == "avx512") return &avx512_kernels();
#endif
        return &portable_kernels();
    }
    return nullptr;
}

}  // namespace twostroke
