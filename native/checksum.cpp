#include "checksum.h"

#include <bit>
#include <cstring>

namespace twostroke {
namespace {

static_assert(std::endian::native == std::endian::little, "words of a file are little-endian");

// Odd numbers without a pattern: a product with one moves every bit upwards and loses none.
constexpr uint32_t kMix = 0x85EBCA77;
constexpr uint64_t kFold = 0x9E3779B97F4A7C15;
// Chains side by side, each of one word in 128 bytes: compilers turn them into vectors of any width.
constexpr int kLanes = 32;

}  // namespace

uint64_t checksum(const uint8_t* data, size_t num_bytes) {
    uint32_t lanes[kLanes];
    for (int lane = 0; lane < kLanes; lane++) lanes[lane] = lane + 1;
    size_t at = 0;
    for (; at + sizeof lanes <= num_bytes; at += sizeof lanes) {
        uint32_t words[kLanes];
        std::memcpy(words, data + at, sizeof words);
        // For a given word every state has a state of its own, and the other way round: no single change is
        // lost.
        for (int lane = 0; lane < kLanes; lane++)
            lanes[lane] = std::rotl(lanes[lane] ^ words[lane], 13) * kMix;
    }
    uint64_t sum = num_bytes;
    for (uint32_t lane : lanes) sum = std::rotl(sum ^ lane, 27) * kFold;
    for (; at < num_bytes; at++) sum = std::rotl(sum ^ data[at], 27) * kFold;
    return sum;
}

}  // namespace twostroke
