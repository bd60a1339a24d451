#include "kernels/probe.h"

#include "kernels/avx2/lanes.h"

namespace twostroke {
namespace avx2 {
namespace {

// Chains in flight: latency (4 to 5 cycles) times two instructions a cycle, and registers to spare.
constexpr int kChains = 12;

// The fastest exact product of bytes this ISA has: pairs in int16, added in int16.
int64_t probe_int8(int64_t rounds, int64_t* sink) {
    __m256i sums[kChains];
    for (int c = 0; c < kChains; ++c) sums[c] = _mm256_set1_epi32(c);
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
    for (int64_t round = 0; round < rounds; ++round) {
        UNROLL
        for (int c = 0; c < kChains; ++c) {
            sums[c] = _mm256_add_epi16(sums[c], _mm256_maddubs_epi16(a, b));
            asm volatile("" : "+x"(a), "+x"(b));
        }
    }
    for (int c = 1; c < kChains; ++c) sums[0] = _mm256_add_epi32(sums[0], sums[c]);
    *sink += _mm256_extract_epi32(sums[0], 0);
    return rounds * kChains * 32 * 2;
}

int64_t probe_fp32(int64_t rounds, int64_t* sink) {
    __m256 sums[kChains];
    for (int c = 0; c < kChains; ++c) sums[c] = _mm256_set1_ps(static_cast<float>(c));
    __m256 a = _mm256_set1_ps(1.0f), b = _mm256_set1_ps(0.25f);
    for (int64_t round = 0; round < rounds; ++round) {
        UNROLL
        for (int c = 0; c < kChains; ++c) sums[c] = _mm256_fmadd_ps(a, b, sums[c]);
        asm volatile("" : "+x"(a), "+x"(b));
    }
    for (int c = 1; c < kChains; ++c) sums[0] = _mm256_add_ps(sums[0], sums[c]);
    *sink += static_cast<int64_t>(_mm256_cvtss_f32(sums[0]) * 1e-9f);
    return rounds * kChains * 8 * 2;
}

void probe_read(const uint8_t* data, int64_t num_bytes, int64_t* sink) {
    __m256i sums[8];
    for (__m256i& sum : sums) sum = _mm256_setzero_si256();
    for (int64_t at = 0; at < num_bytes; at += 256) {
        UNROLL
        for (int c = 0; c < 8; ++c) {
            const auto* from = reinterpret_cast<const __m256i*>(data + at + 32 * c);
            sums[c] = _mm256_xor_si256(sums[c], _mm256_loadu_si256(from));
        }
    }
    for (int c = 1; c < 8; ++c) sums[0] = _mm256_xor_si256(sums[0], sums[c]);
    *sink += _mm256_extract_epi64(sums[0], 0) + _mm256_extract_epi64(sums[0], 3);
}

}  // namespace
}  // namespace avx2

// bf16 is computed in fp32.
const ProbeKernels& avx2_probes() {
    static constexpr ProbeKernels probes{avx2::probe_int8, avx2::probe_fp32, avx2::probe_fp32,
                                         avx2::probe_read};
    return probes;
}

}  // namespace twostroke
