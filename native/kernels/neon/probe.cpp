#include "kernels/probe.h"

#include "kernels/neon/lanes.h"

namespace twostroke {
namespace neon {
namespace {

// Chains in flight: latency (3 to 4 cycles) times up to four instructions a cycle, and registers to spare.
constexpr int kChains = 16;

int64_t probe_int8(int64_t rounds, int64_t* sink) {
    int32x4_t sums[kChains];
    for (int c = 0; c < kChains; ++c) sums[c] = vdupq_n_s32(c);
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(5);
    for (int64_t round = 0; round < rounds; ++round) {
        UNROLL
        for (int c = 0; c < kChains; ++c) sums[c] = vdotq_s32(sums[c], a, b);
        __asm__ volatile("" : "+w"(a), "+w"(b));
    }
    for (int c = 1; c < kChains; ++c) sums[0] = vaddq_s32(sums[0], sums[c]);
    *sink += vgetq_lane_s32(sums[0], 0);
    return rounds * kChains * 16 * 2;
}

int64_t probe_fp32(int64_t rounds, int64_t* sink) {
    float32x4_t sums[kChains];
    for (int c = 0; c < kChains; ++c) sums[c] = vdupq_n_f32(static_cast<float>(c));
    float32x4_t a = vdupq_n_f32(1.0f), b = vdupq_n_f32(0.25f);
    for (int64_t round = 0; round < rounds; ++round) {
        UNROLL
        for (int c = 0; c < kChains; ++c) sums[c] = vfmaq_f32(sums[c], a, b);
        __asm__ volatile("" : "+w"(a), "+w"(b));
    }
    for (int c = 1; c < kChains; ++c) sums[0] = vaddq_f32(sums[0], sums[c]);
    *sink += static_cast<int64_t>(vgetq_lane_f32(sums[0], 0) * 1e-9f);
    return rounds * kChains * 4 * 2;
}

void probe_read(const uint8_t* data, int64_t num_bytes, int64_t* sink) {
    uint8x16_t sums[16];
    for (uint8x16_t& sum : sums) sum = vdupq_n_u8(0);
    for (int64_t at = 0; at < num_bytes; at += 256) {
        UNROLL
        for (int c = 0; c < 16; ++c) sums[c] = veorq_u8(sums[c], vld1q_u8(data + at + 16 * c));
    }
    for (int c = 1; c < 16; ++c) sums[0] = veorq_u8(sums[0], sums[c]);
    const uint64x2_t words = vreinterpretq_u64_u8(sums[0]);
    *sink += static_cast<int64_t>(vgetq_lane_u64(words, 0) + vgetq_lane_u64(words, 1));
}

}  // namespace
}  // namespace neon

// bf16 is computed in fp32.
const ProbeKernels& neon_probes() {
    static constexpr ProbeKernels probes{neon::probe_int8, neon::probe_fp32, neon::probe_fp32,
                                         neon::probe_read};
    return probes;
}

}  // namespace twostroke
