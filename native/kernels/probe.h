// Loops that reach the peaks of a processor: dot products from registers, reads from memory. They are timed
// by the caller and share no code with the kernels they judge.
#pragma once

#include <cstdint>

namespace twostroke {

struct ProbeKernels {
    // Each runs `rounds` rounds of independent multiply-adds and adds what they gave to *sink, so that
    // nothing can be left out; returns the operations done (a multiply-add is two).
    int64_t (*int8)(int64_t rounds, int64_t* sink);
    int64_t (*bf16)(int64_t rounds, int64_t* sink);
    int64_t (*fp32)(int64_t rounds, int64_t* sink);
    // Reads `num_bytes` (a multiple of 512) once.
    void (*read)(const uint8_t* data, int64_t num_bytes, int64_t* sink);
};

const ProbeKernels& portable_probes();
#if TWOSTROKE_X86_64
const ProbeKernels& avx2_probes();
const ProbeKernels& avxvnni_probes();
const ProbeKernels& avx512_probes();
#elif TWOSTROKE_AARCH64
const ProbeKernels& neon_probes();
const ProbeKernels& neon_i8mm_probes();
#endif

}  // namespace twostroke
