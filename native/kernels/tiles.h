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

// Tokens are cut into as few tiles as kMax allows, as equal as they come (7 = 4 + 3, not 6 + 1): the first's.
ALWAYS_INLINE int32_t first_tile(int32_t num_tokens, int32_t most) {
    const int32_t num_tiles = num_tokens > most ? (num_tokens + most - 1) / most : 1;
    return (num_tokens + num_tiles - 1) / num_tiles;
}

template <int kMax, class Tile>
ALWAYS_INLINE void for_each_tile(int32_t num_tokens, const Tile& tile) {
    for (int32_t first = 0; first < num_tokens;) {
        const int32_t num = first_tile(num_tokens - first, kMax);
        compute_tile<kMax>(num, first, tile);
        first += num;
    }
}

}  // namespace
}  // namespace twostroke
