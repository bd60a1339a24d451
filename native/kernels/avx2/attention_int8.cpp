#include "kernels/avx2/attention_int8.h"

#include <cfloat>

#include "kernels/avx2/lanes.h"

namespace twostroke::avx2 {
namespace {

constexpr int kRows = 3;         // query rows per register tile: 3 rows x 4 vectors are 12 sums
constexpr int kUnitVectors = 4;  // 16 keys x 4 dims, or 4 keys x 16 dims, in 16 bits
constexpr float kNoMaximum = -__builtin_inff();

ALWAYS_INLINE int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
ALWAYS_INLINE int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

// Four 16-bit factors, again and again.
ALWAYS_INLINE __m256i repeat_four(const int16_t* at) {
    int64_t four;
    __builtin_memcpy(&four, at, sizeof four);
    return _mm256_set1_epi64x(four);
}

// [a b | c d ...] pairs of sums -> one sum each, in order, for 8 of them.
ALWAYS_INLINE __m256i add_pairs(__m256i low, __m256i high) {
    return _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), 0xD8);
}

// Whole numbers q * (k + 128) of R rows and the 16 keys of a unit.
template <int R>
ALWAYS_INLINE void dot_unit(const int16_t* q, int32_t stride, const uint8_t* keys, __m256i (&out)[R][2]) {
    __m256i sums[R][kUnitVectors];
    UNROLL
    for (int i = 0; i < R * kUnitVectors; ++i)
        sums[i / kUnitVectors][i % kUnitVectors] = _mm256_setzero_si256();
    for (int32_t d = 0; d < stride; d += 4) {
        __m256i key[kUnitVectors];
        UNROLL
        for (int v = 0; v < kUnitVectors; ++v)
            key[v] = _mm256_cvtepu8_epi16(
                _mm_loadu_si128(reinterpret_cast<const __m128i*>(keys + d * kUnitTokens + v * 16)));
        UNROLL
        for (int r = 0; r < R; ++r) {
            const __m256i query = repeat_four(q + r * stride + d);
            UNROLL
            for (int v = 0; v < kUnitVectors; ++v)
                sums[r][v] = _mm256_add_epi32(sums[r][v], _mm256_madd_epi16(key[v], query));
        }
    }
    UNROLL
    for (int r = 0; r < R; ++r) {
        out[r][0] = add_pairs(sums[r][0], sums[r][1]);
        out[r][1] = add_pairs(sums[r][2], sums[r][3]);
    }
}

// Whole numbers P * v of R rows and 16 dims of a run of quads of keys.
template <int R>
ALWAYS_INLINE void add_quads(const int16_t* p, const uint8_t* const* units, int32_t begin, int32_t end,
                             int32_t first_dim, int32_t head_dim, __m256i (&out)[R][2]) {
    __m256i sums[R][kUnitVectors];
    UNROLL
    for (int i = 0; i < R * kUnitVectors; ++i)
        sums[i / kUnitVectors][i % kUnitVectors] = _mm256_setzero_si256();
    for (int32_t quad = begin; quad < end; ++quad) {
        const int8_t* values =
            Int8Unit(units[quad / 4], head_dim).values + (quad % 4 * head_dim + first_dim) * 4;
        __m256i value[kUnitVectors];
        UNROLL
        for (int v = 0; v < kUnitVectors; ++v)
            value[v] =
                _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values + v * 16)));
        UNROLL
        for (int r = 0; r < R; ++r) {
            const __m256i weight = repeat_four(p + r * kChunk + quad * 4);
            UNROLL
            for (int v = 0; v < kUnitVectors; ++v)
                sums[r][v] = _mm256_add_epi32(sums[r][v], _mm256_madd_epi16(value[v], weight));
        }
    }
    UNROLL
    for (int r = 0; r < R; ++r) {
        out[r][0] = add_pairs(sums[r][0], sums[r][1]);
        out[r][1] = add_pairs(sums[r][2], sums[r][3]);
    }
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
          p_(reinterpret_cast<int16_t*>(scores_ + smaller(kRows, tile.num_rows()) * kChunk)) {}

    void run() {
        int32_t row = 0;
        for (; row + kRows <= tile_.num_rows(); row += kRows) attend<kRows>(row);
        for (; row < tile_.num_rows(); ++row) attend<1>(row);
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
        const int32_t stride = int8_stride(tile_.head_dim);
        alignas(32) int16_t q[R * kMostInt8Dims];
        const int8_t* packed = static_cast<const int8_t*>(tile_.q) + static_cast<size_t>(row) * stride;
        for (int32_t i = 0; i < R * stride; ++i) q[i] = packed[i];
        for (int32_t unit = begin; unit < end; ++unit) {
            const Int8Unit parts(units_[unit], tile_.head_dim);
            __m256i dots[R][2];
            dot_unit<R>(q, stride, parts.keys, dots);
            for (int r = 0; r < R; ++r)
                for (int v = 0; v < 2; ++v) {
                    const __m256i bias = _mm256_set1_epi32(128 * tile_.q_sum[row + r]);
                    const __m256 dot = _mm256_cvtepi32_ps(_mm256_sub_epi32(dots[r][v], bias));
                    const __m256 scaled = _mm256_mul_ps(dot, _mm256_loadu_ps(parts.key_scales + v * 8));
                    _mm256_storeu_ps(scores_ + r * kChunk + unit * kUnitTokens + v * 8,
                                     _mm256_mul_ps(scaled, _mm256_set1_ps(score_factor(tile_, row + r))));
                }
        }
    }

    // Of keys [first, first + 8) those the row sees.
    static ALWAYS_INLINE __m256 visible_lanes(Visible keys, int32_t first) {
        return _mm256_castsi256_ps(
            _mm256_andnot_si256(first_lanes(keys.begin - first), first_lanes(keys.end - first)));
    }

    // Scores -> P in units [begin, end), zero beside the visible keys; maximum, sum and the step of P.
    float softmax(int32_t row, int index, int32_t begin, int32_t end) {
        const Visible keys = visible(row);
        float* scores = scores_ + index * kChunk;
        int16_t* p = p_ + index * kChunk;
        partial_.max[row] = kNoMaximum;
        partial_.sum[row] = 0.0f;
        if (keys.begin >= keys.end) {
            if (begin < end)
                __builtin_memset(p + begin * kUnitTokens, 0, (end - begin) * kUnitTokens * sizeof *p);
            return 0.0f;
        }
        begin *= kUnitTokens;
        end *= kUnitTokens;
        if (tile_.softcap > 0) cap_scores(scores, begin, end);
        __m256 largest = _mm256_set1_ps(-FLT_MAX);
        for (int32_t key = begin; key < end; key += 8) {
            const __m256 either = _mm256_max_ps(largest, _mm256_loadu_ps(scores + key));
            largest = _mm256_blendv_ps(largest, either, visible_lanes(keys, key));
        }
        const __m256 max = spread_maximum(largest);
        const ProbabilityStep rounding =
            probability_step(scale_exponentials(row, keys, scores, begin, end, max));
        for (int32_t key = begin; key < end; key += 16) round_steps(scores + key, rounding.inverse, p + key);
        partial_.max[row] = _mm256_cvtss_f32(max);
        return rounding.step;
    }

    // exp(score - max) * scale of V over the scores; keeps the sum of the former, returns the bits of the
    // largest.
    uint32_t scale_exponentials(int32_t row, Visible keys, float* scores, int32_t begin, int32_t end,
                                __m256 max) {
        __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        __m256i largest = _mm256_setzero_si256();
        for (int32_t key = begin; key < end; key += 8) {
            const __m256 lanes = visible_lanes(keys, key);
            const float* scales = Int8Unit(units_[key / kUnitTokens], tile_.head_dim).value_scales;
            const __m256 e = _mm256_and_ps(exp_of(_mm256_sub_ps(_mm256_loadu_ps(scores + key), max)), lanes);
            sums[key / 8 % 2] = _mm256_add_ps(sums[key / 8 % 2], e);
            const __m256 scaled =
                _mm256_and_ps(_mm256_mul_ps(e, _mm256_loadu_ps(scales + key % kUnitTokens)), lanes);
            largest = _mm256_max_epu32(largest, _mm256_castps_si256(scaled));
            _mm256_storeu_ps(scores + key, scaled);
        }
        partial_.sum[row] = sum_lanes(sums[0], sums[1]);
        alignas(32) uint32_t each[8];
        _mm256_store_si256(reinterpret_cast<__m256i*>(each), largest);
        for (uint32_t bits : each) each[0] = bits > each[0] ? bits : each[0];
        return each[0];
    }

    static ALWAYS_INLINE void round_steps(const float* scaled, float inverse, int16_t* p) {
        const __m256i low =
            _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(scaled), _mm256_set1_ps(inverse)));
        const __m256i high =
            _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(scaled + 8), _mm256_set1_ps(inverse)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                            _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8));
    }

    void cap_scores(float* scores, int32_t begin, int32_t end) const {
        const __m256 cap = _mm256_set1_ps(tile_.softcap);
        for (int32_t i = begin; i < end; i += 8)
            _mm256_storeu_ps(scores + i,
                             _mm256_mul_ps(cap, tanh_of(_mm256_div_ps(_mm256_loadu_ps(scores + i), cap))));
    }

    template <int R>
    void add_rows(int32_t row, int32_t begin, int32_t end, const float* steps) {
        const auto stride = static_cast<size_t>(partial_stride(tile_.head_dim));
        for (int32_t d = 0; d < static_cast<int32_t>(stride); d += 16) {
            __m256i sums[R][2];
            if (d + 16 <= tile_.head_dim)
                add_quads<R>(p_, units_, begin * 4, end * 4, d, tile_.head_dim, sums);
            else
                add_last<R>(begin, end, d, sums);
            for (int i = 0; i < 2 * R; ++i)
                _mm256_storeu_ps(
                    partial_.out + (row + i / 2) * stride + d + i % 2 * 8,
                    _mm256_mul_ps(_mm256_cvtepi32_ps(sums[i / 2][i % 2]), _mm256_set1_ps(steps[i / 2])));
        }
    }

    // Fewer than 16 dims, one by one; zeros behind them.
    template <int R>
    void add_last(int32_t begin, int32_t end, int32_t first_dim, __m256i (&out)[R][2]) {
        alignas(32) int32_t sums[R][16] = {};
        for (int32_t key = begin * kUnitTokens; key < end * kUnitTokens; ++key) {
            const int8_t* values = Int8Unit(units_[key / kUnitTokens], tile_.head_dim).values;
            const int32_t quad = key % kUnitTokens / 4 * tile_.head_dim;
            for (int r = 0; r < R; ++r)
                for (int32_t d = first_dim; d < tile_.head_dim; ++d)
                    sums[r][d - first_dim] += p_[r * kChunk + key] * values[(quad + d) * 4 + key % 4];
        }
        __builtin_memcpy(out, sums, sizeof sums);
    }

    const QueryTile& tile_;
    const int32_t chunk_pos_;
    const uint8_t* const* units_;
    const Partial& partial_;
    float* scores_;  // [kRows][kChunk], then exponentials * scales of V
    int16_t* p_;     // [kRows][kChunk], whole steps
};

}  // namespace

void attend_int8(const QueryTile& tile, int32_t chunk_pos, const uint8_t* const* units, void* scratch,
                 const Partial& partial) {
    Int8Chunk(tile, chunk_pos, units, scratch, partial).run();
}

}  // namespace twostroke::avx2
