#include "cpu.h"

#if TWOSTROKE_X86_64
#include <cpuid.h>
#elif TWOSTROKE_AARCH64 && defined(__linux__)
#include <sys/auxv.h>
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

// What the operating system saves of the registers: XCR0, or nothing where it cannot be asked.
uint32_t saved_registers() {
    if (!has(cpuid(1, 0).ecx, 27)) return 0;  // OSXSAVE
    uint32_t low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

constexpr uint32_t kYmm = 0x06;  // SSE, AVX
constexpr uint32_t kZmm = 0xE6;  // and opmask and both halves of zmm

bool can_run_avx2() {
    if ((saved_registers() & kYmm) != kYmm) return false;
    const Leaf one = cpuid(1, 0);
    const Leaf seven = cpuid(7, 0);
    return has(one.ecx, 12) && has(one.ecx, 29) && has(seven.ebx, 5) &&
           has(seven.ebx, 8);  // FMA F16C AVX2 BMI2
}

bool can_run_avxvnni() { return can_run_avx2() && has(cpuid(7, 1).eax, 4); }

bool can_run_avx512() {
    if (!can_run_avx2() || (saved_registers() & kZmm) != kZmm) return false;
    const Leaf seven = cpuid(7, 0);
    const bool base =
        has(seven.ebx, 16) && has(seven.ebx, 17) && has(seven.ebx, 30) && has(seven.ebx, 31);  // F DQ BW VL
    const bool vnni = has(seven.ecx, 11);
    const bool bf16 = has(cpuid(7, 1).eax, 5);
    return base && vnni && bf16;
}

#elif TWOSTROKE_AARCH64

// What the kernel lists, it saves. Bits by their number: a C library may be older than they are.
struct Capabilities {
    unsigned long first = 0, second = 0;
};

Capabilities capabilities() {
#ifdef __linux__
    return {getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
#else
    return {};
#endif
}

bool can_run_neon() { return (capabilities().first >> 20 & 1) != 0; }  // ASIMDDP

bool can_run_neon_i8mm() { return can_run_neon() && (capabilities().second >> 13 & 1) != 0; }

#endif

std::vector<std::string_view> find_isas() {
    std::vector<std::string_view> isas;
#if TWOSTROKE_X86_64
    if (can_run_avx512()) isas.push_back("avx512");
    if (can_run_avxvnni()) isas.push_back("avxvnni");
    if (can_run_avx2()) isas.push_back("avx2");
#elif TWOSTROKE_AARCH64
    if (can_run_neon_i8mm()) isas.push_back("neon_i8mm");
    if (can_run_neon()) isas.push_back("neon");
#endif
    isas.push_back("portable");
    return isas;
}

}  // namespace

const std::vector<std::string_view>& usable_isas() {
    // Asked once: a virtual machine leaves to its host for every CPUID, 0.1 ms for all that is asked here.
    static const std::vector<std::string_view> isas = find_isas();
    return isas;
}

const KernelTable* find_kernels(std::string_view isa) {
    for (std::string_view usable : usable_isas()) {
        if (usable != isa) continue;
#if TWOSTROKE_X86_64
        if (isa == "avx512") return &avx512_kernels();
        if (isa == "avxvnni") return &avxvnni_kernels();
        if (isa == "avx2") return &avx2_kernels();
#elif TWOSTROKE_AARCH64
        if (isa == "neon_i8mm") return &neon_i8mm_kernels();
        if (isa == "neon") return &neon_kernels();
#endif
        return &portable_kernels();
    }
    return nullptr;
}

}  // namespace twostroke
