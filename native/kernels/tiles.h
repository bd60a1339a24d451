// How the linears of every vector ISA cut their tokens into register tiles. Internal linkage: compiled with
// the flags of whoever includes it.
#pragma once

#include <cstdint>

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

namespace twostroke {
namespace {

// tile.compute<T>(first) for a T known only now, T <= kMax.
template <int kMax, class Tile>
ALWAYS_INLINE void compute_tile(int32_t num_tokens, int32_t first, const Tile& tile) {
    if constexpr (kMax == 1) {
        tile.template compute<1>(first);
    } else if (num_tokens == kMax) {
        tile.template compute<kMax>(first);
    } else {
        compute_tile<kMax - 1>(num_tokens, first, tile);
    }
}

// Cuts the tokens into as few tiles as kMax allows, as equal as they come (7 = 4 + 3, not 6 + 1).
template <int kMax, class Tile>
ALWAYS_INLINE void for_each_tile(int32_t num_tokens, const Tile& tile) {
    for (int32_t first = 0; first < num_tokens;) {
        const int32_t left = num_tokens - first;
        const int32_t num_tiles = (left + kMax - 1) / kMax;
        const int32_t num = (left + num_tiles - 1) / num_tiles;
        compute_tile<kMax>(num, first, tile);
        first += num;
    }
}

}  // namespace
}  // namespace twostroke
