// Linear for the quantised types: weights x activations per 32, exact. Both NEON tables compile it, each with
// its own way to multiply: Products<Format>.
//
// A tile is 32 rows x T tokens, lane = row, computed half a panel at a time: T is what 32 registers hold of
// integer sums over 16 rows, while the fp32 sums are touched once per block and may live in memory. Scales
// are decoded to floats, a piece of K at a time; more tokens than one tile share weights unpacked to bytes
// beside them, fewer unpack as they multiply.
#pragma once

#include "kernels/neon/linear_parts.h"

namespace twostroke::neon {
namespace {

constexpr int32_t kPieceBlocks = 16;
// Vectors of half a panel: a unit of 16 rows x 4 columns.
constexpr int kHalfVectors = kVectors / 2;

// Vector v of two neighbouring groups of 4 columns: 4 rows x 8 columns, as packed or as Products arranges it.
struct WeightPair {
    uint8x16_t first, second;
};

// A piece of K as unpacked: [block][group of 4 columns][32 rows][4]. A block has one scale or two; w = scale
// * (q - offset), or scale * q + minimum.
struct alignas(64) Piece {
    uint8_t units[kPieceBlocks][8][kPanelRows * 4];
    float scales[2 * kPieceBlocks][kPanelRows];
    float minimums[kPieceBlocks][kPanelRows];

    ALWAYS_INLINE void set_pair(int32_t block, int group, int v, WeightPair pair) {
        vst1q_u8(units[block][group] + v * 16, pair.first);
        vst1q_u8(units[block][group + 1] + v * 16, pair.second);
    }
    ALWAYS_INLINE void set_scale(int32_t index, int v, float32x4_t scale) {
        vst1q_f32(scales[index] + v * 4, scale);
    }
    ALWAYS_INLINE void set_minimum(int32_t block, int v, float32x4_t minimum) {
        vst1q_f32(minimums[block] + v * 4, minimum);
    }
};
static_assert(sizeof(Piece) <= kLinearScratchBytes);

// Where a tile finds a block's weights: scales in a piece, units there too, arranged, or still packed.
template <class Format>
struct Unpacked : Format {
    static constexpr bool kIsArranged = true;
    const uint8_t* units;
    const float* scales;
    const float* minimums;

    explicit Unpacked(const Piece& piece)
        : units(piece.units[0][0]), scales(piece.scales[0]), minimums(piece.minimums[0]) {}
    ALWAYS_INLINE WeightPair pair(int group, int v) const {
        return {vld1q_u8(units + group * 128 + v * 16), vld1q_u8(units + (group + 1) * 128 + v * 16)};
    }
    ALWAYS_INLINE float32x4_t scale(int v, int index = 0) const {
        return vld1q_f32(scales + index * kPanelRows + v * 4);
    }
    ALWAYS_INLINE float32x4_t minimum(int v) const { return vld1q_f32(minimums + v * 4); }
    ALWAYS_INLINE void next() {
        units += 1024;
        scales += Format::kNumScales * kPanelRows;
        minimums += kPanelRows;
    }
};

template <class Format>
struct Packed : Unpacked<Format> {
    static constexpr bool kIsArranged = false;
    const uint8_t* from;
    int block = 0;  // of those that `from` holds

    Packed(const Piece& piece, const uint8_t* from) : Unpacked<Format>(piece), from(from) {}
    ALWAYS_INLINE WeightPair pair(int group, int v) const {
        return {Format::bytes(from, block, group, v), Format::bytes(from, block, group + 1, v)};
    }
    ALWAYS_INLINE void next() {
        Unpacked<Format>::next();
        if (++block == Format::kBlocks) {
            block = 0;
            from += Format::kBlockBytes;
        }
    }
};

// Q8_0 is bytes as packed.
struct PackedBytes {
    static constexpr bool kIsArranged = false;
    static constexpr int kMaxWeight = 255;
    static constexpr int kOffsetBits = 7;  // q ^ 0x80 is q + 128
    static constexpr bool kHasMinimum = false;
    static constexpr int kNumScales = 1;

    const uint8_t* block;

    ALWAYS_INLINE WeightPair pair(int group, int v) const {
        return {vld1q_u8(block + group * 128 + v * 16), vld1q_u8(block + (group + 1) * 128 + v * 16)};
    }
    ALWAYS_INLINE float32x4_t scale(int v) const { return load_halves(block + 1024 + v * 8); }
    ALWAYS_INLINE void next() { block += 1088; }
};

// Bits [shift, shift + 4) of every byte.
ALWAYS_INLINE uint8x16_t nibbles(const uint8_t* units, int shift) {
    return vandq_u8(vshlq_u8(vld1q_u8(units), vdupq_n_s8(static_cast<int8_t>(-shift))), vdupq_n_u8(15));
}

// Sets bit 4 of the bytes whose bit is set in the 16 bits at `mask`.
ALWAYS_INLINE uint8x16_t add_fifth_bits(uint8x16_t q, const uint8_t* mask) {
    alignas(16) static constexpr uint8_t kBit[16] = {1, 2, 4, 8, 16, 32, 64, 128,
                                                     1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t spread = vcombine_u8(vdup_n_u8(mask[0]), vdup_n_u8(mask[1]));
    return vbslq_u8(vdupq_n_u8(16), vtstq_u8(spread, vld1q_u8(kBit)), q);
}

// Each format unpacks one of its blocks, as packed (pack.h), to blocks [first, first + kBlocks) of a piece,
// for rows [4 v, 4 v + 4).
template <bool kHasFifth, bool kMinimum>
struct Nibbles {
    static constexpr int kMaxWeight = kHasFifth ? 31 : 15;
    static constexpr int kOffsetBits = kHasFifth ? 4 : 3;
    static constexpr bool kHasMinimum = kMinimum;
    static constexpr int kNumScales = 1;
    static constexpr int kUnitsAt = kHasFifth ? 128 : 0;
    static constexpr int kBlockBytes = kUnitsAt + (kMinimum ? 640 : 576);
    static constexpr int kBlocks = 1;

    static ALWAYS_INLINE uint8x16_t bytes(const uint8_t* from, int, int group, int v) {
        const uint8x16_t both = vld1q_u8(from + kUnitsAt + group % 4 * 128 + v * 16);
        const uint8x16_t q = group < 4 ? vandq_u8(both, vdupq_n_u8(15)) : vshrq_n_u8(both, 4);
        return kHasFifth ? add_fifth_bits(q, from + group * 16 + v * 2) : q;
    }

    static ALWAYS_INLINE void unpack_scales(const uint8_t* from, int v, int32_t first, Piece& piece) {
        piece.set_scale(first, v, load_halves(from + kUnitsAt + 512 + v * 8));
        if constexpr (kMinimum) piece.set_minimum(first, v, load_halves(from + kUnitsAt + 576 + v * 8));
    }
};

// Q4_K and Q5_K: blocks 2p and 2p + 1 are the low and the high nibbles of the same bytes.
template <bool kHasFifth>
struct K4 {
    static constexpr int kMaxWeight = kHasFifth ? 31 : 15;
    static constexpr int kOffsetBits = 0;
    static constexpr bool kHasMinimum = true;
    static constexpr int kNumScales = 1;
    static constexpr int kUnitsAt = kHasFifth ? 256 : 0;  // in a pair of blocks, after the 5th bits
    static constexpr int kPairBytes = kUnitsAt + 1024, kPairsAt = 512;
    static constexpr int kBlockBytes = kPairsAt + 4 * kPairBytes;
    static constexpr int kBlocks = 8;

    // A number of 6 bits per row and block, in 12 bytes per row; times `factor`.
    template <class Take>
    static ALWAYS_INLINE void decode_four(uint8x16_t bytes, float32x4_t factor, Take take) {
        UNROLL
        for (int i = 0; i < 4; i++) {
            const uint32x4_t shifted = vshlq_u32(vreinterpretq_u32_u8(bytes), vdupq_n_s32(-8 * i));
            take(i, vmulq_f32(factor, vcvtq_f32_u32(vandq_u32(shifted, vdupq_n_u32(255)))));
        }
    }

    static ALWAYS_INLINE void unpack_scales(const uint8_t* from, int v, int32_t first, Piece& piece) {
        const uint8x16_t six = vdupq_n_u8(0x3f), low = vdupq_n_u8(0x0f), top = vdupq_n_u8(0x30);
        const uint8x16_t x = vld1q_u8(from + v * 16), y = vld1q_u8(from + 128 + v * 16),
                         z = vld1q_u8(from + 256 + v * 16);
        const uint8x16_t late_scales = vorrq_u8(vandq_u8(z, low), vandq_u8(vshrq_n_u8(x, 2), top));
        const uint8x16_t late_minimums = vorrq_u8(vshrq_n_u8(z, 4), vandq_u8(vshrq_n_u8(y, 2), top));
        const float32x4_t d = load_halves(from + 384 + v * 8);
        const float32x4_t negative = vnegq_f32(load_halves(from + 448 + v * 8));
        const auto scale = [&](int i, float32x4_t s) { piece.set_scale(first + i, v, s); };
        const auto late_scale = [&](int i, float32x4_t s) { piece.set_scale(first + 4 + i, v, s); };
        const auto minimum = [&](int i, float32x4_t m) { piece.set_minimum(first + i, v, m); };
        const auto late_minimum = [&](int i, float32x4_t m) { piece.set_minimum(first + 4 + i, v, m); };
        decode_four(vandq_u8(x, six), d, scale);
        decode_four(late_scales, d, late_scale);
        decode_four(vandq_u8(y, six), negative, minimum);
        decode_four(late_minimums, negative, late_minimum);
    }

    static ALWAYS_INLINE uint8x16_t bytes(const uint8_t* from, int block, int group, int v) {
        const uint8_t* pair = from + kPairsAt + block / 2 * kPairBytes;
        const uint8x16_t q = nibbles(pair + kUnitsAt + group * 128 + v * 16, block % 2 * 4);
        return kHasFifth ? add_fifth_bits(q, pair + block % 2 * 128 + group * 16 + v * 2) : q;
    }
};

// A scale per 16 columns. Per half of 128 columns: two planes of nibbles and one of bit pairs.
struct Q6_K {
    static constexpr int kMaxWeight = 63;
    static constexpr int kOffsetBits = 5;
    static constexpr bool kHasMinimum = false;
    static constexpr int kNumScales = 2;
    static constexpr int kBlockBytes = 6720;
    static constexpr int kBlocks = 8;

    static ALWAYS_INLINE uint8x16_t bytes(const uint8_t* from, int block, int group, int v) {
        const uint8_t* units = from + 576 + (block / 4 * 8 + group) * 384 + v / 4 * 192 + v % 4 * 16;
        const int8x16_t shift = vdupq_n_s8(static_cast<int8_t>(block % 4 * -2));
        const uint8x16_t pairs = vandq_u8(vshlq_u8(vld1q_u8(units + 128), shift), vdupq_n_u8(3));
        return vsliq_n_u8(nibbles(units + block % 2 * 64, block % 4 / 2 * 4), pairs, 4);
    }

    static ALWAYS_INLINE void unpack_scales(const uint8_t* from, int v, int32_t first, Piece& piece) {
        const float32x4_t d = load_halves(from + 512 + v * 8);
        for (int sub = 0; sub < 16; sub++) {
            int32_t four;
            __builtin_memcpy(&four, from + sub * 32 + v * 4, 4);
            const int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
            piece.set_scale(2 * first + sub, v, vmulq_f32(d, vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)))));
        }
    }
};

template <class Format>
void unpack_scales(const uint8_t* from, int32_t num_blocks, Piece& piece) {
    for (int32_t b = 0; b < num_blocks; b += Format::kBlocks) {
        UNROLL
        for (int v = 0; v < kVectors; v++) Format::unpack_scales(from, v, b, piece);
        from += Format::kBlockBytes;
    }
}

template <class Products, class Format>
void unpack_units(const uint8_t* from, int32_t num_blocks, Piece& piece) {
    for (int32_t first = 0; first < num_blocks; first += Format::kBlocks) {
        UNROLL
        for (int b = 0; b < Format::kBlocks; b++) {
            UNROLL
            for (int group = 0; group < 8; group += 2) {
                UNROLL
                for (int v = 0; v < kVectors; v++) {
                    const WeightPair pair = {Format::bytes(from, b, group, v),
                                             Format::bytes(from, b, group + 1, v)};
                    piece.set_pair(first + b, group, v, Products::arrange(pair));
                }
            }
        }
        from += Format::kBlockBytes;
    }
}

// One block of T tokens' activations; their half totals where a block has two scales.
template <int kNumScales>
struct BlockInput {
    const int8_t* a8;
    size_t stride;
    const float* scales;
    const int32_t* totals;
    const int32_t* half_totals;
    size_t block_stride;

    ALWAYS_INLINE float scale(int t) const { return scales[t * block_stride]; }
    ALWAYS_INLINE int32_t total(int t) const { return totals[t * block_stride]; }
    ALWAYS_INLINE int32_t half_total(int t, int half) const {
        return half_totals[2 * t * block_stride + half];
    }
    ALWAYS_INLINE void next() {
        a8 += kBlock;
        scales++;
        totals++;
        if constexpr (kNumScales == 2) half_totals += 2;
    }
};

// What the sum of products starts from: the offset of the weights, where they keep it.
template <class Products, class Blocks>
ALWAYS_INLINE int32_t start(int32_t total) {
    return Blocks::kHasMinimum || !Products::kKeepsOffset ? 0 : -total * (1 << Blocks::kOffsetBits);
}

// sum += (dot - offset * total) * (d * scale), or dot * (d * scale) + m * (scale * total).
template <class Products, int T, class Blocks>
ALWAYS_INLINE void add_block(const Blocks& weights, const BlockInput<Blocks::kNumScales>& in,
                             float32x4_t (&sum)[T][kVectors]) {
    UNROLL
    for (int half = 0; half < 2; half++) {
        typename Products::template Sums<T, Blocks::kIsArranged> dots;
        dots.begin([&](int t) { return start<Products, Blocks>(in.total(t)); });
        dots.template add<0, 8>(weights, half * kHalfVectors, in.a8, in.stride);
        UNROLL
        for (int t = 0; t < T; t++) {
            UNROLL
            for (int i = 0; i < kHalfVectors; i++) {
                const int v = half * kHalfVectors + i;
                const float32x4_t d = vmulq_n_f32(weights.scale(v), in.scale(t));
                sum[t][v] = vfmaq_f32(sum[t][v], vcvtq_f32_s32(dots.dot(t, i)), d);
                if constexpr (Blocks::kHasMinimum) {
                    const float factor = in.scale(t) * static_cast<float>(in.total(t));
                    sum[t][v] = vfmaq_n_f32(sum[t][v], weights.minimum(v), factor);
                }
            }
        }
    }
}

// Two scales per block: both scaled dots are added before the activation scale.
template <class Products, int T, class Blocks>
ALWAYS_INLINE void add_halves(const Blocks& weights, const BlockInput<Blocks::kNumScales>& in,
                              float32x4_t (&sum)[T][kVectors]) {
    UNROLL
    for (int half = 0; half < 2; half++) {
        float32x4_t scaled[T][kHalfVectors];
        typename Products::template Sums<T, Blocks::kIsArranged> dots;
        dots.begin([&](int t) { return start<Products, Blocks>(in.half_total(t, 0)); });
        dots.template add<0, 4>(weights, half * kHalfVectors, in.a8, in.stride);
        UNROLL
        for (int t = 0; t < T; t++) {
            UNROLL
            for (int i = 0; i < kHalfVectors; i++)
                scaled[t][i] =
                    vmulq_f32(vcvtq_f32_s32(dots.dot(t, i)), weights.scale(half * kHalfVectors + i, 0));
        }
        dots.begin([&](int t) { return start<Products, Blocks>(in.half_total(t, 1)); });
        dots.template add<4, 4>(weights, half * kHalfVectors, in.a8, in.stride);
        UNROLL
        for (int t = 0; t < T; t++) {
            UNROLL
            for (int i = 0; i < kHalfVectors; i++) {
                const int v = half * kHalfVectors + i;
                const float32x4_t exact = vcvtq_f32_s32(dots.dot(t, i));
                const float32x4_t both = vfmaq_f32(scaled[t][i], exact, weights.scale(v, 1));
                sum[t][v] = vfmaq_n_f32(sum[t][v], both, in.scale(t));
            }
        }
    }
}

template <class Products, class Blocks>
struct Int8Tile {
    Blocks blocks;
    int32_t num_blocks;
    int32_t first_block;
    const Activations& in;
    const OutputTile& out;

    template <int T>
    void compute(int32_t first) const {
        Blocks weights = blocks;
        const size_t at = first * in.a8_block_stride + first_block;
        BlockInput<Blocks::kNumScales> input = {in.a8 + first * in.a8_stride + first_block * kBlock,
                                                in.a8_stride,
                                                in.a8_scale + at,
                                                in.a8_sum + at,
                                                Blocks::kNumScales == 2 ? in.a8_half_sum + 2 * at : nullptr,
                                                in.a8_block_stride};
        float32x4_t sum[T][kVectors];
        begin_sums<T>(first_block == 0, out, first, sum);
        for (int32_t b = 0; b < num_blocks; b++) {
            if constexpr (Blocks::kNumScales == 2)
                add_halves<Products>(weights, input, sum);
            else
                add_block<Products>(weights, input, sum);
            weights.next();
            input.next();
        }
        UNROLL
        for (int t = 0; t < T; t++) out.store(first + t, sum[t]);
    }
};

template <template <class> class Products>
void linear_bytes(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens,
                  const OutputTile& out) {
    using Chosen = Products<PackedBytes>;
    for_each_tile<Chosen::kMaxTokens>(num_tokens,
                                      Int8Tile<Chosen, PackedBytes>{{panel}, K / kBlock, 0, in, out});
}

template <template <class> class Products, class Format>
void linear_pieces(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens,
                   const OutputTile& out, void* scratch) {
    using Chosen = Products<Format>;
    auto& piece = *static_cast<Piece*>(scratch);
    for (int32_t block = 0; block < K / kBlock; block += kPieceBlocks) {
        const int32_t left = K / kBlock - block, num = left < kPieceBlocks ? left : kPieceBlocks;
        const uint8_t* from = panel + static_cast<size_t>(block / Format::kBlocks) * Format::kBlockBytes;
        unpack_scales<Format>(from, num, piece);
        if (num_tokens <= Chosen::kMaxTokens) {
            const Packed<Format> blocks(piece, from);
            for_each_tile<Chosen::kMaxTokens>(num_tokens,
                                              Int8Tile<Chosen, Packed<Format>>{blocks, num, block, in, out});
        } else {
            unpack_units<Chosen, Format>(from, num, piece);
            const Unpacked<Format> blocks(piece);
            for_each_tile<Chosen::kMaxTokens>(
                num_tokens, Int8Tile<Chosen, Unpacked<Format>>{blocks, num, block, in, out});
        }
    }
}

}  // namespace
}  // namespace twostroke::neon
