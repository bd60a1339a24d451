#include "kernels/neon/attention_int8.h"

#include <cfloat>

#include "kernels/neon/lanes.h"

namespace twostroke::neon {
namespace {

constexpr int kRows = 3;  // query rows per register tile: 3 rows x 4 vectors x 2 bytes of P are 24 sums
constexpr int kUnitVectors = 4;  // 16 keys x 4 dims, or 4 keys x 16 dims
constexpr float kNoMaximum = -__builtin_inff();

ALWAYS_INLINE int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
ALWAYS_INLINE int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

// Four bytes, again and again.
ALWAYS_INLINE int8x16_t repeat_four(const int8_t* at) {
    int32_t four;
    __builtin_memcpy(&four, at, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

// Whole numbers q * k of R rows and the 16 keys of a unit.
template <int R>
ALWAYS_INLINE void dot_unit(const int8_t* q, int32_t stride, const uint8_t* keys,
                            int32x4_t (&sums)[R][kUnitVectors]) {
    UNROLL
    for (int i = 0; i < R * kUnitVectors; ++i) sums[i / kUnitVectors][i % kUnitVectors] = vdupq_n_s32(0);
    for (int32_t d = 0; d < stride; d += 4) {
        int8x16_t key[kUnitVectors];
        UNROLL
        for (int v = 0; v < kUnitVectors; ++v) {
            const uint8x16_t stored = vld1q_u8(keys + d * kUnitTokens + v * 16);
            key[v] = vreinterpretq_s8_u8(veorq_u8(stored, vdupq_n_u8(128)));
        }
        UNROLL
        for (int r = 0; r < R; ++r) {
            const int8x16_t query = repeat_four(q + r * stride + d);
            UNROLL
            for (int v = 0; v < kUnitVectors; ++v) sums[r][v] = vdotq_s32(sums[r][v], key[v], query);
        }
    }
}

// P of one row as whole steps, 256 * high + low.
struct Steps {
    int8_t high[kChunk];
    int8_t low[kChunk];
};

// Whole numbers P * v of R rows and N vectors of 4 dims, of a run of quads of keys.
template <int R, int N>
ALWAYS_INLINE void add_quads(const Steps* p, const uint8_t* const* units, int32_t begin, int32_t end,
                             int32_t first_dim, int32_t head_dim, int32x4_t (&out)[R][N]) {
    int32x4_t high[R][N], low[R][N];
    UNROLL
    for (int i = 0; i < R * N; ++i) high[i / N][i % N] = low[i / N][i % N] = vdupq_n_s32(0);
    for (int32_t quad = begin; quad < end; ++quad) {
        const int8_t* values =
            Int8Unit(units[quad / 4], head_dim).values + (quad % 4 * head_dim + first_dim) * 4;
        int8x16_t value[N];
        UNROLL
        for (int v = 0; v < N; ++v) value[v] = vld1q_s8(values + v * 16);
        UNROLL
        for (int r = 0; r < R; ++r) {
            const int8x16_t upper = repeat_four(p[r].high + quad * 4),
                            lower = repeat_four(p[r].low + quad * 4);
            UNROLL
            for (int v = 0; v < N; ++v) {
                high[r][v] = vdotq_s32(high[r][v], value[v], upper);
                low[r][v] = vdotq_s32(low[r][v], value[v], lower);
            }
        }
    }
    UNROLL
    for (int i = 0; i < R * N; ++i)
        out[i / N][i % N] = vaddq_s32(vshlq_n_s32(high[i / N][i % N], 8), low[i / N][i % N]);
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
          p_(reinterpret_cast<Steps*>(scores_ + smaller(kRows, tile.num_rows()) * kChunk)) {}

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
        const int8_t* q = static_cast<const int8_t*>(tile_.q) + static_cast<size_t>(row) * stride;
        for (int32_t unit = begin; unit < end; ++unit) {
            const Int8Unit parts(units_[unit], tile_.head_dim);
            int32x4_t dots[R][kUnitVectors];
            dot_unit<R>(q, stride, parts.keys, dots);
            for (int i = 0; i < R * kUnitVectors; ++i) {
                const int r = i / kUnitVectors, v = i % kUnitVectors;
                const float32x4_t scaled =
                    vmulq_f32(vcvtq_f32_s32(dots[r][v]), vld1q_f32(parts.key_scales + v * 4));
                vst1q_f32(scores_ + r * kChunk + unit * kUnitTokens + v * 4,
                          vmulq_n_f32(scaled, score_factor(tile_, row + r)));
            }
        }
    }

    // Of keys [first, first + 4) those the row sees.
    static ALWAYS_INLINE uint32x4_t visible_lanes(Visible keys, int32_t first) {
        return vbicq_u32(first_lanes(keys.end - first), first_lanes(keys.begin - first));
    }

    // Scores -> P in units [begin, end), zero beside the visible keys; maximum, sum and the step of P.
    float softmax(int32_t row, int index, int32_t begin, int32_t end) {
        const Visible keys = visible(row);
        float* scores = scores_ + index * kChunk;
        begin *= kUnitTokens;
        end *= kUnitTokens;
        partial_.max[row] = kNoMaximum;
        partial_.sum[row] = 0.0f;
        if (keys.begin >= keys.end) {
            __builtin_memset(p_ + index, 0, sizeof *p_);
            return 0.0f;
        }
        if (tile_.softcap > 0) cap_scores(scores, begin, end);
        float32x4_t largest = vdupq_n_f32(-FLT_MAX);
        for (int32_t key = begin; key < end; key += 4) {
            const float32x4_t either = vmaxq_f32(largest, vld1q_f32(scores + key));
            largest = vbslq_f32(visible_lanes(keys, key), either, largest);
        }
        const float max = vmaxvq_f32(largest);
        const ProbabilityStep rounding =
            probability_step(scale_exponentials(row, keys, scores, begin, end, max));
        for (int32_t key = begin; key < end; key += 8)
            round_steps(scores + key, rounding.inverse, key, p_[index]);
        partial_.max[row] = max;
        return rounding.step;
    }

    // exp(score - max) * scale of V over the scores; keeps the sum of the former, returns the bits of the
    // largest.
    uint32_t scale_exponentials(int32_t row, Visible keys, float* scores, int32_t begin, int32_t end,
                                float max) {
        float32x4_t sums[kUnitVectors];
        for (float32x4_t& sum : sums) sum = vdupq_n_f32(0.0f);
        uint32x4_t largest = vdupq_n_u32(0);
        for (int32_t key = begin; key < end; key += kUnitTokens) {
            const float* scales = Int8Unit(units_[key / kUnitTokens], tile_.head_dim).value_scales;
            UNROLL
            for (int v = 0; v < kUnitVectors; ++v) {
                const uint32x4_t lanes = visible_lanes(keys, key + v * 4);
                float* at = scores + key + v * 4;
                const float32x4_t e = keep(exp_of(vsubq_f32(vld1q_f32(at), vdupq_n_f32(max))), lanes);
                const float32x4_t scaled = keep(vmulq_f32(e, vld1q_f32(scales + v * 4)), lanes);
                sums[v] = vaddq_f32(sums[v], e);
                largest = vmaxq_u32(largest, vreinterpretq_u32_f32(scaled));
                vst1q_f32(at, scaled);
            }
        }
        partial_.sum[row] = sum_lanes(sums[0], sums[1], sums[2], sums[3]);
        return vmaxvq_u32(largest);
    }

    static ALWAYS_INLINE float32x4_t keep(float32x4_t v, uint32x4_t lanes) {
        return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v), lanes));
    }

    static ALWAYS_INLINE void round_steps(const float* scaled, float inverse, int32_t key, Steps& p) {
        const int32x4_t first = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(scaled), inverse));
        const int32x4_t second = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(scaled + 4), inverse));
        const int16x8_t whole = vcombine_s16(vqmovn_s32(first), vqmovn_s32(second));
        const int16x8_t high = vshrq_n_s16(vqaddq_s16(whole, vdupq_n_s16(128)), 8);
        vst1_s8(p.high + key, vmovn_s16(high));
        vst1_s8(p.low + key, vmovn_s16(vsubq_s16(whole, vshlq_n_s16(high, 8))));
    }

    void cap_scores(float* scores, int32_t begin, int32_t end) const {
        const float32x4_t cap = vdupq_n_f32(tile_.softcap);
        for (int32_t i = begin; i < end; i += 4)
            vst1q_f32(scores + i, vmulq_f32(cap, tanh_of(vdivq_f32(vld1q_f32(scores + i), cap))));
    }

    template <int R>
    void add_rows(int32_t row, int32_t begin, int32_t end, const float* steps) {
        const auto stride = static_cast<size_t>(partial_stride(tile_.head_dim));
        __builtin_memset(partial_.out + row * stride, 0, R * stride * sizeof(float));
        int32_t d = 0;
        for (; d + 16 <= tile_.head_dim; d += 16) add_dims<R, 4>(row, begin, end, d, steps);
        for (; d + 4 <= tile_.head_dim; d += 4) add_dims<R, 1>(row, begin, end, d, steps);
        for (; d < tile_.head_dim; ++d) add_dim<R>(row, begin, end, d, steps);
    }

    template <int R, int N>
    void add_dims(int32_t row, int32_t begin, int32_t end, int32_t d, const float* steps) {
        const auto stride = static_cast<size_t>(partial_stride(tile_.head_dim));
        int32x4_t sums[R][N];
        add_quads(p_, units_, begin * 4, end * 4, d, tile_.head_dim, sums);
        for (int i = 0; i < R * N; ++i)
            vst1q_f32(partial_.out + (row + i / N) * stride + d + i % N * 4,
                      vmulq_n_f32(vcvtq_f32_s32(sums[i / N][i % N]), steps[i / N]));
    }

    // One of fewer than 4 dims.
    template <int R>
    void add_dim(int32_t row, int32_t begin, int32_t end, int32_t d, const float* steps) {
        const auto stride = static_cast<size_t>(partial_stride(tile_.head_dim));
        for (int r = 0; r < R; ++r) {
            int32_t sum = 0;
            for (int32_t key = begin * kUnitTokens; key < end * kUnitTokens; ++key) {
                const int8_t* values = Int8Unit(units_[key / kUnitTokens], tile_.head_dim).values;
                const int32_t quad = key % kUnitTokens / 4 * tile_.head_dim;
                sum += (256 * p_[r].high[key] + p_[r].low[key]) * values[(quad + d) * 4 + key % 4];
            }
            partial_.out[(row + r) * stride + d] = static_cast<float>(sum) * steps[r];
        }
    }

    const QueryTile& tile_;
    const int32_t chunk_pos_;
    const uint8_t* const* units_;
    const Partial& partial_;
    float* scores_;  // [kRows][kChunk], then exponentials * scales of V
    Steps* p_;       // [kRows]
};

}  // namespace

void attend_int8(const QueryTile& tile, int32_t chunk_pos, const uint8_t* const* units, void* scratch,
                 const Partial& partial) {
    Int8Chunk(tile, chunk_pos, units, scratch, partial).run();
}

}  // namespace twostroke::neon
