// Linear for the quantised types: unsigned weights x signed activations per 32, exact. AVX2 and AVX-VNNI
// compile it, each with its own way to multiply: Products<kMaxWeight>.
//
// A tile is 32 rows x T tokens, lane = row: T is what the 16 registers hold of integer sums, while the fp32
// sums are touched once per block and may live in memory. Many tokens share weights unpacked to bytes and
// scales to floats, a piece of K at a time; fewer unpack as they multiply, from the first byte of a
// panel to its last: nothing else keeps the hardware prefetchers going.
#pragma once

#include "kernels/avx2/linear_parts.h"

namespace twostroke::avx2 {
namespace {

constexpr int32_t kPieceBlocks = 16;
// From so many tokens on unpacking pays.
constexpr int32_t kMinPieceTokens = 8;

// A piece of K as unpacked: [block][group of 4 columns][32 rows][4]. A block has one scale or two; w = scale
// * (q - offset), or scale * q + minimum.
struct alignas(64) Piece {
    uint8_t units[kPieceBlocks][8][kPanelRows * 4];
    float scales[2 * kPieceBlocks][kPanelRows];
    float minimums[kPieceBlocks][kPanelRows];

    ALWAYS_INLINE void set_units(int32_t block, int group, int v, __m256i bytes) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(units[block][group] + v * 32), bytes);
    }
    ALWAYS_INLINE void set_scale(int32_t index, int v, __m256 scale) {
        _mm256_store_ps(scales[index] + v * 8, scale);
    }
    ALWAYS_INLINE void set_minimum(int32_t block, int v, __m256 minimum) {
        _mm256_store_ps(minimums[block] + v * 8, minimum);
    }
};
static_assert(sizeof(Piece) <= kLinearScratchBytes);

// Where a tile finds a block's weights: scales in a piece, units there too or still packed.
template <class Format>
struct Unpacked : Format {
    const uint8_t* units;
    const float* scales;
    const float* minimums;

    explicit Unpacked(const Piece& piece)
        : units(piece.units[0][0]), scales(piece.scales[0]), minimums(piece.minimums[0]) {}
    ALWAYS_INLINE __m256i bytes(int group, int v) const { return load_units(units + group * 128 + v * 32); }
    ALWAYS_INLINE __m256 scale(int v, int index = 0) const {
        return _mm256_load_ps(scales + index * kPanelRows + v * 8);
    }
    ALWAYS_INLINE __m256 minimum(int v) const { return _mm256_load_ps(minimums + v * 8); }
    ALWAYS_INLINE void next() {
        units += 1024;
        scales += Format::kNumScales * kPanelRows;
        minimums += kPanelRows;
    }
};

// A format with a scale of its own in every block.
template <class Format>
struct Packed : Format {
    const uint8_t* block;

    explicit Packed(const uint8_t* block) : block(block) {}
    ALWAYS_INLINE __m256i bytes(int group, int v) const { return Format::bytes(block, 0, group, v); }
    ALWAYS_INLINE __m256 scale(int v) const { return Format::scale(block, v); }
    ALWAYS_INLINE __m256 minimum(int v) const { return Format::minimum(block, v); }
    ALWAYS_INLINE void next() { block += Format::kBlockBytes; }
};

// A super-block, its scales in a piece.
template <class Format>
struct PackedSuper : Unpacked<Format> {
    const uint8_t* from;
    int block = 0;

    PackedSuper(const Piece& piece, const uint8_t* from) : Unpacked<Format>(piece), from(from) {}
    ALWAYS_INLINE __m256i bytes(int group, int v) const { return Format::bytes(from, block, group, v); }
    ALWAYS_INLINE void next() {
        Unpacked<Format>::next();
        ++block;
    }
};

// Q8_0 is bytes as packed.
struct PackedBytes {
    static constexpr int kMaxWeight = 255;
    static constexpr int kOffsetBits = 7;  // q ^ 0x80 is q + 128
    static constexpr bool kHasMinimum = false;
    static constexpr int kNumScales = 1;

    const uint8_t* block;

    ALWAYS_INLINE __m256i bytes(int group, int v) const { return load_units(block + group * 128 + v * 32); }
    ALWAYS_INLINE __m256 scale(int v) const { return load_halves(block + 1024 + v * 16); }
    ALWAYS_INLINE void next() { block += 1088; }
};

ALWAYS_INLINE __m256i nibbles(const uint8_t* units, int shift) {
    const __m256i shifted = _mm256_srl_epi16(load_units(units), _mm_cvtsi32_si128(shift));
    return _mm256_and_si256(shifted, _mm256_set1_epi8(15));
}

// Adds 16 to the bytes whose bit is set in the 32 bits at `mask`.
ALWAYS_INLINE __m256i add_fifth_bits(__m256i q, const uint8_t* mask) {
    int32_t bits;
    __builtin_memcpy(&bits, mask, 4);
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2,
                                            2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
    const __m256i bytes = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), spread), bit);
    return _mm256_or_si256(q, _mm256_and_si256(_mm256_cmpeq_epi8(bytes, bit), _mm256_set1_epi8(16)));
}

// Each format unpacks one of its blocks, as packed (pack.h), to blocks [first, first + kBlocks) of a piece,
// for rows [8 v, 8 v + 8).
template <bool kHasFifth, bool kMinimum>
struct Nibbles {
    static constexpr int kMaxWeight = kHasFifth ? 31 : 15;
    static constexpr int kOffsetBits = kHasFifth ? 4 : 3;
    static constexpr bool kHasMinimum = kMinimum;
    static constexpr int kNumScales = 1;
    static constexpr int kUnitsAt = kHasFifth ? 128 : 0;
    static constexpr int kBlockBytes = kUnitsAt + (kMinimum ? 640 : 576);
    static constexpr int kBlocks = 1;

    static ALWAYS_INLINE __m256i bytes(const uint8_t* from, int, int group, int v) {
        const __m256i q = nibbles(from + kUnitsAt + group % 4 * 128 + v * 32, group / 4 * 4);
        return kHasFifth ? add_fifth_bits(q, from + group * 16 + v * 4) : q;
    }

    static ALWAYS_INLINE __m256 scale(const uint8_t* from, int v) {
        return load_halves(from + kUnitsAt + 512 + v * 16);
    }
    static ALWAYS_INLINE __m256 minimum(const uint8_t* from, int v) {
        return load_halves(from + kUnitsAt + 576 + v * 16);
    }

    static ALWAYS_INLINE void unpack_scales(const uint8_t* from, int v, int32_t first, Piece& piece) {
        piece.set_scale(first, v, scale(from, v));
        if constexpr (kMinimum) piece.set_minimum(first, v, minimum(from, v));
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
    static ALWAYS_INLINE void decode_four(__m256i bytes, __m256 factor, Take take) {
        UNROLL
        for (int i = 0; i < 4; i++) {
            const __m256i six = _mm256_and_si256(_mm256_srli_epi32(bytes, 8 * i), _mm256_set1_epi32(255));
            take(i, _mm256_mul_ps(factor, _mm256_cvtepi32_ps(six)));
        }
    }

    static ALWAYS_INLINE void unpack_scales(const uint8_t* from, int v, int32_t first, Piece& piece) {
        const __m256i six = _mm256_set1_epi8(0x3f), low = _mm256_set1_epi8(0x0f),
                      top = _mm256_set1_epi8(0x30);
        const __m256i x = load_units(from + v * 32), y = load_units(from + 128 + v * 32),
                      z = load_units(from + 256 + v * 32);
        const __m256i late_scales =
            _mm256_or_si256(_mm256_and_si256(z, low), _mm256_and_si256(_mm256_srli_epi32(x, 2), top));
        const __m256i late_minimums = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(z, 4), low),
                                                      _mm256_and_si256(_mm256_srli_epi32(y, 2), top));
        const __m256 d = load_halves(from + 384 + v * 16);
        const __m256 negative = _mm256_xor_ps(load_halves(from + 448 + v * 16), _mm256_set1_ps(-0.0f));
        const auto scale = [&](int i, __m256 s) { piece.set_scale(first + i, v, s); };
        const auto late_scale = [&](int i, __m256 s) { piece.set_scale(first + 4 + i, v, s); };
        const auto minimum = [&](int i, __m256 m) { piece.set_minimum(first + i, v, m); };
        const auto late_minimum = [&](int i, __m256 m) { piece.set_minimum(first + 4 + i, v, m); };
        decode_four(_mm256_and_si256(x, six), d, scale);
        decode_four(late_scales, d, late_scale);
        decode_four(_mm256_and_si256(y, six), negative, minimum);
        decode_four(late_minimums, negative, late_minimum);
    }

    static ALWAYS_INLINE __m256i bytes(const uint8_t* from, int block, int group, int v) {
        const uint8_t* pair = from + kPairsAt + block / 2 * kPairBytes;
        const __m256i q = nibbles(pair + kUnitsAt + group * 128 + v * 32, block % 2 * 4);
        return kHasFifth ? add_fifth_bits(q, pair + block % 2 * 128 + group * 16 + v * 4) : q;
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

    static ALWAYS_INLINE __m256i bytes(const uint8_t* from, int block, int group, int v) {
        const uint8_t* units = from + 576 + (block / 4 * 8 + group) * 384 + v / 2 * 192 + v % 2 * 32;
        const __m256i shifted = _mm256_srl_epi16(load_units(units + 128), _mm_cvtsi32_si128(block % 4 * 2));
        const __m256i pairs = _mm256_and_si256(shifted, _mm256_set1_epi8(3));
        return _mm256_or_si256(nibbles(units + block % 2 * 64, block % 4 / 2 * 4),
                               _mm256_slli_epi16(pairs, 4));
    }

    static ALWAYS_INLINE void unpack_scales(const uint8_t* from, int v, int32_t first, Piece& piece) {
        const __m256 d = load_halves(from + 512 + v * 16);
        for (int sub = 0; sub < 16; sub++) {
            const auto* bytes = reinterpret_cast<const __m128i*>(from + sub * 32 + v * 8);
            const __m256 whole = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(bytes)));
            piece.set_scale(2 * first + sub, v, _mm256_mul_ps(d, whole));
        }
    }
};

template <class Format>
ALWAYS_INLINE void unpack_scales(const uint8_t* from, int32_t first, Piece& piece) {
    UNROLL
    for (int v = 0; v < kVectors; v++) Format::unpack_scales(from, v, first, piece);
}

template <class Format>
void unpack(const uint8_t* from, int32_t num_blocks, Piece& piece) {
    for (int32_t first = 0; first < num_blocks; first += Format::kBlocks) {
        unpack_scales<Format>(from, first, piece);
        UNROLL
        for (int b = 0; b < Format::kBlocks; b++) {
            UNROLL
            for (int group = 0; group < 8; group++) {
                UNROLL
                for (int v = 0; v < kVectors; v++)
                    piece.set_units(first + b, group, v, Format::bytes(from, b, group, v));
            }
        }
        from += Format::kBlockBytes;
    }
}

// Keeps a vector in its register and where it is written: GCC 12 loads weights once per use, and moves plain
// additions behind all the products of a block, which then fill the stack.
ALWAYS_INLINE __m256i pinned(__m256i v) {
    asm("" : "+x"(v));
    return v;
}

// Sums of T tokens over kNum groups of four columns, as Products keeps them.
template <class Products, int kFirst, int kNum, int T, class Blocks>
ALWAYS_INLINE void add_groups(const Blocks& weights, const int8_t* a, size_t stride,
                              __m256i (&sum)[T][kVectors]) {
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < kVectors; v++) sum[t][v] = _mm256_setzero_si256();
    }
    UNROLL
    for (int group = kFirst; group < kFirst + kNum; group++) {
        __m256i x[T];
        UNROLL
        for (int t = 0; t < T; t++) {
            int32_t four;
            __builtin_memcpy(&four, a + t * stride + 4 * group, 4);
            x[t] = _mm256_set1_epi32(four);
        }
        UNROLL
        for (int v = 0; v < kVectors; v++) {
            const typename Products::Weight w = Products::weigh(pinned(weights.bytes(group, v)));
            UNROLL
            for (int t = 0; t < T; t++) sum[t][v] = Products::add(sum[t][v], w, x[t]);
        }
    }
}

// Exact dots of T tokens with groups [kFirst, kFirst + kNum), in runs of as many as Products can add up.
template <class Products, int kFirst, int kNum, int T, class Blocks>
ALWAYS_INLINE void dot_groups(const Blocks& weights, const int8_t* a, size_t stride,
                              __m256i (&dot)[T][kVectors]) {
    constexpr int kRun = kNum < Products::kMaxGroups ? kNum : Products::kMaxGroups;
    add_groups<Products, kFirst, kRun>(weights, a, stride, dot);
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < kVectors; v++) dot[t][v] = Products::finish(dot[t][v]);
    }
    if constexpr (kNum > kRun) {
        __m256i rest[T][kVectors];
        dot_groups<Products, kFirst + kRun, kNum - kRun>(weights, a, stride, rest);
        UNROLL
        for (int t = 0; t < T; t++) {
            UNROLL
            for (int v = 0; v < kVectors; v++) dot[t][v] = _mm256_add_epi32(dot[t][v], rest[t][v]);
        }
    }
}

// One block of T tokens' activations; their half totals where a block has two scales.
template <int kNumScales, bool kHasMinimum>
struct BlockInput {
    const int8_t* a8;
    size_t stride;
    const float* scales;
    const int32_t* totals;
    const float* scaled_totals;  // where blocks have minimums
    const int32_t* half_totals;
    size_t block_stride;

    ALWAYS_INLINE __m256 scale(int t) const { return _mm256_broadcast_ss(scales + t * block_stride); }
    ALWAYS_INLINE __m256i total(int t) const { return _mm256_set1_epi32(totals[t * block_stride]); }
    ALWAYS_INLINE __m256 scaled_total(int t) const {
        return _mm256_broadcast_ss(scaled_totals + t * block_stride);
    }
    ALWAYS_INLINE __m256i half_total(int t, int half) const {
        return _mm256_set1_epi32(half_totals[2 * t * block_stride + half]);
    }
    ALWAYS_INLINE void next() {
        a8 += kBlock;
        scales++;
        totals++;
        if constexpr (kHasMinimum) scaled_totals++;
        if constexpr (kNumScales == 2) half_totals += 2;
    }
};
template <class Blocks>
using InputOf = BlockInput<Blocks::kNumScales, Blocks::kHasMinimum>;

// sum += (dot - offset * total) * (d * scale), or dot * (d * scale) + m * (scale * total).
template <class Products, int T, class Blocks>
ALWAYS_INLINE void add_block(const Blocks& weights, const InputOf<Blocks>& in, __m256 (&sum)[T][kVectors]) {
    __m256i dot[T][kVectors];
    dot_groups<Products, 0, 8>(weights, in.a8, in.stride, dot);
    UNROLL
    for (int t = 0; t < T; t++) {
        const __m256 scale = in.scale(t);
        const __m256i offset = _mm256_slli_epi32(in.total(t), Blocks::kOffsetBits);
        UNROLL
        for (int v = 0; v < kVectors; v++) {
            __m256i exact = dot[t][v];
            if constexpr (!Blocks::kHasMinimum && Products::kKeepsOffset)
                exact = _mm256_sub_epi32(exact, offset);
            const __m256 d = _mm256_mul_ps(weights.scale(v), scale);
            sum[t][v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(exact), d, sum[t][v]);
        }
        if constexpr (Blocks::kHasMinimum) {
            const __m256 factor = in.scaled_total(t);
            UNROLL
            for (int v = 0; v < kVectors; v++)
                sum[t][v] = _mm256_fmadd_ps(weights.minimum(v), factor, sum[t][v]);
        }
    }
}

// Two scales per block: both scaled dots are added before the activation scale.
template <class Products, int T, class Blocks>
ALWAYS_INLINE void add_halves(const Blocks& weights, const InputOf<Blocks>& in, __m256 (&sum)[T][kVectors]) {
    __m256i dot[T][kVectors];
    __m256 scaled[T][kVectors];
    dot_groups<Products, 0, 4>(weights, in.a8, in.stride, dot);
    UNROLL
    for (int t = 0; t < T; t++) {
        const __m256i offset = _mm256_slli_epi32(in.half_total(t, 0), Blocks::kOffsetBits);
        UNROLL
        for (int v = 0; v < kVectors; v++) {
            const __m256 exact = _mm256_cvtepi32_ps(_mm256_sub_epi32(dot[t][v], offset));
            scaled[t][v] = _mm256_mul_ps(exact, weights.scale(v, 0));
        }
    }
    dot_groups<Products, 4, 4>(weights, in.a8, in.stride, dot);
    UNROLL
    for (int t = 0; t < T; t++) {
        const __m256i offset = _mm256_slli_epi32(in.half_total(t, 1), Blocks::kOffsetBits);
        const __m256 scale = in.scale(t);
        UNROLL
        for (int v = 0; v < kVectors; v++) {
            const __m256 exact = _mm256_cvtepi32_ps(_mm256_sub_epi32(dot[t][v], offset));
            const __m256 both = _mm256_fmadd_ps(exact, weights.scale(v, 1), scaled[t][v]);
            sum[t][v] = _mm256_fmadd_ps(both, scale, sum[t][v]);
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
        InputOf<Blocks> input = {in.a8 + first * in.a8_stride + first_block * kBlock,
                                 in.a8_stride,
                                 in.a8_scale + at,
                                 in.a8_sum + at,
                                 Blocks::kHasMinimum ? in.a8_scaled_sum + at : nullptr,
                                 Blocks::kNumScales == 2 ? in.a8_half_sum + 2 * at : nullptr,
                                 in.a8_block_stride};
        __m256 sum[T][kVectors];
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

template <template <int> class Products>
void linear_bytes(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens,
                  const OutputTile& out) {
    using Chosen = Products<PackedBytes::kMaxWeight>;
    for_each_tile<Chosen::kMaxTokens>(num_tokens,
                                      Int8Tile<Chosen, PackedBytes>{{panel}, K / kBlock, 0, in, out});
}

// Few tokens: every tile unpacks as it multiplies.
template <class Products, class Format>
void linear_packed(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens,
                   const OutputTile& out, Piece& piece) {
    if constexpr (Format::kBlocks == 1) {
        const Packed<Format> blocks(panel);
        for_each_tile<Products::kMaxTokens>(
            num_tokens, Int8Tile<Products, Packed<Format>>{blocks, K / kBlock, 0, in, out});
    } else {
        for (int32_t block = 0; block < K / kBlock; block += Format::kBlocks) {
            unpack_scales<Format>(panel, 0, piece);
            const PackedSuper<Format> blocks(piece, panel);
            for_each_tile<Products::kMaxTokens>(
                num_tokens, Int8Tile<Products, PackedSuper<Format>>{blocks, Format::kBlocks, block, in, out});
            panel += Format::kBlockBytes;
        }
    }
}

template <template <int> class Products, class Format>
void linear_pieces(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens,
                   const OutputTile& out, void* scratch) {
    using Chosen = Products<Format::kMaxWeight>;
    auto& piece = *static_cast<Piece*>(scratch);
    if (num_tokens < kMinPieceTokens)
        return linear_packed<Chosen, Format>(panel, K, in, num_tokens, out, piece);
    for (int32_t block = 0; block < K / kBlock; block += kPieceBlocks) {
        const int32_t left = K / kBlock - block, num = left < kPieceBlocks ? left : kPieceBlocks;
        unpack<Format>(panel + static_cast<size_t>(block / Format::kBlocks) * Format::kBlockBytes, num,
                       piece);
        const Unpacked<Format> blocks(piece);
        for_each_tile<Chosen::kMaxTokens>(num_tokens,
                                          Int8Tile<Chosen, Unpacked<Format>>{blocks, num, block, in, out});
    }
}

}  // namespace
}  // namespace twostroke::avx2
