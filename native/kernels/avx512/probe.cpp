#include "kernels/probe.h"

#include <immintrin.h>

namespace twostroke {
namespace avx512 {
namespace {

// Chains in flight: latency (4 to 6 cycles) times two instructions a cycle, and registers to spare.
constexpr int kChains = 16;

int64_t probe_int8(int64_t rounds, int64_t* sink) {
    __m512i sums[kChains];
    for (int c = 0; c < kChains; ++c) sums[c] = _mm512_set1_epi32(c);
    __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
    for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
        for (int c = 0; c < kChains; ++c) sums[c] = _mm512_dpbusd_epi32(sums[c], a, b);
        asm volatile("" : "+v"(a), "+v"(b));
    }
    for (int c = 1; c < kChains; ++c) sums[0] = _mm512_add_epi32(sums[0], sums[c]);
    *sink += _mm512_reduce_add_epi32(sums[0]);
    return rounds * kChains * 64 * 2;
}

int64_t probe_bf16(int64_t rounds, int64_t* sink) {
    __m512 sums[kChains];
    for (int c = 0; c < kChains; ++c) sums[c] = _mm512_set1_ps(static_cast<float>(c));
    __m512i a = _mm512_set1_epi16(0x3f80), b = _mm512_set1_epi16(0x3e80);
    for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
        for (int c = 0; c < kChains; ++c)
            sums[c] = _mm512_dpbf16_ps(sums[c], reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
        asm volatile("" : "+v"(a), "+v"(b));
    }
    for (int c = 1; c < kChains; ++c) sums[0] = _mm512_add_ps(sums[0], sums[c]);
    *sink += static_cast<int64_t>(_mm512_reduce_add_ps(sums[0]) * 1e-9f);
    return rounds * kChains * 32 * 2;
}

int64_t probe_fp32(int64_t rounds, int64_t* sink) {
    __m512 sums[kChains];
    for (int c = 0; c < kChains; ++c) sums[c] = _mm512_set1_ps(static_cast<float>(c));
    __m512 a = _mm512_set1_ps(1.0f), b = _mm512_set1_ps(0.25f);
    for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
        for (int c = 0; c < kChains; ++c) sums[c] = _mm512_fmadd_ps(a, b, sums[c]);
        asm volatile("" : "+v"(a), "+v"(b));
    }
    for (int c = 1; c < kChains; ++c) sums[0] = _mm512_add_ps(sums[0], sums[c]);
    *sink += static_cast<int64_t>(_mm512_reduce_add_ps(sums[0]) * 1e-9f);
    return rounds * kChains * 16 * 2;
}

void probe_read(const uint8_t* data, int64_t num_bytes, int64_t* sink) {
    __m512i sums[8];
    for (__m512i& sum : sums) sum = _mm512_setzero_si512();
    for (int64_t at = 0; at < num_bytes; at += 512) {
#pragma GCC unroll 8
        for (int c = 0; c < 8; ++c)
            sums[c] = _mm512_xor_si512(sums[c], _mm512_loadu_si512(data + at + 64 * c));
    }
    for (int c = 1; c < 8; ++c) sums[0] = _mm512_xor_si512(sums[0], sums[c]);
    *sink += _mm512_reduce_add_epi64(sums[0]);
}

}  // namespace
}  // namespace avx512

const ProbeKernels& avx512_probes() {
    static constexpr ProbeKernels probes{avx512::probe_int8, avx512::probe_bf16, avx512::probe_fp32,
                                         avx512::probe_read};
    return probes;
}

}  // namespace twostroke
