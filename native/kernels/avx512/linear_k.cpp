// Linear for Q4_K, Q5_K and Q6_K: unsigned weights x signed activations, one or a few super-blocks of 256
// columns at a time.
//
// Their scales, and the quants of Q6_K, are decoded once into scratch that stays close; all tokens of a chunk
// pass over it, their sums waiting in scratch from piece to piece. Decoded scales are exact: 11 bits of d
// times 6 or 8 bits.
#include <immintrin.h>

#include "kernels/avx512/int8_dots.h"
#include "kernels/avx512/linear_entries.h"
#include "kernels/avx512/linear_pieces.h"

namespace twostroke::avx512 {
namespace {

constexpr int32_t kColumns = 256;
constexpr int kBlocks = kColumns / kBlock;
constexpr int32_t kChunkTokens = 128;  // their sums are 16 KiB
constexpr int kMostSupers = 8;         // super-blocks of a piece

struct alignas(64) Scratch {
    float scales[kMostSupers * kBlocks][kPanelRows];  // per 32 columns, or per 16 (Q6_K)
    float mins[kMostSupers * kBlocks][kPanelRows];
    int32_t starts[4][16];  // per token of a tile and 16 columns (Q6_K)
    uint8_t quants[kColumns * kPanelRows];
    float sums[kChunkTokens][kPanelRows];
};
static_assert(sizeof(Scratch) <= kLinearScratchBytes);

// Super-blocks of a panel, and the tokens of a chunk that meet them.
struct Piece {
    const uint8_t* block;
    int32_t num_supers;
    bool is_first, is_last;
    const Activations& in;
    size_t columns_at, blocks_at;  // of the chunk's first token, at the first super-block
    const OutputTile& out;
    Scratch& scratch;

    // Activations of token `first` and the scale of each of their blocks.
    const int8_t* a8(int32_t first) const { return in.a8 + columns_at + first * in.a8_stride; }
    const float* scale(int32_t first) const { return in.a8_scale + block_of(first); }
    const float* scaled_sum(int32_t first) const { return in.a8_scaled_sum + block_of(first); }
    size_t block_of(int32_t first) const { return blocks_at + first * in.a8_block_stride; }

    // Part `part` of kParts of the super-block after the next. The first tile of a chunk asks for it: it
    // computes too long per byte for the hardware prefetcher (measured at six tokens: +13 % Q4_K, +75 %
    // Q6_K).
    template <int kBlockBytes, int kParts>
    ALWAYS_INLINE void prefetch(int part) const {
        prefetch_lines(block + 2 * kBlockBytes + kBlockBytes / kParts * part, kBlockBytes / kParts);
    }

    template <int T>
    ALWAYS_INLINE void load(int32_t first, __m512 (&sums)[T][2]) const {
        UNROLL
        for (int t = 0; t < T; t++) {
            const float* at = scratch.sums[first + t];
            sums[t][0] = is_first ? _mm512_setzero_ps() : _mm512_load_ps(at);
            sums[t][1] = is_first ? _mm512_setzero_ps() : _mm512_load_ps(at + 16);
        }
    }

    template <int T>
    ALWAYS_INLINE void store(int32_t first, const __m512 (&sums)[T][2]) const {
        UNROLL
        for (int t = 0; t < T; t++) {
            if (is_last) {
                out.store(first + t, sums[t][0], sums[t][1]);
            } else {
                _mm512_store_ps(scratch.sums[first + t], sums[t][0]);
                _mm512_store_ps(scratch.sums[first + t] + 16, sums[t][1]);
            }
        }
    }
};

// Q4_K and Q5_K: w = d * scale * q - dmin * min, both of 6 bits, as the file has them in 12 bytes per row.
template <bool kHasFifth>
struct K4 {
    static constexpr int kUnitsAt = kHasFifth ? 256 : 0;  // in a pair of blocks, after the 5th bits
    static constexpr int kPairBytes = kUnitsAt + 1024, kPairsAt = 512;
    static constexpr int kBlockBytes = kPairsAt + 4 * kPairBytes;
    static constexpr int kMaxTokens = 6;
    static constexpr int kMinPrefetchTokens = 4;
    // So few tokens have registers for the dots of both blocks of a pair.
    static constexpr int kMaxOnePass = 3;
    static constexpr bool kHasMin = true;
    static constexpr bool kUnpacks = kHasFifth;
    static constexpr int kUnpackBlocks = kBlocks, kBytesPerBlock = kBlockBytes / kBlocks;

    static ALWAYS_INLINE void unpack(const uint8_t* block, int32_t first, Unpacked& piece) {
        decode_scales(block, piece.scales + first, piece.minimums + first);
        for (int pair = 0; pair < kBlocks / 2; pair++) {
            const uint8_t* masks = block + kPairsAt + kPairBytes * pair;
            UNROLL
            for (int j = 0; j < 8; j++) {
                UNROLL
                for (int r = 0; r < 2; r++) {
                    const uint8_t *unit = masks + kUnitsAt + 128 * j + 64 * r, *mask = masks + 16 * j + 8 * r;
                    piece.set_units(first + 2 * pair, j, r, nibbles<false, kHasFifth>(unit, mask));
                    piece.set_units(first + 2 * pair + 1, j, r, nibbles<true, kHasFifth>(unit, mask + 128));
                }
            }
        }
    }

    // From so many tokens on.
    static constexpr int32_t kMinManyTokens = 7;

    const Piece& piece;
    int32_t num_tokens;

    // Four numbers of 6 bits per row, times one of 16 rows, for blocks [first, first + 4).
    static ALWAYS_INLINE void decode_four(__m512i bytes, __m512 factor, int half, int first,
                                          float (*out)[kPanelRows]) {
        const __m512i byte = _mm512_set1_epi32(255);
        UNROLL
        for (int i = 0; i < 4; i++) {
            const __m512i six = _mm512_and_si512(_mm512_srli_epi32(bytes, 8 * i), byte);
            _mm512_store_ps(out[first + i] + 16 * half, _mm512_mul_ps(factor, _mm512_cvtepi32_ps(six)));
        }
    }

    // The minimums come out negative.
    static ALWAYS_INLINE void decode_scales(const uint8_t* block, float (*scales)[kPanelRows],
                                            float (*minimums)[kPanelRows]) {
        const __m512i six = _mm512_set1_epi8(0x3f), low = _mm512_set1_epi8(0x0f),
                      top = _mm512_set1_epi8(0x30);
        UNROLL
        for (int r = 0; r < 2; r++) {
            const __m512i x = _mm512_load_si512(block + 64 * r), y = _mm512_load_si512(block + 128 + 64 * r),
                          z = _mm512_load_si512(block + 256 + 64 * r);
            const __m512 d = load_halves(block + 384 + 32 * r);
            const __m512 dmin = _mm512_xor_ps(load_halves(block + 448 + 32 * r), _mm512_set1_ps(-0.0f));
            const __m512i late_scales =
                _mm512_or_si512(_mm512_and_si512(z, low), _mm512_and_si512(_mm512_srli_epi32(x, 2), top));
            const __m512i late_mins = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(z, 4), low),
                                                      _mm512_and_si512(_mm512_srli_epi32(y, 2), top));
            decode_four(_mm512_and_si512(x, six), d, r, 0, scales);
            decode_four(late_scales, d, r, 4, scales);
            decode_four(_mm512_and_si512(y, six), dmin, r, 0, minimums);
            decode_four(late_mins, dmin, r, 4, minimums);
        }
    }

    // Many tokens pass over several super-blocks at once: their sums are loaded and stored less often.
    static constexpr int32_t supers_for(int32_t num_tokens) {
        return num_tokens >= kMinManyTokens ? kMostSupers : 1;
    }

    static ALWAYS_INLINE void run(const Piece& piece, int32_t num_tokens) {
        for (int32_t i = 0; i < piece.num_supers; i++)
            decode_scales(piece.block + i * kBlockBytes, piece.scratch.scales + i * kBlocks,
                          piece.scratch.mins + i * kBlocks);
        for_each_tile<kMaxTokens>(num_tokens, K4{piece, num_tokens});
    }

    // Where the tokens of a tile are in a piece.
    struct Place {
        const uint8_t* pair;
        const float *scales, *mins;
        const int8_t* a;
        const float *factors, *scaled_sums;  // of activations

        ALWAYS_INLINE void next_pair() {
            pair += kPairBytes;
            scales += 2 * kPanelRows;
            mins += 2 * kPanelRows;
            a += 2 * kBlock;
            factors += 2;
            scaled_sums += 2;
        }
    };

    template <int T>
    static ALWAYS_INLINE void clear(__m512i (&dot)[T][2]) {
        UNROLL
        for (int t = 0; t < T; t++) dot[t][0] = dot[t][1] = _mm512_setzero_si512();
    }

    // Four columns of a block; those of a pair are the low and the high nibbles of the same bytes.
    template <bool kHigh, int T>
    ALWAYS_INLINE void add_columns(const Place& at, int j, __m512i (&dot)[T][2]) const {
        add_nibble_group<kHigh, kHasFifth, T>(dot, at.pair + kUnitsAt + 128 * j,
                                              at.pair + 128 * kHigh + 16 * j, at.a + kBlock * kHigh + 4 * j,
                                              piece.in.a8_stride);
    }

    template <bool kHigh, int T>
    ALWAYS_INLINE void add_block(const Place& at, const __m512i (&dot)[T][2], __m512 (&sum)[T][2]) const {
        const float *scales = at.scales + kPanelRows * kHigh, *mins = at.mins + kPanelRows * kHigh;
        const size_t stride = piece.in.a8_block_stride;
        add_scaled<T>(sum, dot, _mm512_load_ps(scales), _mm512_load_ps(scales + 16), at.factors + kHigh,
                      stride);
        add_minimums<T>(sum, _mm512_load_ps(mins), _mm512_load_ps(mins + 16), at.scaled_sums + kHigh, stride);
    }

    template <int T>
    ALWAYS_INLINE void add_pair(const Place& at, __m512 (&sum)[T][2]) const {
        __m512i low[T][2];
        clear<T>(low);
        if constexpr (T <= kMaxOnePass) {
            __m512i high[T][2];
            clear<T>(high);
            UNROLL
            for (int j = 0; j < 8; j++) {
                add_columns<false, T>(at, j, low);
                add_columns<true, T>(at, j, high);
            }
            add_block<false, T>(at, low, sum);
            add_block<true, T>(at, high, sum);
        } else {
            UNROLL
            for (int j = 0; j < 8; j++) add_columns<false, T>(at, j, low);
            add_block<false, T>(at, low, sum);
            clear<T>(low);
            UNROLL
            for (int j = 0; j < 8; j++) add_columns<true, T>(at, j, low);
            add_block<true, T>(at, low, sum);
        }
    }

    // Several tiles ask for the next piece, each for its share; one alone for what lies two super-blocks
    // ahead (measured at six tokens: +13 %).
    struct Ahead {
        const uint8_t* next;
        int32_t num_lines;  // beside each pair
    };

    template <int T>
    Ahead ahead(int32_t first) const {
        constexpr int32_t kLines = kBlockBytes / 64;
        if (num_tokens == T)
            return {piece.block + 2 * kBlockBytes, T >= kMinPrefetchTokens ? kLines / (kBlocks / 2) : 0};
        const int32_t line = piece.num_supers * kLines * first / num_tokens;
        return {piece.block + piece.num_supers * kBlockBytes + 64 * line,
                (kLines / (kBlocks / 2) * T + num_tokens - 1) / num_tokens};
    }

    template <int T>
    void compute(int32_t first) const {
        auto [next, num_lines] = ahead<T>(first);
        Place at = {piece.block + kPairsAt, piece.scratch.scales[0], piece.scratch.mins[0],
                    piece.a8(first),        piece.scale(first),      piece.scaled_sum(first)};
        __m512 sum[T][2];
        piece.load<T>(first, sum);
        for (int32_t i = 0; i < piece.num_supers; i++) {
            for (int pair = 0; pair < kBlocks / 2; pair++) {
                for (int32_t line = 0; line < num_lines; line++, next += 64) _mm_prefetch(next, _MM_HINT_T1);
                add_pair<T>(at, sum);
                at.next_pair();
            }
            at.pair += kPairsAt;
        }
        piece.store<T>(first, sum);
    }
};

// Q6_K: w = d * scale * (q - 32), a scale of 8 bits per 16 columns. The two scaled dots of a block of 32 are
// added before the activation scale, one multiplication less; their sums make four tokens fill the registers.
struct Q6_K {
    static constexpr int kBlockBytes = 6720;
    static constexpr bool kUnpacks = false;
    static constexpr int kMaxTokens = 4;
    static constexpr int kMaxDirectTokens = 2;
    static constexpr int kHalfBytes = 512;  // of decoded quants: 16 columns, 32 rows

    const Piece& piece;

    // Nibbles in place 0..3, a pair of bits in place 4 and 5.
    static ALWAYS_INLINE __m512i join(__m512i nibbles, __m512i pairs) {
        const __m512i bits = _mm512_and_si512(pairs, _mm512_set1_epi8(0x30));
        return _mm512_ternarylogic_epi32(bits, nibbles, _mm512_set1_epi8(0x0f), 0xf8);  // a | (b & c)
    }

    // One unit of each quarter of a half of 128 columns: columns c, c + 32, c + 64 and c + 96.
    static ALWAYS_INLINE void decode_units(const uint8_t* units, __m512i (&quarters)[4]) {
        const __m512i x = _mm512_load_si512(units), y = _mm512_load_si512(units + 64),
                      pairs = _mm512_load_si512(units + 128);
        quarters[0] = join(x, _mm512_slli_epi16(pairs, 4));
        quarters[1] = join(y, _mm512_slli_epi16(pairs, 2));
        quarters[2] = join(_mm512_srli_epi16(x, 4), pairs);
        quarters[3] = join(_mm512_srli_epi16(y, 4), _mm512_srli_epi16(pairs, 2));
    }

    // Columns 4j.. of every quarter of a half, rows of half r.
    static ALWAYS_INLINE const uint8_t* units_of(const uint8_t* block, int half, int j, int r) {
        return block + 576 + 192 * (16 * half + 2 * j + r);
    }

    static constexpr int32_t supers_for(int32_t) { return 1; }

    static ALWAYS_INLINE void decode_scales(const uint8_t* block, Scratch& scratch) {
        const __m512 d[2] = {load_halves(block + 512), load_halves(block + 544)};
        for (int sub = 0; sub < 16; sub++) {
            UNROLL
            for (int r = 0; r < 2; r++) {
                const auto* bytes = reinterpret_cast<const __m128i*>(block + 32 * sub + 16 * r);
                const __m512 eight = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128(bytes)));
                _mm512_store_ps(scratch.scales[sub] + 16 * r, _mm512_mul_ps(d[r], eight));
            }
        }
    }

    static ALWAYS_INLINE void decode_quants(const uint8_t* block, uint8_t* quants) {
        for (int half = 0; half < 2; half++) {
            UNROLL
            for (int j = 0; j < 8; j++) {
                UNROLL
                for (int r = 0; r < 2; r++) {
                    __m512i quarters[4];
                    decode_units(units_of(block, half, j, r), quarters);
                    uint8_t* out = quants + 4096 * half + 128 * j + 64 * r;
                    UNROLL
                    for (int quarter = 0; quarter < 4; quarter++)
                        _mm512_store_si512(out + 1024 * quarter, quarters[quarter]);
                }
            }
        }
    }

    // Few tokens take the quants straight from the registers, one token after the other: then memory is read
    // all the time, not in bursts between computations.
    static ALWAYS_INLINE void run(const Piece& piece, int32_t num_tokens) {
        decode_scales(piece.block, piece.scratch);
        if (num_tokens <= kMaxDirectTokens) {
            for_each_tile<1>(num_tokens, Direct{piece});
            return;
        }
        decode_quants(piece.block, piece.scratch.quants);
        for_each_tile<kMaxTokens>(num_tokens, Q6_K{piece});
    }

    struct Direct {
        const Piece& piece;

        // Every quarter's 16 columns of one parity: its scaled dots, or those added to the ones before.
        template <int kOdd>
        ALWAYS_INLINE void scale_dots(int half, const int8_t* a, __m512 (&scaled)[4][2]) const {
            __m512i dot[4][2];
            UNROLL
            for (int quarter = 0; quarter < 4; quarter++) {
                dot[quarter][0] = dot[quarter][1] =
                    _mm512_set1_epi32(piece.scratch.starts[0][8 * half + 2 * quarter + kOdd]);
            }
            UNROLL
            for (int j = 4 * kOdd; j < 4 * kOdd + 4; j++) {
                UNROLL
                for (int r = 0; r < 2; r++) {
                    __m512i quarters[4];
                    decode_units(units_of(piece.block, half, j, r), quarters);
                    UNROLL
                    for (int quarter = 0; quarter < 4; quarter++) {
                        const __m512i x = broadcast_four(a + kBlock * quarter + 4 * j);
                        dot[quarter][r] = _mm512_dpbusd_epi32(dot[quarter][r], quarters[quarter], x);
                    }
                }
            }
            UNROLL
            for (int quarter = 0; quarter < 4; quarter++) {
                UNROLL
                for (int r = 0; r < 2; r++) {
                    const __m512 scale =
                        _mm512_load_ps(piece.scratch.scales[8 * half + 2 * quarter + kOdd] + 16 * r);
                    const __m512 x = _mm512_cvtepi32_ps(dot[quarter][r]);
                    scaled[quarter][r] =
                        kOdd ? _mm512_fmadd_ps(x, scale, scaled[quarter][r]) : _mm512_mul_ps(x, scale);
                }
            }
        }

        template <int T>
        void compute(int32_t token) const {
            prepare<1>(piece, token);
            __m512 sum[1][2];
            piece.load<1>(token, sum);
            for (int half = 0; half < 2; half++) {
                const int8_t* a = piece.a8(token) + 128 * half;
                __m512 scaled[4][2];
                scale_dots<0>(half, a, scaled);
                scale_dots<1>(half, a, scaled);
                UNROLL
                for (int quarter = 0; quarter < 4; quarter++) {
                    const __m512 x = _mm512_set1_ps(piece.scale(token)[4 * half + quarter]);
                    sum[0][0] = _mm512_fmadd_ps(scaled[quarter][0], x, sum[0][0]);
                    sum[0][1] = _mm512_fmadd_ps(scaled[quarter][1], x, sum[0][1]);
                }
            }
            piece.store<1>(token, sum);
        }
    };

    // Starts of the dots: -32 times the sum of 16 activations.
    template <int T>
    static ALWAYS_INLINE void prepare(const Piece& piece, int32_t first) {
        for (int t = 0; t < T; t++) {
            const __m512i sum = _mm512_loadu_si512(piece.in.a8_half_sum + 2 * piece.block_of(first + t));
            const __m512i start = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sum, 5));
            _mm512_store_si512(piece.scratch.starts[t], start);
        }
    }

    template <int T>
    ALWAYS_INLINE void dot_half(int sub, int32_t first, __m512i (&dot)[T][2]) const {
        UNROLL
        for (int t = 0; t < T; t++) dot[t][0] = dot[t][1] = _mm512_set1_epi32(piece.scratch.starts[t][sub]);
        add_bytes<4, T>(dot, piece.scratch.quants + kHalfBytes * sub, piece.a8(first) + 16 * sub,
                        piece.in.a8_stride);
    }

    template <int T>
    ALWAYS_INLINE void add(int b, int32_t first, __m512 (&sum)[T][2]) const {
        const float *even = piece.scratch.scales[2 * b], *odd = piece.scratch.scales[2 * b + 1];
        __m512i dot[T][2];
        __m512 scaled[T][2];
        dot_half<T>(2 * b, first, dot);
        UNROLL
        for (int t = 0; t < T; t++) {
            scaled[t][0] = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[t][0]), _mm512_load_ps(even));
            scaled[t][1] = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[t][1]), _mm512_load_ps(even + 16));
        }
        dot_half<T>(2 * b + 1, first, dot);
        const float* scales = piece.scale(first) + b;
        UNROLL
        for (int t = 0; t < T; t++) {
            const __m512 x = _mm512_set1_ps(scales[t * piece.in.a8_block_stride]);
            scaled[t][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t][0]), _mm512_load_ps(odd), scaled[t][0]);
            scaled[t][1] =
                _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t][1]), _mm512_load_ps(odd + 16), scaled[t][1]);
            sum[t][0] = _mm512_fmadd_ps(scaled[t][0], x, sum[t][0]);
            sum[t][1] = _mm512_fmadd_ps(scaled[t][1], x, sum[t][1]);
        }
    }

    template <int T>
    void compute(int32_t first) const {
        prepare<T>(piece, first);
        __m512 sum[T][2];
        piece.load<T>(first, sum);
        for (int b = 0; b < kBlocks; b++) {
            if (first == 0) piece.prefetch<kBlockBytes, kBlocks>(b);
            add<T>(b, first, sum);
        }
        piece.store<T>(first, sum);
    }
};

template <class Format>
void linear(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
            size_t out_stride, int32_t num_rows, void* memory) {
    if constexpr (Format::kUnpacks) {
        if (num_tokens >= kMinPieceTokens)
            return linear_pieces<Format>(panel, K, in, num_tokens, {out, out_stride, num_rows}, memory);
    }
    Scratch& scratch = *static_cast<Scratch*>(memory);
    const int32_t num_supers = K / kColumns;
    for (int32_t start = 0; start < num_tokens; start += kChunkTokens) {
        const int32_t left = num_tokens - start, count = left < kChunkTokens ? left : kChunkTokens;
        const int32_t most = Format::supers_for(count);
        const OutputTile output(out + start * out_stride, out_stride, num_rows);
        for (int32_t index = 0; index < num_supers; index += most) {
            const int32_t rest = num_supers - index;
            const Piece piece = {panel + static_cast<size_t>(index) * Format::kBlockBytes,
                                 rest < most ? rest : most,
                                 index == 0,
                                 rest <= most,
                                 in,
                                 start * in.a8_stride + index * kColumns,
                                 start * in.a8_block_stride + index * kBlocks,
                                 output,
                                 scratch};
            Format::run(piece, count);
        }
    }
}

}  // namespace

void linear_q4_k(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear<K4<false>>(panel, K, in, num_tokens, out, out_stride, num_rows, scratch);
}

void linear_q5_k(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear<K4<true>>(panel, K, in, num_tokens, out, out_stride, num_rows, scratch);
}

void linear_q6_k(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear<Q6_K>(panel, K, in, num_tokens, out, out_stride, num_rows, scratch);
}

}  // namespace twostroke::avx512
