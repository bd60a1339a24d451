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

// w = scale * (q - offset), or scale * q + minimum; units [block][group of 4 columns][32 rows][4].
struct alignas(64) Unpacked {
    uint8_t units[kPieceBlocks][8][4 * kPanelRows];
    float scales[kPieceBlocks][kPanelRows];
    float minimums[kPieceBlocks][kPanelRows];
    int32_t corrections[kTileTokens][kPieceBlocks];

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

    // What a block adds beside its dot, per token: the start of the int32 sums (-offset * sum), or the factor
    // of the minimum (scale * sum) as the bits of a float.
    template <int T>
    void prepare_corrections(int32_t first) const {
        UNROLL
        for (int32_t t = 0; t < T; t++) {
            const size_t from = (first + t) * in.a8_block_stride + first_block;
            for (int32_t b = 0; b < num_blocks; b += 16) {
                const __mmask16 valid = first_lanes(num_blocks - b);
                const __m512i sum = _mm512_maskz_loadu_epi32(valid, in.a8_sum + from + b);
                __m512i correction;
                if constexpr (Format::kHasMin) {
                    const __m512 scale = _mm512_maskz_loadu_ps(valid, in.a8_scale + from + b);
                    correction = _mm512_castps_si512(_mm512_mul_ps(scale, _mm512_cvtepi32_ps(sum)));
                } else {
                    correction = _mm512_mullo_epi32(sum, _mm512_set1_epi32(-Format::kOffset));
                }
                _mm512_store_si512(piece.corrections[t] + b, correction);
            }
        }
    }

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
        prepare_corrections<T>(first);
        prefetch_next<T>(first);
        const uint8_t* w = piece.units[0][0];
        const float *scales = piece.scales[0], *minimums = piece.minimums[0];
        const int8_t* a = in.a8 + first * in.a8_stride + first_block * kBlock;
        const float* factors = in.a8_scale + first * in.a8_block_stride + first_block;
        const int32_t* fixes = piece.corrections[0];
        const size_t a_stride = in.a8_stride, factor_stride = in.a8_block_stride;
        __m512 sum[T][2];
        UNROLL
        for (int t = 0; t < T; t++) {
            sum[t][0] = sum[t][1] = _mm512_setzero_ps();
            if (first_block > 0) out.load(first + t, sum[t]);
        }
        for (int32_t b = 0; b < num_blocks; b++) {
            __m512i dot[T][2];
            UNROLL
            for (int t = 0; t < T; t++) {
                dot[t][0] = dot[t][1] =
                    Format::kHasMin ? _mm512_setzero_si512() : _mm512_set1_epi32(fixes[t * kPieceBlocks]);
            }
            add_bytes<8, T>(dot, w, a, a_stride);
            add_scaled<T>(sum, dot, _mm512_load_ps(scales), _mm512_load_ps(scales + 16), factors,
                          factor_stride);
            if constexpr (Format::kHasMin) {
                add_minimums<T>(sum, _mm512_load_ps(minimums), _mm512_load_ps(minimums + 16), fixes,
                                kPieceBlocks);
                minimums += kPanelRows;
            }
            w += kBlock * kPanelRows;
            scales += kPanelRows;
            a += kBlock;
            factors++;
            fixes++;
        }
        UNROLL
        for (int t = 0; t < T; t++) out.store(first + t, sum[t][0], sum[t][1]);
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
