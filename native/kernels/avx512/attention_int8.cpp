#include "kernels/avx512/attention_int8.h"

#include <cfloat>

#include "exp.h"
#include "kernels/int8_heads.h"

namespace twostroke::avx512 {
namespace {

// Query rows per register tile. 3 rows x 2 planes of P x 4 vectors are 24 sums, and heads often share a kv
// head by threes.
constexpr int kRows = 3;
constexpr float kNoMaximum = -__builtin_inff();

ALWAYS_INLINE int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
ALWAYS_INLINE int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

ALWAYS_INLINE __m512i repeat_four(const void* at) {
    int32_t four;
    __builtin_memcpy(&four, at, sizeof four);
    return _mm512_set1_epi32(four);
}

// Asks for memory without waiting for it. Into L2: what the first-level cache asks for is limited to few
// lines.
ALWAYS_INLINE void ask(const void* at, int32_t num_bytes) {
    for (int32_t i = 0; i < num_bytes; i += 64)
        _mm_prefetch(static_cast<const uint8_t*>(at) + i, _MM_HINT_T1);
}

// Whole numbers q * k of R rows and U units of 16 keys; `bias` starts them at -128 * the sum of q.
template <int R, int U>
ALWAYS_INLINE void dot_units(const int8_t* q, int32_t stride, const uint8_t* const* units,
                             const __m512i (&bias)[R], __m512i (&sums)[R][U]) {
    UNROLL
    for (int i = 0; i < R * U; ++i) sums[i / U][i % U] = bias[i / U];
    for (int32_t d = 0; d < stride; d += 4) {
        __m512i keys[U];
        UNROLL
        for (int u = 0; u < U; ++u) keys[u] = _mm512_loadu_si512(units[u] + d * kUnitTokens);
        UNROLL
        for (int r = 0; r < R; ++r) {
            const __m512i query = repeat_four(q + r * stride + d);
            UNROLL
            for (int u = 0; u < U; ++u) sums[r][u] = _mm512_dpbusd_epi32(sums[r][u], keys[u], query);
        }
    }
}

// The bytes of P of a row: high ones of every key, then low ones.
struct Planes {
    uint8_t high[kChunk];
    uint8_t low[kChunk];
};

// A run of units of one chunk, and the 16-dim vectors to compute.
struct ValueRun {
    const uint8_t* const* units;
    int32_t begin;
    int32_t end;
    int32_t first_dim;
    int32_t head_dim;
    __mmask16 last;                    // lanes of the last vector
    const uint8_t* const* next_units;  // null, or units whose keys are asked for meanwhile
};

// Whole numbers P * v of R rows and N vectors of dims.
template <int R, int N>
ALWAYS_INLINE void add_units(const Planes* p, const ValueRun& run, __m512i (&out)[R][N]) {
    __m512i high[R][N], low[R][N];
    UNROLL
    for (int i = 0; i < R * N; ++i) high[i / N][i % N] = low[i / N][i % N] = _mm512_setzero_si512();
    for (int32_t unit = run.begin; unit < run.end; ++unit) {
        const int8_t* at = Int8Unit(run.units[unit], run.head_dim).values + run.first_dim * 4;
        if (run.next_units != nullptr && run.next_units[unit] != nullptr)
            ask(run.next_units[unit], kUnitTokens * int8_stride(run.head_dim));
        for (int32_t quad = 0; quad < kUnitTokens / 4; ++quad, at += run.head_dim * 4) {
            __m512i values[N];
            UNROLL
            for (int n = 0; n < N; ++n)
                values[n] = n + 1 < N ? _mm512_loadu_si512(at + n * 64)
                                      : _mm512_maskz_loadu_epi32(run.last, at + n * 64);
            UNROLL
            for (int r = 0; r < R; ++r) {
                const __m512i high_p = repeat_four(p[r].high + unit * kUnitTokens + quad * 4);
                const __m512i low_p = repeat_four(p[r].low + unit * kUnitTokens + quad * 4);
                UNROLL
                for (int n = 0; n < N; ++n) {
                    high[r][n] = _mm512_dpbusd_epi32(high[r][n], high_p, values[n]);
                    low[r][n] = _mm512_dpbusd_epi32(low[r][n], low_p, values[n]);
                }
            }
        }
    }
    UNROLL
    for (int i = 0; i < R * N; ++i)
        out[i / N][i % N] = _mm512_add_epi32(_mm512_slli_epi32(high[i / N][i % N], 8), low[i / N][i % N]);
}

class Int8Chunk {
  public:
    Int8Chunk(const QueryTile& tile, int32_t chunk_pos, const uint8_t* const* units, void* scratch,
              const Partial& partial)
        : tile_(tile),
          chunk_pos_(chunk_pos),
          units_(units),
          partial_(partial),
          scores_(static_cast<float*>(scratch)),
          planes_(reinterpret_cast<Planes*>(scores_ + smaller(kRows, tile.num_rows()) * kChunk)) {}

    void run() {
        int32_t row = 0;
        for (; row + kRows <= tile_.num_rows(); row += kRows) attend<kRows>(row);
        if (tile_.num_rows() - row == 2) attend<2>(row);
        if (tile_.num_rows() - row == 1) attend<1>(row);
    }

  private:
    Visible visible(int32_t row) const {
        const int64_t pos = tile_.first_pos + row / tile_.heads;
        return {clamp(pos - tile_.window + 1 - chunk_pos_), clamp(pos + 1 - chunk_pos_)};
    }
    static int32_t clamp(int64_t key) {
        return static_cast<int32_t>(key < 0 ? 0 : key > kChunk ? kChunk : key);
    }

    // Every row works on the units that any of its tile sees: P is zero where it sees none.
    template <int R>
    void attend(int32_t row) {
        int32_t begin = kChunk, end = 0;
        for (int i = 0; i < R; ++i) {
            const Visible keys = visible(row + i);
            if (keys.begin >= keys.end) continue;
            begin = smaller(begin, keys.begin / kUnitTokens);
            end = larger(end, (keys.end + kUnitTokens - 1) / kUnitTokens);
        }
        score_rows<R>(row, begin, end);
        float steps[R];
        for (int i = 0; i < R; ++i) steps[i] = softmax(row + i, i, begin, end);
        add_rows<R>(row, begin, end, steps);
    }

    template <int R>
    void score_rows(int32_t row, int32_t begin, int32_t end) {
        __m512i bias[R];
        __m512 factor[R];
        for (int r = 0; r < R; ++r) {
            bias[r] = _mm512_set1_epi32(-128 * tile_.q_sum[row + r]);
            factor[r] = _mm512_set1_ps(score_factor(tile_, row + r));
        }
        int32_t unit = begin;
        for (; unit + 4 <= end; unit += 4) score_units<R, 4>(row, unit, bias, factor);
        for (; unit < end; ++unit) score_units<R, 1>(row, unit, bias, factor);
    }

    template <int R, int U>
    ALWAYS_INLINE void score_units(int32_t row, int32_t unit, const __m512i (&bias)[R],
                                   const __m512 (&factor)[R]) {
        const int32_t stride = int8_stride(tile_.head_dim);
        if (row == 0)  // the first rows of a tile bring the chunk into the cache for all
            for (int u = 0; u < U; ++u)
                ask(Int8Unit(units_[unit + u], tile_.head_dim).values, kUnitTokens * (stride + 4));
        __m512i dots[R][U];
        dot_units<R, U>(static_cast<const int8_t*>(tile_.q) + static_cast<size_t>(row) * stride, stride,
                        units_ + unit, bias, dots);
        UNROLL
        for (int u = 0; u < U; ++u) {
            const __m512 scales = _mm512_loadu_ps(Int8Unit(units_[unit + u], tile_.head_dim).key_scales);
            UNROLL
            for (int r = 0; r < R; ++r)
                _mm512_storeu_ps(
                    scores_ + r * kChunk + (unit + u) * kUnitTokens,
                    _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dots[r][u]), scales), factor[r]));
        }
    }

    static __mmask16 visible_lanes(Visible keys, int32_t unit) {
        const int32_t first = unit * kUnitTokens;
        const auto below =
            static_cast<__mmask16>(keys.begin > first ? (1u << smaller(keys.begin - first, 16)) - 1 : 0);
        return keys.end <= first ? __mmask16{0}
                                 : static_cast<__mmask16>(first_lanes(keys.end - first) & ~below);
    }

    // Scores -> P in units [begin, end), zero beside the visible keys; maximum, sum and the step of P.
    float softmax(int32_t row, int index, int32_t begin, int32_t end) {
        const Visible keys = visible(row);
        float* scores = scores_ + index * kChunk;
        partial_.max[row] = kNoMaximum;
        partial_.sum[row] = 0.0f;
        if (keys.begin >= keys.end) {
            __builtin_memset(&planes_[index], 0, sizeof(Planes));
            return 0.0f;
        }
        if (tile_.softcap > 0) cap_scores(scores, begin, end);
        __m512 largest = _mm512_set1_ps(-FLT_MAX);
        for (int32_t unit = begin; unit < end; ++unit)
            largest = _mm512_mask_max_ps(largest, visible_lanes(keys, unit), largest,
                                         _mm512_loadu_ps(scores + unit * kUnitTokens));
        partial_.max[row] = _mm512_reduce_max_ps(largest);
        const ProbabilityStep rounding = probability_step(scale_exponentials(row, keys, scores, begin, end));
        const __m512 inverse = _mm512_set1_ps(rounding.inverse);
        for (int32_t unit = begin; unit < end; ++unit) {
            const int32_t key = unit * kUnitTokens;
            const __m512i p = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(scores + key), inverse));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(planes_[index].low + key), _mm512_cvtepi32_epi8(p));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(planes_[index].high + key),
                             _mm512_cvtepi32_epi8(_mm512_srli_epi32(p, 8)));
        }
        return rounding.step;
    }

    // exp(score - max) * scale of V over the scores; keeps the sum of the former, returns the bits of the
    // largest.
    uint32_t scale_exponentials(int32_t row, Visible keys, float* scores, int32_t begin, int32_t end) {
        const __m512 max = _mm512_set1_ps(partial_.max[row]);
        __m512 sum = _mm512_setzero_ps();
        __m512i largest = _mm512_setzero_si512();
        for (int32_t unit = begin; unit < end; ++unit) {
            const __mmask16 lanes = visible_lanes(keys, unit);
            const __m512 scales = _mm512_loadu_ps(Int8Unit(units_[unit], tile_.head_dim).value_scales);
            const __m512 score = _mm512_loadu_ps(scores + unit * kUnitTokens);
            const __m512 e = _mm512_maskz_mov_ps(lanes, exp_of_bounded(_mm512_sub_ps(score, max)));
            sum = _mm512_add_ps(sum, e);
            const __m512 scaled = _mm512_maskz_mul_ps(lanes, e, scales);
            largest = _mm512_max_epu32(largest, _mm512_castps_si512(scaled));
            _mm512_storeu_ps(scores + unit * kUnitTokens, scaled);
        }
        partial_.sum[row] = sum_lanes(sum);
        return _mm512_reduce_max_epu32(largest);
    }

    void cap_scores(float* scores, int32_t begin, int32_t end) const {
        const __m512 cap = _mm512_set1_ps(tile_.softcap);
        for (int32_t i = begin * kUnitTokens; i < end * kUnitTokens; i += 16)
            _mm512_storeu_ps(scores + i,
                             _mm512_mul_ps(cap, tanh_of(_mm512_div_ps(_mm512_loadu_ps(scores + i), cap))));
    }

    template <int R>
    void add_rows(int32_t row, int32_t begin, int32_t end, const float* steps) {
        const int32_t num_vectors = partial_stride(tile_.head_dim) / 16;
        int32_t vector = 0;
        for (; vector + 4 <= num_vectors; vector += 4) add_vectors<R, 4>(row, begin, end, vector, steps);
        for (; vector < num_vectors; ++vector) add_vectors<R, 1>(row, begin, end, vector, steps);
    }

    template <int R, int N>
    ALWAYS_INLINE void add_vectors(int32_t row, int32_t begin, int32_t end, int32_t vector,
                                   const float* steps) {
        const int32_t head_dim = tile_.head_dim;
        const auto stride = static_cast<size_t>(partial_stride(head_dim));
        const __mmask16 last = first_lanes(head_dim - (vector + N - 1) * 16);
        __m512i sums[R][N];
        add_units<R, N>(planes_,
                        {units_, begin, end, vector * 16, head_dim, last,
                         row == 0 && vector == 0 ? tile_.next_units : nullptr},
                        sums);
        UNROLL
        for (int i = 0; i < R * N; ++i)
            _mm512_storeu_ps(
                partial_.out + (row + i / N) * stride + (vector + i % N) * 16,
                _mm512_mul_ps(_mm512_cvtepi32_ps(sums[i / N][i % N]), _mm512_set1_ps(steps[i / N])));
    }

    const QueryTile& tile_;
    const int32_t chunk_pos_;
    const uint8_t* const* units_;
    const Partial& partial_;
    float* scores_;   // [kRows][kChunk], then exponentials * scales of V
    Planes* planes_;  // [kRows]
};

}  // namespace

void attend_int8(const QueryTile& tile, int32_t chunk_pos, const uint8_t* const* units, void* scratch,
                 const Partial& partial) {
    Int8Chunk(tile, chunk_pos, units, scratch, partial).run();
}

}  // namespace twostroke::avx512
