// Packed blocks (pack.h) back to numbers, for kLanes neighbouring rows of a panel at once: 32 for a linear, 1
// for an embedding look-up. Values are exact, or rounded once to float32 where a minimum is added: the bits
// of GGUF's own definition.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/table.h"

namespace twostroke::portable {

// Independent of the control word: a subnormal half is built from an integer, not from a subnormal float.
inline float half_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    const uint32_t exponent = half >> 10 & 31, mantissa = half & 0x3ff;
    const uint32_t tiny =
        std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(mantissa)) * 0x1p-24f);
    const uint32_t normal = (exponent + (exponent == 31 ? 224 : 112)) << 23 | mantissa << 13;
    return std::bit_cast<float>(sign | (exponent == 0 ? tiny : normal));
}

inline float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t load_u16(const uint8_t* bytes) {
    uint16_t value;
    std::memcpy(&value, bytes, 2);
    return value;
}

// [32 rows] f16 -> kLanes floats.
template <int kLanes>
void load_halves(const uint8_t* plane, int first_lane, float* out) {
    for (int lane = 0; lane < kLanes; lane++)
        out[lane] = half_to_float(load_u16(plane + 2 * (first_lane + lane)));
}

// 16 bytes of nibbles per row -> 32 values: low nibbles first.
template <int kLanes>
void load_nibbles(const uint8_t* units, int first_lane, int32_t (*q)[kLanes]) {
    for (int k = 0; k < 16; k++) {
        const uint8_t* bytes = units + k / 4 * 128 + 4 * first_lane + k % 4;
        for (int lane = 0; lane < kLanes; lane++) {
            q[k][lane] = bytes[4 * lane] & 15;
            q[k + 16][lane] = bytes[4 * lane] >> 4;
        }
    }
}

// Adds 16 where the 5th bit is set; masks are u64 [8 groups of 4 k][2 halves], so a row owns one nibble.
template <int kLanes>
void add_fifth_bits(const uint8_t* masks, int first_lane, int32_t (*q)[kLanes]) {
    for (int k = 0; k < 32; k++) {
        for (int lane = 0; lane < kLanes; lane++) {
            const int row = first_lane + lane;
            q[k][lane] += (masks[k / 4 * 16 + row / 2] >> (row % 2 * 4 + k % 4) & 1) << 4;
        }
    }
}

// A block of 32 as w = d * q + m, with the type's offset already taken from q; m is zero where there is none.
template <int kLanes>
struct Block32 {
    int32_t q[32][kLanes];
    float d[kLanes], m[kLanes];
};

inline int32_t packed_block_bytes(TensorType type) { return block_bytes(type) * kPanelRows; }

template <int kLanes>
void load_block_32(TensorType type, const uint8_t* block, int first_lane, Block32<kLanes>* out) {
    const bool has_min = type == TensorType::Q4_1 || type == TensorType::Q5_1;
    const uint8_t* scales = block + packed_block_bytes(type) - (has_min ? 128 : 64);
    load_halves<kLanes>(scales, first_lane, out->d);
    for (int lane = 0; lane < kLanes; lane++) out->m[lane] = 0;
    if (has_min) load_halves<kLanes>(scales + 64, first_lane, out->m);
    int32_t offset = 0;
    if (type == TensorType::Q8_0) {
        offset = 128;
        for (int k = 0; k < 32; k++) {
            const uint8_t* bytes = block + k / 4 * 128 + 4 * first_lane + k % 4;
            for (int lane = 0; lane < kLanes; lane++) out->q[k][lane] = bytes[4 * lane];
        }
    } else {
        const bool has_fifth = type == TensorType::Q5_0 || type == TensorType::Q5_1;
        load_nibbles<kLanes>(block + (has_fifth ? 128 : 0), first_lane, out->q);
        if (has_fifth) add_fifth_bits<kLanes>(block, first_lane, out->q);
        if (type == TensorType::Q4_0) offset = 8;
        if (type == TensorType::Q5_0) offset = 16;
    }
    for (int k = 0; k < 32; k++) {
        for (int lane = 0; lane < kLanes; lane++) out->q[k][lane] -= offset;
    }
}

// w[k][kLanes] of a block of 32.
template <int kLanes>
void unpack_block_32(TensorType type, const uint8_t* block, int first_lane, float* w) {
    Block32<kLanes> from;
    load_block_32<kLanes>(type, block, first_lane, &from);
    const bool has_min = type == TensorType::Q4_1 || type == TensorType::Q5_1;
    for (int k = 0; k < 32; k++) {
        for (int lane = 0; lane < kLanes; lane++) {
            const float product = from.d[lane] * static_cast<float>(from.q[k][lane]);
            w[k * kLanes + lane] = has_min ? product + from.m[lane] : product;
        }
    }
}

// Scale and minimum of one 32-wide sub-block of Q4_K and Q5_K: 6 bits each, from the 12 bytes of the file.
inline void six_bit_scales(const uint8_t* planes, int row, int sub, int32_t* scale, int32_t* min) {
    const auto byte = [&](int index) -> int32_t { return planes[index / 4 * 128 + 4 * row + index % 4]; };
    if (sub < 4) {
        *scale = byte(sub) & 63;
        *min = byte(sub + 4) & 63;
    } else {
        *scale = (byte(sub + 4) & 15) | byte(sub - 4) >> 6 << 4;
        *min = byte(sub + 4) >> 4 | byte(sub) >> 6 << 4;
    }
}

// A super-block as w = scale * q - min, with the type's offset already taken from q: a scale per 16 columns
// and no minimum (Q6_K), or both per 32.
template <int kLanes>
struct Block256 {
    int32_t q[256][kLanes];
    float scale[16][kLanes], min[8][kLanes];
};

// Q4_K and Q5_K: sub-blocks 2p and 2p + 1 are the low and the high nibbles of the same 32 bytes.
template <int kLanes>
void load_block_k4(TensorType type, const uint8_t* block, int first_lane, Block256<kLanes>* out) {
    const bool has_fifth = type == TensorType::Q5_K;
    float d[kLanes], dmin[kLanes];
    load_halves<kLanes>(block + 384, first_lane, d);
    load_halves<kLanes>(block + 448, first_lane, dmin);
    for (int sub = 0; sub < 8; sub++) {
        const uint8_t* pair = block + 512 + sub / 2 * (has_fifth ? 1280 : 1024);
        const uint8_t* units = pair + (has_fifth ? 256 : 0);
        int32_t (*q)[kLanes] = out->q + 32 * sub;
        for (int k = 0; k < 32; k++) {
            const uint8_t* bytes = units + k / 4 * 128 + 4 * first_lane + k % 4;
            for (int lane = 0; lane < kLanes; lane++) q[k][lane] = bytes[4 * lane] >> (sub % 2 * 4) & 15;
        }
        if (has_fifth) add_fifth_bits<kLanes>(pair + sub % 2 * 128, first_lane, q);
        for (int lane = 0; lane < kLanes; lane++) {
            int32_t six_scale, six_min;
            six_bit_scales(block, first_lane + lane, sub, &six_scale, &six_min);
            out->scale[sub][lane] = d[lane] * static_cast<float>(six_scale);
            out->min[sub][lane] = dmin[lane] * static_cast<float>(six_min);
        }
    }
}

// Q6_K: per half of 128, two planes of nibbles and one of bit pairs.
template <int kLanes>
void load_block_k6(const uint8_t* block, int first_lane, Block256<kLanes>* out) {
    const int8_t* scales = reinterpret_cast<const int8_t*>(block) + first_lane;
    float d[kLanes];
    load_halves<kLanes>(block + 512, first_lane, d);
    for (int sub = 0; sub < 16; sub++) {
        for (int lane = 0; lane < kLanes; lane++)
            out->scale[sub][lane] = d[lane] * static_cast<float>(scales[sub * kPanelRows + lane]);
    }
    for (int k = 0; k < 256; k++) {
        const int half = k / 128, in_half = k % 128, in_quarter = k % 32;
        const uint8_t* units = block + 576 + (half * 8 + in_quarter / 4) * 384;
        for (int lane = 0; lane < kLanes; lane++) {
            const int row = first_lane + lane;
            const uint8_t* pairs = units + row / 16 * 192 + 128 + row % 16 * 4 + k % 4;
            const uint8_t* low = pairs - 128 + in_half % 64 / 32 * 64;
            const int32_t nibble = *low >> (in_half / 64 * 4) & 15;
            out->q[k][lane] = (nibble | (*pairs >> (in_half / 32 * 2) & 3) << 4) - 32;
        }
    }
}

template <int kLanes>
void load_block_256(TensorType type, const uint8_t* block, int first_lane, Block256<kLanes>* out) {
    if (type == TensorType::Q6_K) {
        load_block_k6<kLanes>(block, first_lane, out);
    } else {
        load_block_k4<kLanes>(type, block, first_lane, out);
    }
}

// w[k][kLanes] of a super-block.
template <int kLanes>
void unpack_block_256(TensorType type, const uint8_t* block, int first_lane, float* w) {
    Block256<kLanes> from;
    load_block_256<kLanes>(type, block, first_lane, &from);
    const bool is_k6 = type == TensorType::Q6_K;
    for (int k = 0; k < 256; k++) {
        for (int lane = 0; lane < kLanes; lane++) {
            const float q = static_cast<float>(from.q[k][lane]);
            w[k * kLanes + lane] =
                is_k6 ? from.scale[k / 16][lane] * q : from.scale[k / 32][lane] * q - from.min[k / 32][lane];
        }
    }
}

// Columns of float types; k counts from the start of the panel.
template <int kLanes>
void unpack_float_column(TensorType type, const uint8_t* panel, int32_t k, int first_lane, float* w) {
    for (int lane = 0; lane < kLanes; lane++) {
        const size_t row = first_lane + lane;
        if (type == TensorType::F32) {
            std::memcpy(&w[lane], panel + (static_cast<size_t>(k) * kPanelRows + row) * 4, 4);
            continue;
        }
        const uint16_t bits =
            load_u16(panel + (static_cast<size_t>(k / 2) * kPanelRows + row) * 4 + k % 2 * 2);
        w[lane] = type == TensorType::F16 ? half_to_float(bits) : bf16_to_float(bits);
    }
}

// w[num_k][kLanes] of columns first_k.. of a panel; both are multiples of the type's block.
template <int kLanes>
void unpack_columns(TensorType type, const uint8_t* panel, int32_t first_k, int32_t num_k, int first_lane,
                    float* w) {
    const int32_t elements = block_elements(type);
    if (elements == 1) {
        for (int32_t k = 0; k < num_k; k++) {
            unpack_float_column<kLanes>(type, panel, first_k + k, first_lane,
                                        w + static_cast<size_t>(k) * kLanes);
        }
        return;
    }
    const uint8_t* block = panel + static_cast<size_t>(first_k / elements) * packed_block_bytes(type);
    for (int32_t k = 0; k < num_k; k += elements) {
        float* out = w + static_cast<size_t>(k) * kLanes;
        if (elements == 32) {
            unpack_block_32<kLanes>(type, block, first_lane, out);
        } else {
            unpack_block_256<kLanes>(type, block, first_lane, out);
        }
        block += packed_block_bytes(type);
    }
}

}  // namespace twostroke::portable
