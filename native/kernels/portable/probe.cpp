#include "kernels/probe.h"

#include <cstring>

namespace twostroke {
namespace {

constexpr int kLanes = 32;  // independent sums: the compiler turns them into the vectors of the baseline

// The portable kernels compute every type in plain int32 or fp32 multiply-adds, so that is their peak.
int64_t probe_int8(int64_t rounds, int64_t* sink) {
    int32_t sums[kLanes] = {};
    int32_t a = 3, b = 5;
    for (int64_t round = 0; round < rounds; ++round) {
        for (int lane = 0; lane < kLanes; ++lane) sums[lane] += a * b;
        asm volatile("" : "+r"(a), "+r"(b));
    }
    for (const int32_t sum : sums) *sink += sum;
    return rounds * kLanes * 2;
}

int64_t probe_fp32(int64_t rounds, int64_t* sink) {
    float sums[kLanes] = {};
    float a = 1.0f, b = 0.25f;
    for (int64_t round = 0; round < rounds; ++round) {
        for (int lane = 0; lane < kLanes; ++lane) sums[lane] += a * b;
        asm volatile("" : "+m"(a), "+m"(b));
    }
    for (const float sum : sums) *sink += static_cast<int64_t>(sum * 1e-9f);
    return rounds * kLanes * 2;
}

void probe_read(const uint8_t* data, int64_t num_bytes, int64_t* sink) {
    uint64_t sums[8] = {};
    for (int64_t at = 0; at < num_bytes; at += 64) {
        uint64_t words[8];
        std::memcpy(words, data + at, 64);
        for (int c = 0; c < 8; ++c) sums[c] ^= words[c];
    }
    for (const uint64_t sum : sums) *sink += static_cast<int64_t>(sum);
}

}  // namespace

const ProbeKernels& portable_probes() {
    static constexpr ProbeKernels probes{probe_int8, probe_fp32, probe_fp32, probe_read};
    return probes;
}

}  // namespace twostroke
