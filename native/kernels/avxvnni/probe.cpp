#include "kernels/probe.h"

#include "kernels/avx2/lanes.h"

namespace twostroke {
namespace avxvnni {
namespace {

// Chains in flight: latency (4 to 5 cycles) times two instructions a cycle, and registers to spare.
constexpr int kChains = 12;

int64_t probe_int8(int64_t rounds, int64_t* sink) {
    __m256i sums[kChains];
    for (int c = 0; c < kChains; ++c) sums[c] = _mm256_set1_epi32(c);
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
    for (int64_t round = 0; round < rounds; ++round) {
        UNROLL
        for (int c = 0; c < kChains; ++c) sums[c] = _mm256_dpbusd_avx_epi32(sums[c], a, b);
        asm volatile("" : "+x"(a), "+x"(b));
    }
    for (int c = 1; c < kChains; ++c) sums[0] = _mm256_add_epi32(sums[0], sums[c]);
    *sink += _mm256_extract_epi32(sums[0], 0);
    return rounds * kChains * 32 * 2;
}

}  // namespace
}  // namespace avxvnni

// Everything but bytes is AVX2's own.
const ProbeKernels& avxvnni_probes() {
    static const ProbeKernels probes{avxvnni::probe_int8, avx2_probes().bf16, avx2_probes().fp32,
                                     avx2_probes().read};
    return probes;
}

}  // namespace twostroke
