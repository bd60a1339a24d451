// Linear for BF16, and for Q5_0, Q5_1, Q4_K, Q5_K, Q6_K through bf16: exact float32 weights, rounded once.
//
// A tile is 32 rows x T tokens, lane = row; a unit of weights is [16 rows][2 columns]. Sixteen chains at T =
// 8 hide the latency (6) of two vdpbf16ps per cycle. A quantised panel is unpacked 256 columns at a time into
// scratch that stays in L1, and all tokens pass over it; one or two tokens take it straight from the
// registers. Either way an output is the same chain of pairs in K order.
#include <immintrin.h>

#include "kernels/avx512/linear_entries.h"
#include "kernels/avx512/linear_parts.h"

namespace twostroke {
namespace {

constexpr int kMaxTokens = 8;
// More tokens than this share one unpacked piece; fewer take the weights straight from the registers.
constexpr int kMaxDirectTokens = 4;
// The direct path computes too long per byte for the hardware prefetcher: measured +45 % for one token.
constexpr int kPrefetchBytes = 4096;
constexpr int32_t kPieceColumns = 256;
constexpr int kPairBytes = 128;  // one pair of columns, 32 rows

ALWAYS_INLINE __m512bh broadcast_pair(const uint16_t* a) {
    int32_t pair;
    __builtin_memcpy(&pair, a, 4);
    return (__m512bh)_mm512_set1_epi32(pair);
}

// Columns [first_k, first_k + 2 * num_pairs) of a bf16 panel for T tokens; continues the sums in `out` unless
// they are the first columns.
struct PairTile {
    const uint8_t* units;
    int32_t num_pairs;
    int32_t first_k;
    const Activations& in;
    const OutputTile& out;

    template <int T>
    void compute(int32_t first) const {
        const uint16_t* a = in.bf16 + first * in.bf16_stride + first_k;
        const size_t stride = in.bf16_stride;
        const uint8_t* w = units;
        __m512 sum[T][2];
        UNROLL
        for (int t = 0; t < T; t++) {
            sum[t][0] = first_k == 0 ? _mm512_setzero_ps() : out.load0(first + t);
            sum[t][1] = first_k == 0 ? _mm512_setzero_ps() : out.load1(first + t);
        }
        for (int32_t pair = 0; pair < num_pairs; pair++) {
            const __m512bh w0 = (__m512bh)_mm512_load_si512(w), w1 = (__m512bh)_mm512_load_si512(w + 64);
            UNROLL
            for (int t = 0; t < T; t++) {
                const __m512bh x = broadcast_pair(a + t * stride);
                sum[t][0] = _mm512_dpbf16_ps(sum[t][0], w0, x);
                sum[t][1] = _mm512_dpbf16_ps(sum[t][1], w1, x);
            }
            w += kPairBytes;
            a += 2;
        }
        UNROLL
        for (int t = 0; t < T; t++) out.store(first + t, sum[t][0], sum[t][1]);
    }
};

// Two columns of 16 rows, rounded to bf16 and interleaved.
ALWAYS_INLINE __m512bh round_pair(__m512 even, __m512 odd) {
    const __m512i interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                                                23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (__m512bh)_mm512_permutexvar_epi16(interleave, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}

// w = scale * q + bias for [16 rows][4 columns] of bytes. The product is exact, so one rounding is the
// format's own. Gives two units to the sink, in K order.
template <class Sink>
ALWAYS_INLINE void unpack_group(__m512i q, __m512 scale, __m512 bias, int half, Sink& sink) {
    const __m512i byte = _mm512_set1_epi32(255);
    const __m512 w0 = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_and_si512(q, byte)), scale, bias);
    const __m512 w1 =
        _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(q, 8), byte)), scale, bias);
    const __m512 w2 =
        _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(q, 16), byte)), scale, bias);
    const __m512 w3 = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_srli_epi32(q, 24)), scale, bias);
    sink.take(half, round_pair(w0, w1), round_pair(w2, w3));
}

ALWAYS_INLINE __m512i nibbles(const uint8_t* unit, bool high) {
    const __m512i both = _mm512_load_si512(unit);
    return _mm512_and_si512(high ? _mm512_srli_epi16(both, 4) : both, _mm512_set1_epi8(15));
}

ALWAYS_INLINE __m512i add_fifth_bits(__m512i q, const uint8_t* mask) {
    uint64_t bits;
    __builtin_memcpy(&bits, mask, 8);
    return _mm512_mask_add_epi8(q, _cvtu64_mask64(bits), q, _mm512_set1_epi8(16));
}

ALWAYS_INLINE __m512i byte_at(__m512i planes, int shift, int mask) {
    return _mm512_and_si512(_mm512_srli_epi32(planes, shift), _mm512_set1_epi32(mask));
}

struct Q5_0 {
    static constexpr int kColumns = 32, kBlockBytes = 704;

    template <class Sink>
    static ALWAYS_INLINE void unpack(const uint8_t* block, Sink& sink) {
        const __m512 d[2] = {load_halves(block + 640), load_halves(block + 672)};
        const __m512 offset = _mm512_set1_ps(-16);
        const __m512 bias[2] = {_mm512_mul_ps(d[0], offset), _mm512_mul_ps(d[1], offset)};
        unpack_fifths(block, d, bias, sink);
    }

    template <class Sink>
    static ALWAYS_INLINE void unpack_fifths(const uint8_t* block, const __m512 (&scale)[2],
                                            const __m512 (&bias)[2], Sink& sink) {
        UNROLL
        for (int group = 0; group < 8; group++) {
            UNROLL
            for (int r = 0; r < 2; r++) {
                const __m512i q = nibbles(block + group % 4 * 128 + r * 64, group >= 4);
                unpack_group(add_fifth_bits(q, block + 512 + group * 16 + r * 8), scale[r], bias[r], r, sink);
            }
            sink.next_group();
        }
    }
};

struct Q5_1 {
    static constexpr int kColumns = 32, kBlockBytes = 768;

    template <class Sink>
    static ALWAYS_INLINE void unpack(const uint8_t* block, Sink& sink) {
        const __m512 d[2] = {load_halves(block + 640), load_halves(block + 672)};
        const __m512 m[2] = {load_halves(block + 704), load_halves(block + 736)};
        Q5_0::unpack_fifths(block, d, m, sink);
    }
};

// Q4_K and Q5_K: a scale and a minimum of 6 bits per 32 columns, as the file has them in 12 bytes per row.
template <bool kHasFifth>
struct K4 {
    static constexpr int kColumns = 256, kBlockBytes = kHasFifth ? 5632 : 4608;

    static ALWAYS_INLINE void scales(const uint8_t* planes, int sub, int r, __m512* scale, __m512* bias) {
        const __m512i x = _mm512_load_si512(planes + r * 64), y = _mm512_load_si512(planes + 128 + r * 64),
                      z = _mm512_load_si512(planes + 256 + r * 64);
        const int shift = sub % 4 * 8;
        __m512i six_scale, six_min;
        if (sub < 4) {
            six_scale = byte_at(x, shift, 63);
            six_min = byte_at(y, shift, 63);
        } else {
            const __m512i top_scale = _mm512_slli_epi32(byte_at(x, shift + 6, 3), 4);
            const __m512i top_min = _mm512_slli_epi32(byte_at(y, shift + 6, 3), 4);
            six_scale = _mm512_or_si512(byte_at(z, shift, 15), top_scale);
            six_min = _mm512_or_si512(byte_at(z, shift + 4, 15), top_min);
        }
        const __m512 d = load_halves(planes + 384 + r * 32), dmin = load_halves(planes + 448 + r * 32);
        *scale = _mm512_mul_ps(d, _mm512_cvtepi32_ps(six_scale));
        *bias = _mm512_mul_ps(_mm512_sub_ps(_mm512_setzero_ps(), dmin), _mm512_cvtepi32_ps(six_min));
    }

    template <bool kHigh, class Sink>
    static ALWAYS_INLINE void unpack_sub_block(const uint8_t* block, int sub, Sink& sink) {
        const uint8_t* units = block + sub / 2 * 1024;
        const uint8_t* masks = block + 4096 + sub * 128;
        __m512 scale[2], bias[2];
        for (int r = 0; r < 2; r++) scales(block + kBlockBytes - 512, sub, r, &scale[r], &bias[r]);
        UNROLL
        for (int group = 0; group < 8; group++) {
            UNROLL
            for (int r = 0; r < 2; r++) {
                __m512i q = nibbles(units + group * 128 + r * 64, kHigh);
                if constexpr (kHasFifth) q = add_fifth_bits(q, masks + group * 16 + r * 8);
                unpack_group(q, scale[r], bias[r], r, sink);
            }
            sink.next_group();
        }
    }

    template <class Sink>
    static ALWAYS_INLINE void unpack(const uint8_t* block, Sink& sink) {
        for (int sub = 0; sub < 8; sub += 2) {
            unpack_sub_block<false>(block, sub, sink);
            unpack_sub_block<true>(block, sub + 1, sink);
        }
    }
};

using Q4_K = K4<false>;
using Q5_K = K4<true>;

struct Q6_K {
    static constexpr int kColumns = 256, kBlockBytes = 6720;

    template <int kSub>
    static ALWAYS_INLINE void scales(const uint8_t* block, int half, __m512 (&scale)[2], __m512 (&bias)[2]) {
        UNROLL
        for (int r = 0; r < 2; r++) {
            const uint8_t* bytes = block + 6144 + half * 256 + kSub * 32 + r * 16;
            const __m512i wide =
                _mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes)));
            scale[r] = _mm512_mul_ps(load_halves(block + 6656 + r * 32), _mm512_cvtepi32_ps(wide));
            bias[r] = _mm512_mul_ps(scale[r], _mm512_set1_ps(-32));
        }
    }

    // 16 of the 128 columns of a half: 4 groups, one scale.
    template <int kSub, class Sink>
    static ALWAYS_INLINE void unpack_sub_block(const uint8_t* block, int half, Sink& sink) {
        constexpr int kQuarter = kSub / 2, kFirstGroup = kSub % 2 * 4;
        const uint8_t* low = block + half * 2048 + kQuarter % 2 * 1024;
        const uint8_t* high = block + 4096 + half * 1024;
        __m512 scale[2], bias[2];
        scales<kSub>(block, half, scale, bias);
        UNROLL
        for (int group = kFirstGroup; group < kFirstGroup + 4; group++) {
            UNROLL
            for (int r = 0; r < 2; r++) {
                const __m512i planes = _mm512_load_si512(high + group * 128 + r * 64);
                const __m512i pairs =
                    _mm512_and_si512(_mm512_srli_epi16(planes, kQuarter * 2), _mm512_set1_epi8(3));
                const __m512i nibble = nibbles(low + group * 128 + r * 64, kQuarter >= 2);
                unpack_group(_mm512_or_si512(nibble, _mm512_slli_epi16(pairs, 4)), scale[r], bias[r], r,
                             sink);
            }
            sink.next_group();
        }
    }

    template <class Sink>
    static ALWAYS_INLINE void unpack(const uint8_t* block, Sink& sink) {
        for (int half = 0; half < 2; half++) {
            unpack_sub_block<0>(block, half, sink);
            unpack_sub_block<1>(block, half, sink);
            unpack_sub_block<2>(block, half, sink);
            unpack_sub_block<3>(block, half, sink);
            unpack_sub_block<4>(block, half, sink);
            unpack_sub_block<5>(block, half, sink);
            unpack_sub_block<6>(block, half, sink);
            unpack_sub_block<7>(block, half, sink);
        }
    }
};

// Writes units where PairTile reads them.
struct StoreSink {
    uint8_t* out;

    ALWAYS_INLINE void take(int half, __m512bh first, __m512bh second) {
        _mm512_store_si512(out + half * 64, (__m512i)first);
        _mm512_store_si512(out + kPairBytes + half * 64, (__m512i)second);
    }
    ALWAYS_INLINE void next_group() { out += 2 * kPairBytes; }
};

// Multiplies units as they come.
template <int T>
struct DotSink {
    const uint16_t* a;
    size_t stride;
    __m512 sum[T][2];

    ALWAYS_INLINE void take(int half, __m512bh first, __m512bh second) {
        UNROLL
        for (int t = 0; t < T; t++) {
            sum[t][half] = _mm512_dpbf16_ps(sum[t][half], first, broadcast_pair(a + t * stride));
            sum[t][half] = _mm512_dpbf16_ps(sum[t][half], second, broadcast_pair(a + t * stride + 2));
        }
    }
    ALWAYS_INLINE void next_group() { a += 4; }
};

template <class Format>
struct DirectTile {
    const uint8_t* panel;
    int32_t num_blocks;
    const Activations& in;
    const OutputTile& out;

    template <int T>
    void compute(int32_t first) const {
        DotSink<T> sink;
        sink.a = in.bf16 + first * in.bf16_stride;
        sink.stride = in.bf16_stride;
        UNROLL
        for (int t = 0; t < T; t++) sink.sum[t][0] = sink.sum[t][1] = _mm512_setzero_ps();
        for (int32_t block = 0; block < num_blocks; block++) {
            const uint8_t* at = panel + static_cast<size_t>(block) * Format::kBlockBytes;
            for (int line = 0; line < Format::kBlockBytes; line += 64) {
                _mm_prefetch(at + kPrefetchBytes + line, _MM_HINT_T0);
            }
            Format::unpack(at, sink);
        }
        UNROLL
        for (int t = 0; t < T; t++) out.store(first + t, sink.sum[t][0], sink.sum[t][1]);
    }
};

template <class Format>
void unpack_piece(const uint8_t* block, int32_t num_columns, uint8_t* units) {
    StoreSink sink = {units};
    for (int32_t k = 0; k < num_columns; k += Format::kColumns) {
        Format::unpack(block, sink);
        block += Format::kBlockBytes;
    }
}

template <class Format>
void linear(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
            size_t out_stride, int32_t num_rows, void* scratch) {
    const OutputTile output(out, out_stride, num_rows);
    if (num_tokens <= kMaxDirectTokens) {
        for_each_tile<kMaxDirectTokens>(num_tokens,
                                        DirectTile<Format>{panel, K / Format::kColumns, in, output});
        return;
    }
    uint8_t* units = static_cast<uint8_t*>(scratch);
    for (int32_t k = 0; k < K; k += kPieceColumns) {
        const int32_t num_columns = K - k < kPieceColumns ? K - k : kPieceColumns;
        unpack_piece<Format>(panel + static_cast<size_t>(k / Format::kColumns) * Format::kBlockBytes,
                             num_columns, units);
        for_each_tile<kMaxTokens>(num_tokens, PairTile{units, num_columns / 2, k, in, output});
    }
}

}  // namespace

namespace avx512 {

void linear_bf16(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void*) {
    const OutputTile output(out, out_stride, num_rows);
    for_each_tile<kMaxTokens>(num_tokens, PairTile{panel, (K + 1) / 2, 0, in, output});
}

void linear_q5_0(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear<Q5_0>(panel, K, in, num_tokens, out, out_stride, num_rows, scratch);
}

void linear_q5_1(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear<Q5_1>(panel, K, in, num_tokens, out, out_stride, num_rows, scratch);
}

void linear_q4_k(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear<Q4_K>(panel, K, in, num_tokens, out, out_stride, num_rows, scratch);
}

void linear_q5_k(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear<Q5_K>(panel, K, in, num_tokens, out, out_stride, num_rows, scratch);
}

void linear_q6_k(const uint8_t* panel, int32_t K, const Activations& in, int32_t num_tokens, float* out,
                 size_t out_stride, int32_t num_rows, void* scratch) {
    linear<Q6_K>(panel, K, in, num_tokens, out, out_stride, num_rows, scratch);
}

}  // namespace avx512
}  // namespace twostroke
