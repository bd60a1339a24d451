// What lies around the kernels: which ISAs are found, the control word on every thread, the probes.
#include <cfenv>

#include "checks.h"
#include "cpu.h"
#include "float_state.h"
#include "kernels/probe.h"
#include "pool.h"

namespace twostroke::checks {
namespace {

void test_isas(const std::vector<std::string>& expected) {
    std::vector<std::string> found;
    for (const Isa& isa : usable()) {
        found.push_back(isa.name);
        check(isa.name == isa.kernels.isa, "a table has another name", isa.name);
    }
    check(expected.empty() || found == expected, "other ISAs are usable", "cpu");
    check(found.back() == "portable", "portable is not the last", "cpu");
    for (const char* unknown : {"", "sse", "neon_", "avx"})
        check(find_kernels(unknown) == nullptr, "an unknown ISA has kernels", unknown);
}

bool are_denormals_zero() {
    volatile float tiny = 1e-40f, smallest = 0x1p-126f;
    const volatile float read = tiny * 0x1p30f, written = smallest * 0.5f;
    return read == 0.0f && written == 0.0f;
}

bool rounds_to_nearest() {
    volatile float one = 1.0f, tiny = 0x1p-26f;
    const volatile float up = one + tiny, down = -one - tiny;
    return up == 1.0f && down == -1.0f;
}

void test_float_state() {
    for (const int mode : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
        std::fesetround(mode);
        check(!are_denormals_zero() || mode != FE_TONEAREST, "denormals were zero before", "float state");
        {
            const FloatState zero;
            check(are_denormals_zero() && rounds_to_nearest(), "denormals are not zero", "float state");
            {
                const FloatState kept(Denormals::kept);
                check(!are_denormals_zero() && rounds_to_nearest(), "denormals are not kept", "float state");
            }
            check(are_denormals_zero(), "the inner word was not put back", "float state");
        }
        check(std::fegetround() == mode, "the word was not put back", "float state");
    }
    std::fesetround(FE_TONEAREST);
}

void test_pool() {
    Pool pool(3);
    for (int run = 0; run < 200; ++run) {
        std::atomic<int> num_good{0};
        pool.run([&](Worker& worker) {
            worker.barrier();
            num_good += are_denormals_zero() && rounds_to_nearest();
            worker.barrier();
        });
        check(num_good == 3, "a worker computes under another word", "pool");
    }
}

std::vector<const ProbeKernels*> probes() {
    std::vector<const ProbeKernels*> found = {&portable_probes()};
#if TWOSTROKE_AARCH64
    if (find_kernels("neon") != nullptr) found.push_back(&neon_probes());
    if (find_kernels("neon_i8mm") != nullptr) found.push_back(&neon_i8mm_probes());
#endif
    return found;
}

void test_probes() {
    const std::vector<uint8_t> bytes(4096, 1);
    for (const ProbeKernels* probe : probes()) {
        int64_t sink = 0;
        for (const auto kernel : {probe->int8, probe->bf16, probe->fp32}) {
            const int64_t once = kernel(1, &sink);
            check(once > 0 && kernel(10, &sink) == 10 * once, "operations are not counted by rounds",
                  "probe");
        }
        check(sink != 0, "products were left out", "probe");
        probe->read(bytes.data(), 4096, &sink);
    }
}

}  // namespace

void test_machine(const std::vector<std::string>& expected) {
    test_isas(expected);
    test_float_state();
    test_pool();
    test_probes();
}

}  // namespace twostroke::checks
