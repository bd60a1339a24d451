#include "kernels/probe.h"

#include "kernels/neon/lanes.h"

namespace twostroke {
namespace neon_i8mm {
namespace {

// Chains in flight: latency (3 to 4 cycles) times up to four instructions a cycle, and registers to spare.
constexpr int kChains = 16;

// 2 x 8 times 8 x 2 bytes at once.
int64_t probe_int8(int64_t rounds, int64_t* sink) {
    int32x4_t sums[kChains];
    for (int c = 0; c < kChains; ++c) sums[c] = vdupq_n_s32(c);
    uint8x16_t a = vdupq_n_u8(3);
    int8x16_t b = vdupq_n_s8(5);
    for (int64_t round = 0; round < rounds; ++round) {
        UNROLL
        for (int c = 0; c < kChains; ++c) sums[c] = vusmmlaq_s32(sums[c], a, b);
        __asm__ volatile("" : "+w"(a), "+w"(b));
    }
    for (int c = 1; c < kChains; ++c) sums[0] = vaddq_s32(sums[0], sums[c]);
    *sink += vgetq_lane_s32(sums[0], 0);
    return rounds * kChains * 32 * 2;
}

}  // namespace
}  // namespace neon_i8mm

// Everything but bytes is NEON's own.
const ProbeKernels& neon_i8mm_probes() {
    static const ProbeKernels probes{neon_i8mm::probe_int8, neon_probes().bf16, neon_probes().fp32,
                                     neon_probes().read};
    return probes;
}

}  // namespace twostroke
