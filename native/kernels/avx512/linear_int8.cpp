// Linear for Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1: unsigned weights x signed activations per 32.
//
// Twelve int32 sums, twelve fp32 sums, two weights, one activation and two constants fill 29 of the 32
// registers at T = 6; more tokens spill. Per block the int32 sums start at -offset * sum(a), which keeps the
// dot exact and takes none of the multiplications that bound a tile.
#include <immintrin.h>

#include "kernels/avx512/int8_dots.h"
#include "kernels/avx512/linear_entries.h"
#include "kernels/avx512/linear_pieces.h"
#include "pack.h"

namespace twostroke::avx512 {
namespace {

constexpr int kMaxTokens = 6;

// Blocks as packed (pack.h): 5th bits where the type has them, quants, 32 scales, 32 minimums where the type
// has them.
struct Q8_0 {
    static constexpr int kBlockBytes = 1088, kScalesAt = 1024;
    static constexpr bool kHasNibbles = false, kHasMin = false;
    static constexpr int kOffsetBits = 7;
    static constexpr bool kUnpacks = false;

    template <int T>
    static ALWAYS_INLINE void add(__m512i (&dot)[T][2], const uint8_t* w, const int8_t* a, size_t stride) {
        add_bytes<8, T>(dot, w, a, stride);
    }
};

// Low nibbles are columns 0..15, high ones 16..31.
template <bool kHasFifth, bool kHasMinimum>
struct Nibbles {
    static constexpr int kScalesAt = kHasFifth ? 640 : 512;
    static constexpr int kBlockBytes = kScalesAt + (kHasMinimum ? 128 : 64);
    static constexpr bool kHasNibbles = true, kHasMin = kHasMinimum;
    static constexpr int kOffsetBits = kHasFifth ? 4 : 3;
    static constexpr bool kUnpacks = kHasFifth;
    static constexpr int kUnpackBlocks = 1, kBytesPerBlock = kBlockBytes;

    static ALWAYS_INLINE void unpack(const uint8_t* w, int32_t block, Unpacked& piece) {
        const uint8_t* units = w + (kHasFifth ? 128 : 0);
        UNROLL
        for (int j = 0; j < 4; j++) {
            UNROLL
            for (int r = 0; r < 2; r++) {
                const uint8_t *unit = units + 128 * j + 64 * r, *masks = w + 16 * j + 8 * r;
                piece.set_units(block, j, r, nibbles<false, kHasFifth>(unit, masks));
                piece.set_units(block, j + 4, r, nibbles<true, kHasFifth>(unit, masks + 64));
            }
        }
        UNROLL
        for (int r = 0; r < 2; r++) {
            _mm512_store_ps(piece.scales[block] + 16 * r, load_halves(w + kScalesAt + 32 * r));
            if constexpr (kHasMinimum)
                _mm512_store_ps(piece.minimums[block] + 16 * r, load_halves(w + kScalesAt + 64 + 32 * r));
        }
    }

    template <int T>
    static ALWAYS_INLINE void add(__m512i (&dot)[T][2], const uint8_t* w, const int8_t* a, size_t stride) {
        const uint8_t* units = w + (kHasFifth ? 128 : 0);
        UNROLL
        for (int j = 0; j < 4; j++) {
            add_nibble_group<false, kHasFifth, T>(dot, units + 128 * j, w + 16 * j, a + 4 * j, stride);
            add_nibble_group<true, kHasFifth, T>(dot, units + 128 * j, w + 16 * (j + 4), a + 16 + 4 * j,
                                                 stride);
        }
    }
};

using Q4_0 = Nibbles<false, false>;
using Q4_1 = Nibbles<false, true>;
using Q5_0 = Nibbles<true, false>;
using Q5_1 = Nibbles<true, true>;

// How far ahead a block is asked for when T tokens are computed; 0: the hardware prefetcher alone is faster.
// Two or more tokens compute so long per byte of nibbles that it falls behind (measured from huge pages: +15
// % for a whole step of two, one loses 4 %); for one token of Q8_0 it does not reach far enough (+10 %).
template <class Format, int T>
constexpr int kPrefetchBytes = Format::kHasNibbles ? (T >= 2 ? 8192 : 0) : (T == 1 ? 4096 : 0);

template <class Format>
struct Tile {
    const uint8_t* panel;
    int32_t num_blocks;
    const Activations& in;
    const OutputTile& out;
    int32_t num_tokens;

    // Several tiles ask for the next panel, each for its share, and find their own in the caches: memory
    // never rests. One alone has nothing to do meanwhile but wait.
    struct Ahead {
        const uint8_t* next;
        int32_t num_lines;  // beside each block
    };

    template <int T>
    Ahead ahead(int32_t first) const {
        if (num_tokens == T) return {panel, 0};
        const int32_t block_lines = Format::kBlockBytes / 64;
        const int32_t line = num_blocks * block_lines * first / num_tokens;
        return {panel + num_blocks * Format::kBlockBytes + 64 * line,
                (block_lines * T + num_tokens - 1) / num_tokens};
    }

    template <int T>
    void compute(int32_t first) const {
        auto [next, num_lines] = ahead<T>(first);
        const uint8_t* w = panel;
        const int8_t* a = in.a8 + first * in.a8_stride;
        const float* scales = in.a8_scale + first * in.a8_block_stride;
        const int32_t* sums = Format::kHasMin ? nullptr : in.a8_sum + first * in.a8_block_stride;
        const float* scaled_sums = Format::kHasMin ? in.a8_scaled_sum + first * in.a8_block_stride : nullptr;
        const size_t a_stride = in.a8_stride, block_stride = in.a8_block_stride;
        const OutputTile to = out;
        __m512 sum[T][2];
        UNROLL
        for (int t = 0; t < T; t++) sum[t][0] = sum[t][1] = _mm512_setzero_ps();
        for (int32_t b = 0; b < num_blocks; b++) {
            __m512i dot[T][2];
            UNROLL
            for (int t = 0; t < T; t++) dot[t][0] = dot[t][1] = start<Format>(sums, t * block_stride);
            Format::template add<T>(dot, w, a, a_stride);
            add_scaled<T>(sum, dot, load_halves(w + Format::kScalesAt),
                          load_halves(w + Format::kScalesAt + 32), scales, block_stride);
            if constexpr (Format::kHasMin) {
                const uint8_t* minimums = w + Format::kScalesAt + 64;
                add_minimums<T>(sum, load_halves(minimums), load_halves(minimums + 32), scaled_sums,
                                block_stride);
                scaled_sums++;
            } else {
                sums++;
            }
            if (kPrefetchBytes<Format, T> != 0 && num_tokens == T)
                prefetch_lines(w + kPrefetchBytes<Format, T>, Format::kBlockBytes);
            for (int32_t line = 0; line < num_lines; line++, next += 64) _mm_prefetch(next, _MM_HINT_T1);
            w += Format::kBlockBytes;
            a += kBlock;
            scales++;
        }
        UNROLL
        for (int t = 0; t < T; t++) to.store(first + t, sum[t][0], sum[t][1]);
    }
};

template <class Format>
void linear(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
            size_t out_stride, int32_t num_rows, void* scratch) {
    const int32_t num_blocks = K / kBlock;
    const OutputTile output(out, out_stride, num_rows);
    if constexpr (Format::kUnpacks) {
        if (num_tokens >= kMinPieceTokens)
            return linear_pieces<Format>(panel, K, in, num_tokens, output, scratch);
    }
    for_each_tile<kMaxTokens>(num_tokens, Tile<Format>{panel, num_blocks, in, output, num_tokens});
}

}  // namespace

void linear_q8_0(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear<Q8_0>(panel, K, in, num_tokens, out, out_stride, num_rows, scratch);
}

void linear_q4_0(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear<Q4_0>(panel, K, in, num_tokens, out, out_stride, num_rows, scratch);
}

void linear_q4_1(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear<Q4_1>(panel, K, in, num_tokens, out, out_stride, num_rows, scratch);
}

void linear_q5_0(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear<Q5_0>(panel, K, in, num_tokens, out, out_stride, num_rows, scratch);
}

void linear_q5_1(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear<Q5_1>(panel, K, in, num_tokens, out, out_stride, num_rows, scratch);
}

}  // namespace twostroke::avx512
