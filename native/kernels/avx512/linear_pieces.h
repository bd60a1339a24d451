// Linear of 5-bit weights for many tokens: a piece of K at a time, its weights unpacked to bytes and its
// scales to floats once for all of them.
//
// Where a tile unpacks as it multiplies, 16 masked additions and as many moves of masks per block of 32 take
// a tenth of the time (measured: 42.8 against 47.0 MAC/cycle for Q5_0). Weights of 4 bits lose by it: what
// unpacks them finds idle pipes, while the bytes are twice to load. Integers, scales and the order of sums
// are those of few tokens.
#pragma once

#include <immintrin.h>

#include "kernels/avx512/int8_dots.h"

namespace twostroke::avx512 {
namespace {

constexpr int kTileTokens = 6;
// From so many tokens on unpacking pays.
constexpr int32_t kMinPieceTokens = 32;
// 32 KiB of bytes, which L2 delivers in time; with half as many, sums would be stored and loaded too often.
constexpr int32_t kPieceBlocks = 32;

// w = scale * (q - 2^kOffsetBits), or scale * q + minimum; units [block][group of 4 columns][32 rows][4].
struct alignas(64) Unpacked {
    uint8_t units[kPieceBlocks][8][4 * kPanelRows];
    float scales[kPieceBlocks][kPanelRows];
    float minimums[kPieceBlocks][kPanelRows];

    ALWAYS_INLINE void set_units(int32_t block, int group, int half, __m512i bytes) {
        _mm512_store_si512(units[block][group] + 64 * half, bytes);
    }
};
static_assert(sizeof(Unpacked) <= kLinearScratchBytes);

// A piece and the tokens that meet it.
template <class Format>
struct PieceTile {
    Unpacked& piece;
    int32_t first_block, num_blocks;
    const Activations& in;
    const OutputTile& out;
    int32_t num_tokens;
    const uint8_t* next;  // packed blocks of the piece to come

    // Every tile asks for its share of the next piece, which is read in one go: no hardware prefetcher would
    // have brought it meanwhile.
    template <int T>
    void prefetch_next(int32_t first) const {
        constexpr int32_t kBytes = kPieceBlocks * Format::kBytesPerBlock;
        const int32_t begin = kBytes / num_tokens * first, end = kBytes / num_tokens * (first + T);
        for (int32_t at = begin; at < end; at += 64) _mm_prefetch(next + at, _MM_HINT_T1);
    }

    template <int T>
    void compute(int32_t first) const {
        prefetch_next<T>(first);
        const uint8_t* w = piece.units[0][0];
        const float *scales = piece.scales[0], *minimums = piece.minimums[0];
        const int8_t* a = in.a8 + first * in.a8_stride + first_block * kBlock;
        const size_t at = first * in.a8_block_stride + first_block;
        const float* factors = in.a8_scale + at;
        const int32_t* sums = Format::kHasMin ? nullptr : in.a8_sum + at;
        const float* scaled_sums = Format::kHasMin ? in.a8_scaled_sum + at : nullptr;
        const size_t a_stride = in.a8_stride, block_stride = in.a8_block_stride;
        const OutputTile to = out;
        __m512 sum[T][2];
        UNROLL
        for (int t = 0; t < T; t++) {
            sum[t][0] = sum[t][1] = _mm512_setzero_ps();
            if (first_block > 0) to.load(first + t, sum[t]);
        }
        for (int32_t b = 0; b < num_blocks; b++) {
            __m512i dot[T][2];
            UNROLL
            for (int t = 0; t < T; t++) dot[t][0] = dot[t][1] = start<Format>(sums, t * block_stride);
            add_bytes<8, T>(dot, w, a, a_stride);
            add_scaled<T>(sum, dot, _mm512_load_ps(scales), _mm512_load_ps(scales + 16), factors,
                          block_stride);
            if constexpr (Format::kHasMin) {
                add_minimums<T>(sum, _mm512_load_ps(minimums), _mm512_load_ps(minimums + 16), scaled_sums,
                                block_stride);
                minimums += kPanelRows;
                scaled_sums++;
            } else {
                sums++;
            }
            w += kBlock * kPanelRows;
            scales += kPanelRows;
            a += kBlock;
            factors++;
        }
        UNROLL
        for (int t = 0; t < T; t++) to.store(first + t, sum[t][0], sum[t][1]);
    }
};

template <class Format>
void linear_pieces(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens,
                   const OutputTile& out, void* scratch) {
    Unpacked& piece = *static_cast<Unpacked*>(scratch);
    for (int32_t first = 0; first < K / kBlock; first += kPieceBlocks) {
        const int32_t left = K / kBlock - first, num = left < kPieceBlocks ? left : kPieceBlocks;
        for (int32_t b = 0; b < num; b += Format::kUnpackBlocks) {
            Format::unpack(panel, b, piece);
            panel += Format::kUnpackBlocks * Format::kBytesPerBlock;
        }
        for_each_tile<kTileTokens>(num_tokens,
                                   PieceTile<Format>{piece, first, num, in, out, num_tokens, panel});
    }
}

}  // namespace
}  // namespace twostroke::avx512
