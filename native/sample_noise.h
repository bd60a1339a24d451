// Gumbel noise of a word, in double precision by plain operations: no libm, so a draw depends on no C
// library. sample/random.py has the same operations in the same order.
#pragma once

#include <bit>
#include <cstdint>

namespace twostroke {

inline constexpr double kLn2 = 0.6931471805599453;

// Natural logarithm of a positive normal number, to about one unit in the last place. x = 2^e * m with m from
// sqrt(1/2) to sqrt(2); log(m) = 2 * (s + s^3/3 + s^5/5 + ...), s = (m - 1) / (m + 1); |s| < 0.172, so that
// terms past s^21 are too small to show.
inline double log_of(double x) {
    constexpr int64_t kRootHalfBits = 0x3FE6A09E667F3BCD;
    const int64_t bits = std::bit_cast<int64_t>(x);
    const int64_t exponent = (bits - kRootHalfBits) >> 52;
    const double m = std::bit_cast<double>(bits - (exponent << 52));
    const double s = (m - 1.0) / (m + 1.0);
    const double z = s * s;
    double series = 1.0 / 21;
    for (int odd = 19; odd >= 3; odd -= 2) series = 1.0 / odd + z * series;
    return static_cast<double>(exponent) * kLn2 + 2.0 * (s + s * (z * series));
}

// -log(-log(u)) with u at the middle of the word's cell: from -3.14 to 22.87. A word that begins with n ones
// has 1 - u > 2^-(n+1), so at most (n + 1) * ln 2, as -log(u) >= 1 - u.
inline double gumbel(uint32_t word) { return -log_of(-log_of((static_cast<double>(word) + 0.5) * 0x1p-32)); }

inline double gumbel_bound(uint32_t word) { return (std::countl_one(word) + 1) * kLn2; }
inline constexpr double kLargestNoise = 33 * kLn2;

}  // namespace twostroke
