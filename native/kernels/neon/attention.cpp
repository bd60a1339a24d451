// Attention with fp32 products in vectors of 4: whatever precision keys and values are stored in, they are
// widened where they are read. Queries and P are floats, rounded to bf16 over a bf16 cache.
#include "kernels/attention.h"

#include <cfloat>

#include "kernels/neon/attention_int8.h"
#include "kernels/neon/lanes.h"

namespace twostroke::neon {
namespace {

// Query rows per register tile: 6 rows x 4 vectors are 24 sums; half as many rows take twice the vectors.
constexpr int kRows = 6;
constexpr int kFewRows = 3;
constexpr int kUnitVectors = kUnitTokens / 4;
constexpr float kNoMaximum = -__builtin_inff();

ALWAYS_INLINE int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
ALWAYS_INLINE int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

// How each precision is stored. `keys` gives dim d of 4 keys of a unit, `values` 4 dims of one value; which
// of two lies where is known from whether d, or the slot, is odd.
struct F32 {
    template <bool>
    static ALWAYS_INLINE float32x4_t keys(const uint8_t* unit, int32_t d, int v) {
        return vld1q_f32(reinterpret_cast<const float*>(unit) + d * kUnitTokens + v * 4);
    }
    template <bool>
    static ALWAYS_INLINE float32x4_t values(const uint8_t* unit, int32_t slot, int32_t d, int32_t head_dim) {
        return load_first(reinterpret_cast<const float*>(unit) + (kUnitTokens + slot) * head_dim + d,
                          head_dim - d);
    }
    static ALWAYS_INLINE float32x4_t round(float32x4_t p) { return p; }
};

struct F16 {
    static ALWAYS_INLINE float32x4_t widen(const uint16_t* at) {
        return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(at)));
    }
    template <bool>
    static ALWAYS_INLINE float32x4_t keys(const uint8_t* unit, int32_t d, int v) {
        return widen(reinterpret_cast<const uint16_t*>(unit) + d * kUnitTokens + v * 4);
    }
    template <bool>
    static ALWAYS_INLINE float32x4_t values(const uint8_t* unit, int32_t slot, int32_t d, int32_t head_dim) {
        const uint16_t* at = reinterpret_cast<const uint16_t*>(unit) + (kUnitTokens + slot) * head_dim + d;
        return head_dim - d >= 4 ? widen(at) : widen_last(at, head_dim - d);
    }
    static float32x4_t widen_last(const uint16_t* at, int32_t n) {
        uint16_t last[4] = {};
        for (int32_t i = 0; i < n; ++i) last[i] = at[i];
        return widen(last);
    }
    static ALWAYS_INLINE float32x4_t round(float32x4_t p) { return p; }
};

// Two dims of a key, and two tokens of a value, share a lane.
struct BF16 {
    template <bool kIsOdd>
    static ALWAYS_INLINE float32x4_t pick(float32x4_t pairs) {
        const uint32x4_t bits = vreinterpretq_u32_f32(pairs);
        return vreinterpretq_f32_u32(kIsOdd ? vandq_u32(bits, vdupq_n_u32(0xffff0000))
                                            : vshlq_n_u32(bits, 16));
    }
    template <bool kIsOdd>
    static ALWAYS_INLINE float32x4_t keys(const uint8_t* unit, int32_t d, int v) {
        const auto* pairs = reinterpret_cast<const float*>(unit);
        return pick<kIsOdd>(vld1q_f32(pairs + d / 2 * kUnitTokens + v * 4));
    }
    template <bool kIsOdd>
    static ALWAYS_INLINE float32x4_t values(const uint8_t* unit, int32_t slot, int32_t d, int32_t head_dim) {
        const auto* pairs = reinterpret_cast<const float*>(unit) + (kUnitTokens + slot) / 2 * head_dim;
        return pick<kIsOdd>(load_first(pairs + d, head_dim - d));
    }
    static ALWAYS_INLINE float32x4_t round(float32x4_t p) { return round_to_bf16(p); }
};

// Scores of R query rows against U units of 16 keys; one chain per score in order of d.
template <class P, int R, int U>
struct ScoreTile {
    const float* q;
    const uint8_t* const* units;
    int32_t head_dim;
    float32x4_t sums[R][U][kUnitVectors];

    template <bool kIsOdd>
    ALWAYS_INLINE void add(int32_t d) {
        UNROLL
        for (int u = 0; u < U; ++u) {
            float32x4_t keys[kUnitVectors];
            UNROLL
            for (int v = 0; v < kUnitVectors; ++v) keys[v] = P::template keys<kIsOdd>(units[u], d, v);
            UNROLL
            for (int r = 0; r < R; ++r) {
                const float query = q[r * static_cast<size_t>(head_dim) + d];
                UNROLL
                for (int v = 0; v < kUnitVectors; ++v)
                    sums[r][u][v] = vfmaq_n_f32(sums[r][u][v], keys[v], query);
            }
        }
    }

    ALWAYS_INLINE void run(float scale, float* scores) {
        UNROLL
        for (int i = 0; i < R * U; ++i) {
            UNROLL
            for (int v = 0; v < kUnitVectors; ++v) sums[i / U][i % U][v] = vdupq_n_f32(0.0f);
        }
        int32_t d = 0;
        for (; d + 2 <= head_dim; d += 2) {
            add<false>(d);
            add<true>(d + 1);
        }
        if (d < head_dim) add<false>(d);
        UNROLL
        for (int i = 0; i < R * U; ++i) {
            float* to = scores + i / U * kChunk + i % U * kUnitTokens;
            UNROLL
            for (int v = 0; v < kUnitVectors; ++v)
                vst1q_f32(to + v * 4, vmulq_n_f32(sums[i / U][i % U][v], scale));
        }
    }
};

// A run of keys of one chunk, and the dims to compute from `first_dim` on.
struct ValueRun {
    const uint8_t* const* units;
    int32_t begin;
    int32_t end;
    int32_t first_dim;
    int32_t head_dim;
};

// out[r] += P * V over the run for N vectors of dims, continuing one chain per output in key order.
template <class P, int R, int N>
struct ValueTile {
    const float* p;
    const ValueRun& run_of;
    float32x4_t sums[R][N];

    template <bool kIsOdd>
    ALWAYS_INLINE void add(int32_t key) {
        const uint8_t* unit = run_of.units[key / kUnitTokens];
        float32x4_t value[N];
        UNROLL
        for (int n = 0; n < N; ++n)
            value[n] = P::template values<kIsOdd>(unit, key % kUnitTokens, run_of.first_dim + n * 4,
                                                  run_of.head_dim);
        UNROLL
        for (int r = 0; r < R; ++r) {
            const float weight = p[r * kChunk + key];
            UNROLL
            for (int n = 0; n < N; ++n) sums[r][n] = vfmaq_n_f32(sums[r][n], value[n], weight);
        }
    }

    ALWAYS_INLINE void run(float* out, size_t stride) {
        UNROLL
        for (int i = 0; i < R * N; ++i) sums[i / N][i % N] = vld1q_f32(out + i / N * stride + i % N * 4);
        int32_t key = run_of.begin;
        if (key % 2 != 0) add<true>(key++);
        for (; key + 2 <= run_of.end; key += 2) {
            add<false>(key);
            add<true>(key + 1);
        }
        if (key < run_of.end) add<false>(key);
        UNROLL
        for (int i = 0; i < R * N; ++i) vst1q_f32(out + i / N * stride + i % N * 4, sums[i / N][i % N]);
    }
};

// Vectors at once that R rows leave registers for.
template <int R>
constexpr int kWidth = R <= kFewRows ? 8 : 4;

// Calls work.run<R>() for a number of rows known only now.
template <int R = kRows, class Work>
ALWAYS_INLINE void for_rows(int32_t num_rows, const Work& work) {
    if constexpr (R == 1) {
        work.template run<1>();
    } else if (num_rows == R) {
        work.template run<R>();
    } else {
        for_rows<R - 1>(num_rows, work);
    }
}

template <class P>
struct ScoreRows {
    const float* q;
    const uint8_t* const* units;
    int32_t num_units;
    const QueryTile& tile;
    float* scores;

    template <int R>
    void run() const {
        constexpr int kUnits = kWidth<R> / kUnitVectors;
        int32_t unit = 0;
        for (; unit + kUnits <= num_units; unit += kUnits) compute<R, kUnits>(unit);
        if (unit < num_units) compute<R, 1>(unit);
    }
    template <int R, int U>
    void compute(int32_t unit) const {
        ScoreTile<P, R, U> work;
        work.q = q;
        work.units = units + unit;
        work.head_dim = tile.head_dim;
        work.run(tile.scale, scores + unit * kUnitTokens);
    }
};

template <class P>
struct ValueRows {
    const float* p;
    const uint8_t* const* units;
    int32_t begin;
    int32_t end;
    int32_t head_dim;
    float* out;
    size_t stride;

    template <int R>
    void run() const {
        const int32_t num_vectors = (head_dim + 3) / 4;
        int32_t vector = 0;
        for (; vector + kWidth<R> <= num_vectors; vector += kWidth<R>) compute<R, kWidth<R>>(vector);
        for (; vector < num_vectors; ++vector) compute<R, 1>(vector);
    }
    template <int R, int N>
    void compute(int32_t vector) const {
        const ValueRun run_of = {units, begin, end, vector * 4, head_dim};
        ValueTile<P, R, N> work{p, run_of, {}};
        work.run(out + vector * 4, stride);
    }
};

template <class P>
class ChunkAttention {
  public:
    ChunkAttention(const QueryTile& tile, int32_t chunk_pos, const uint8_t* const* units, void* scratch,
                   const Partial& partial)
        : tile_(tile),
          chunk_pos_(chunk_pos),
          units_(units),
          partial_(partial),
          scores_(static_cast<float*>(scratch)),
          stride_(static_cast<size_t>(partial_stride(tile.head_dim))) {}

    void run() {
        for (int32_t row = 0; row < tile_.num_rows(); row += kRows) {
            const int32_t count = smaller(kRows, tile_.num_rows() - row);
            score_rows(row, count);
            for (int32_t i = row; i < row + count; ++i) softmax(i);
            add_rows(row, count);
        }
    }

  private:
    Visible visible(int32_t row) const {
        const int64_t pos = tile_.first_pos + row / tile_.heads;
        return {clamp(pos - tile_.window + 1 - chunk_pos_), clamp(pos + 1 - chunk_pos_)};
    }
    static int32_t clamp(int64_t key) {
        return static_cast<int32_t>(key < 0 ? 0 : key > kChunk ? kChunk : key);
    }

    float* scores(int32_t row) { return scores_ + static_cast<size_t>(row) * kChunk; }

    void score_rows(int32_t row, int32_t count) {
        const int32_t begin = visible(row).begin / kUnitTokens;
        const int32_t end = (visible(row + count - 1).end + kUnitTokens - 1) / kUnitTokens;
        const float* q = static_cast<const float*>(tile_.q) + static_cast<size_t>(row) * tile_.head_dim;
        for_rows(count,
                 ScoreRows<P>{q, units_ + begin, end - begin, tile_, scores(row) + begin * kUnitTokens});
    }

    // Of keys [first, first + 4) those the row sees.
    static ALWAYS_INLINE uint32x4_t visible_lanes(Visible keys, int32_t first) {
        return vbicq_u32(first_lanes(keys.end - first), first_lanes(keys.begin - first));
    }

    // Scores -> P of a row's visible keys, zero beside them in their units; maximum and sum.
    void softmax(int32_t row) {
        const Visible keys = visible(row);
        partial_.max[row] = kNoMaximum;
        partial_.sum[row] = 0.0f;
        if (keys.begin >= keys.end) return;
        float* p = scores(row);
        const int32_t begin = keys.begin / kUnitTokens * kUnitTokens;
        if (tile_.softcap > 0) cap_scores(p, begin, keys.end);
        float32x4_t largest = vdupq_n_f32(-FLT_MAX);
        for (int32_t key = begin; key < keys.end; key += 4) {
            const float32x4_t either = vmaxq_f32(largest, vld1q_f32(p + key));
            largest = vbslq_f32(visible_lanes(keys, key), either, largest);
        }
        const float max = vmaxvq_f32(largest);
        float32x4_t sums[kUnitVectors];
        for (float32x4_t& sum : sums) sum = vdupq_n_f32(0.0f);
        for (int32_t key = begin; key < keys.end; key += kUnitTokens) {
            UNROLL
            for (int v = 0; v < kUnitVectors; ++v) {
                const int32_t first = key + v * 4;
                const float32x4_t e = exp_of(vsubq_f32(vld1q_f32(p + first), vdupq_n_f32(max)));
                const uint32x4_t bits = vreinterpretq_u32_f32(P::round(e));
                const float32x4_t rounded =
                    vreinterpretq_f32_u32(vandq_u32(bits, visible_lanes(keys, first)));
                vst1q_f32(p + first, rounded);
                sums[v] = vaddq_f32(sums[v], rounded);
            }
        }
        partial_.max[row] = max;
        partial_.sum[row] = sum_lanes(sums[0], sums[1], sums[2], sums[3]);
    }

    void cap_scores(float* scores, int32_t begin, int32_t end) const {
        const float32x4_t cap = vdupq_n_f32(tile_.softcap);
        for (int32_t i = begin; i < end; i += 4)
            vst1q_f32(scores + i, vmulq_f32(cap, tanh_of(vdivq_f32(vld1q_f32(scores + i), cap))));
    }

    // P * V of some rows: what all of them see together, what only some see row by row before and after.
    void add_rows(int32_t row, int32_t count) {
        __builtin_memset(partial_.out + row * stride_, 0, count * stride_ * sizeof(float));
        int32_t begin = 0, end = kChunk;
        for (int32_t i = row; i < row + count; ++i) {
            begin = larger(begin, visible(i).begin);
            end = smaller(end, visible(i).end);
        }
        if (begin >= end) begin = end = kChunk;
        for (int32_t i = row; i < row + count; ++i)
            add(i, 1, visible(i).begin, smaller(begin, visible(i).end));
        add(row, count, begin, end);
        for (int32_t i = row; i < row + count; ++i) add(i, 1, larger(end, visible(i).begin), visible(i).end);
    }

    void add(int32_t row, int32_t count, int32_t begin, int32_t end) {
        if (begin >= end) return;
        for_rows(count, ValueRows<P>{scores(row), units_, begin, end, tile_.head_dim,
                                     partial_.out + row * stride_, stride_});
    }

    const QueryTile& tile_;
    const int32_t chunk_pos_;
    const uint8_t* const* units_;
    const Partial& partial_;
    float* scores_;  // [rows][kChunk]; P overwrites the scores
    const size_t stride_;
};

void attend_chunk(KVPrecision precision, const QueryTile& tile, int32_t chunk_pos,
                  const uint8_t* const* units, void* scratch, const Partial& partial) {
    if (precision == KVPrecision::f32) ChunkAttention<F32>(tile, chunk_pos, units, scratch, partial).run();
    if (precision == KVPrecision::f16) ChunkAttention<F16>(tile, chunk_pos, units, scratch, partial).run();
    if (precision == KVPrecision::bf16) ChunkAttention<BF16>(tile, chunk_pos, units, scratch, partial).run();
    if (precision == KVPrecision::int8) attend_int8(tile, chunk_pos, units, scratch, partial);
}

// Up to 4 elements in 16 bits each.
ALWAYS_INLINE void narrow(KVPrecision precision, const float* x, int32_t n, uint16_t* to) {
    const float32x4_t v = load_first(x, n);
    vst1_u16(to, precision == KVPrecision::f16 ? vreinterpret_u16_f16(vcvt_f16_f32(v))
                                               : upper_halves(round_to_bf16(v)));
}

void write_halves(KVPrecision precision, const float* k, const float* v, int32_t head_dim, int32_t slot,
                  uint8_t* unit) {
    const bool is_paired = precision == KVPrecision::bf16;
    auto* keys = reinterpret_cast<uint16_t*>(unit);
    uint16_t* values = keys + static_cast<size_t>(kUnitTokens) * head_dim;
    for (int32_t first = 0; first < head_dim; first += 4) {
        const int32_t count = smaller(4, head_dim - first);
        uint16_t key[4], value[4];
        narrow(precision, k + first, count, key);
        narrow(precision, v + first, count, value);
        for (int32_t i = 0; i < count; ++i) {
            const int32_t d = first + i;
            keys[is_paired ? (d / 2 * kUnitTokens + slot) * 2 + d % 2 : d * kUnitTokens + slot] = key[i];
            values[is_paired ? (slot / 2 * head_dim + d) * 2 + slot % 2 : slot * head_dim + d] = value[i];
        }
    }
}

void write_floats(const float* k, const float* v, int32_t head_dim, int32_t slot, uint8_t* unit) {
    auto* keys = reinterpret_cast<float*>(unit);
    for (int32_t d = 0; d < head_dim; ++d) keys[d * kUnitTokens + slot] = k[d];
    __builtin_memcpy(keys + static_cast<size_t>(kUnitTokens + slot) * head_dim, v, sizeof(float) * head_dim);
}

void write_kv(KVPrecision precision, const float* k, const float* v, int32_t head_dim, int32_t slot,
              uint8_t* unit) {
    if (precision == KVPrecision::f32)
        write_floats(k, v, head_dim, slot, unit);
    else if (precision == KVPrecision::int8)
        write_int8(k, v, head_dim, slot, unit);
    else
        write_halves(precision, k, v, head_dim, slot, unit);
}

void pack_queries(KVPrecision precision, const float* q, int32_t num_rows, int32_t head_dim,
                  const PackedQueries& out) {
    if (precision == KVPrecision::int8) return pack_int8(q, num_rows, head_dim, out);
    auto* packed = static_cast<float*>(out.q);
    const int32_t n = num_rows * head_dim;
    for (int32_t i = 0; i < n; i += 4) {
        const float32x4_t v = load_first(q + i, n - i);
        store_first(packed + i, precision == KVPrecision::bf16 ? round_to_bf16(v) : v, n - i);
    }
}

// One row: total.out = total.out * old_weight + chunk.out * new_weight.
void fold_row(float* total, const float* chunk, size_t stride, float old_weight, float new_weight) {
    for (size_t d = 0; d < stride; d += 4) {
        const float32x4_t added = vmulq_n_f32(vld1q_f32(chunk + d), new_weight);
        vst1q_f32(total + d, vfmaq_n_f32(added, vld1q_f32(total + d), old_weight));
    }
}

void fold(const Partial& total, const Partial& chunk, int32_t num_rows, int32_t head_dim) {
    const auto stride = static_cast<size_t>(partial_stride(head_dim));
    for (int32_t row = 0; row < num_rows; ++row) {
        if (chunk.max[row] == kNoMaximum) continue;
        if (total.max[row] == kNoMaximum) {
            total.max[row] = chunk.max[row];
            total.sum[row] = chunk.sum[row];
            __builtin_memcpy(total.out + row * stride, chunk.out + row * stride, stride * sizeof(float));
            continue;
        }
        const float max = total.max[row] > chunk.max[row] ? total.max[row] : chunk.max[row];
        const float less[4] = {total.max[row] - max, chunk.max[row] - max, 0, 0};
        float weights[4];
        vst1q_f32(weights, exp_of(vld1q_f32(less)));
        total.max[row] = max;
        total.sum[row] = total.sum[row] * weights[0] + chunk.sum[row] * weights[1];
        fold_row(total.out + row * stride, chunk.out + row * stride, stride, weights[0], weights[1]);
    }
}

void finish(const Partial& total, int32_t row, int32_t head_dim, float* out) {
    const float* sums = total.out + static_cast<size_t>(row) * partial_stride(head_dim);
    const float32x4_t sum = vdupq_n_f32(total.sum[row]);
    for (int32_t d = 0; d < head_dim; d += 4)
        store_first(out + d, vdivq_f32(vld1q_f32(sums + d), sum), head_dim - d);
}

constexpr AttentionKernels kAttention = {write_kv, pack_queries, attend_chunk, fold, finish};

}  // namespace

void fill_attention(KernelTable& table) { table.attention = &kAttention; }

}  // namespace twostroke::neon
