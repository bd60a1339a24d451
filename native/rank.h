// A place in a ranking as one number: by logit, best first, and by number on ties.
#pragma once

#include <bit>
#include <cstdint>

namespace twostroke {

// Falls as the logit rises; the id breaks ties. Zero has one sign.
inline uint64_t rank_of(float logit, int32_t id) {
    const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);
    const uint32_t falling = bits >> 31 != 0 ? bits : ~bits & 0x7FFFFFFF;
    return static_cast<uint64_t>(falling) << 32 | static_cast<uint32_t>(id);
}

inline int32_t id_of(uint64_t rank) { return static_cast<int32_t>(rank & 0xFFFFFFFF); }

inline float logit_of(uint64_t rank) {
    const uint32_t falling = static_cast<uint32_t>(rank >> 32);
    return std::bit_cast<float>(falling >> 31 != 0 ? falling : ~falling & 0x7FFFFFFF);
}

}  // namespace twostroke
