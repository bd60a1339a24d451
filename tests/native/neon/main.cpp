// Checks the kernels of every ISA this processor runs: against the portable ones within a bound, and against
// themselves bit by bit. Written for processors met only under emulation, where the Python tests do not run.
#include <cstdio>
#include <string>
#include <vector>

#include "checks.h"
#include "float_state.h"

using namespace twostroke;

int main(int count, char** arguments) {
    checks::test_machine(std::vector<std::string>(arguments + 1, arguments + count));
    {
        const FloatState float_state;  // as every thread of a step computes
        checks::test_pack();
        checks::test_activations();
        checks::test_linear();
        checks::test_rows();
        checks::test_attention();
    }
    checks::test_sample();
    for (const checks::Isa& isa : checks::usable()) std::printf("%s ", isa.name.c_str());
    std::printf("%lld checks, %lld failed\n", static_cast<long long>(checks::num_checks()),
                static_cast<long long>(checks::num_failures()));
    return checks::num_failures() == 0 ? 0 : 1;
}
