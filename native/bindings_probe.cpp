// Probes of the machine's peaks, run on every thread of a pool of their own; Python does the timing.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <atomic>
#include <cstring>
#include <string>

#include "bindings.h"
#include "cpu.h"
#include "kernels/probe.h"
#include "pages.h"
#include "pool.h"

namespace nb = nanobind;

namespace twostroke {
namespace {

const ProbeKernels& probes_of(const std::string& isa) {
    if (find_kernels(isa) == nullptr)
        throw nb::value_error(("this machine cannot run probes for ISA " + isa).c_str());
    if (isa == "portable") return portable_probes();
#if TWOSTROKE_X86_64
    if (isa == "avx2") return avx2_probes();
    if (isa == "avxvnni") return avxvnni_probes();
    if (isa == "avx512") return avx512_probes();
#elif TWOSTROKE_AARCH64
    if (isa == "neon") return neon_probes();
    if (isa == "neon_i8mm") return neon_i8mm_probes();
#endif
    throw nb::value_error(("no probes for ISA " + isa).c_str());
}

// Threads and a buffer that stay warm from one timed call to the next.
class Probe {
  public:
    Probe(const std::string& isa, int num_threads, int64_t num_bytes)
        : probes_(probes_of(isa)), pool_(num_threads), bytes_(static_cast<size_t>(num_bytes)) {
        std::memset(bytes_.as<uint8_t>(), 1, bytes_.size());  // untouched memory is one page of zeros
    }

    int64_t compute(const std::string& unit, int64_t rounds) {
        const auto kernel = unit == "int8"   ? probes_.int8
                            : unit == "bf16" ? probes_.bf16
                            : unit == "fp32" ? probes_.fp32
                                             : throw nb::value_error(("no unit " + unit).c_str());
        std::atomic<int64_t> operations{0};
        nb::gil_scoped_release release;
        pool_.run([&](Worker&) {
            int64_t sink = 0;
            operations += kernel(rounds, &sink);
            sink_ += sink;
        });
        return operations;
    }

    int64_t read() {
        const int64_t share = static_cast<int64_t>(bytes_.size()) / pool_.num_threads() / 512 * 512;
        nb::gil_scoped_release release;
        pool_.run([&](Worker& worker) {
            int64_t sink = 0;
            probes_.read(bytes_.as<uint8_t>() + share * worker.index(), share, &sink);
            sink_ += sink;
        });
        return share * pool_.num_threads();
    }

  private:
    const ProbeKernels& probes_;
    Pool pool_;
    Pages bytes_;  // as weights lie: in huge pages where the system has them
    std::atomic<int64_t> sink_{0};
};

// A chain of dependent additions, one a cycle; the loop itself hides behind it. Its length is the number of
// cycles.
int64_t count_cycles(int64_t rounds) {
    nb::gil_scoped_release release;
    uint64_t x = 0;
    for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) __asm__ volatile("" : "+r"(++x));
    }
    return 16 * rounds;
}

}  // namespace

void bind_probe(nb::module_& m) {
    nb::class_<Probe>(m, "Probe")
        .def(nb::init<const std::string&, int, int64_t>(), nb::arg("isa"), nb::arg("num_threads"),
             nb::arg("num_bytes"))
        .def("compute", &Probe::compute, nb::arg("unit"), nb::arg("rounds"),
             "Operations done by all threads.")
        .def("read", &Probe::read, "Bytes read by all threads: the whole buffer once.");
    m.def("count_cycles", &count_cycles, nb::arg("rounds"), "Cycles of this thread: 16 per round.");
}

}  // namespace twostroke
