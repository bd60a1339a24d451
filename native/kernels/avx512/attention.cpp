#include "kernels/attention.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "exp.h"
#include "kernels/avx512/attention_int8.h"

namespace twostroke::avx512 {
namespace {

// Query rows per register tile: 6 rows x 4 vectors are 24 accumulators, enough to hide a latency of 6 on two
// units.
constexpr int kRows = 6;

// How each precision multiplies. A step of QK covers kWide dims for 16 keys, a step of PV kWide keys for 16
// dims.
struct F32 {
    using Element = float;  // of packed queries and of P
    static constexpr int kWide = 1;
    static constexpr int kStoredBytes = 4;
    static __m512 load(const uint8_t* at) { return _mm512_loadu_ps(at); }
    static __m512 load(__mmask16 lanes, const uint8_t* at) { return _mm512_maskz_loadu_ps(lanes, at); }
    static __m512 broadcast(const float* at) { return _mm512_set1_ps(*at); }
    static __m512 dot(__m512 sum, __m512 a, __m512 b) { return _mm512_fmadd_ps(a, b, sum); }
    static __m512 store_probability(float* to, __m512 p) {
        _mm512_storeu_ps(to, p);
        return p;
    }
};

struct F16 : F32 {
    static constexpr int kStoredBytes = 2;
    static __m512 load(const uint8_t* at) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
    }
    static __m512 load(__mmask16 lanes, const uint8_t* at) {
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, at));
    }
};

struct BF16 {
    using Element = uint16_t;
    static constexpr int kWide = 2;
    static constexpr int kStoredBytes = 2;
    static __m512 load(const uint8_t* at) { return _mm512_loadu_ps(at); }
    static __m512 load(__mmask16 lanes, const uint8_t* at) { return _mm512_maskz_loadu_ps(lanes, at); }
    static __m512 broadcast(const uint16_t* at) {
        int32_t pair;
        std::memcpy(&pair, at, sizeof pair);
        return _mm512_castsi512_ps(_mm512_set1_epi32(pair));
    }
    static __m512 dot(__m512 sum, __m512 a, __m512 b) {
        return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
    }
    static __m512 store_probability(uint16_t* to, __m512 p) {
        const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(p);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);
        const __m512i high = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7, 0, 6,
                                              0, 5, 0, 4, 0, 3, 0, 2, 0, 1, 0, 0, 0);
        return _mm512_castsi512_ps(
            _mm512_maskz_permutexvar_epi16(0xAAAAAAAA, high, _mm512_castsi256_si512(rounded)));
    }
};

// Bytes of one step of K, and of one dim in a step of V.
template <class P>
constexpr size_t kKeyStep = size_t{kUnitTokens} * P::kWide * P::kStoredBytes;
template <class P>
constexpr size_t kValueDim = size_t{P::kWide} * P::kStoredBytes;

// Scores of R query rows against U units of 16 keys; one chain per score in order of d. `asks_values`: the
// values of these units are asked for meanwhile, as many lines as keys are read.
template <class P, int R, int U>
void score(const typename P::Element* q, const uint8_t* const* units, int32_t head_dim, float scale,
           bool asks_values, float* scores) {
    const size_t values = kUnitTokens * P::kStoredBytes * static_cast<size_t>(head_dim);
    __m512 sums[R][U];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int u = 0; u < U; ++u) sums[r][u] = _mm512_setzero_ps();
    for (int32_t step = 0; step < head_dim / P::kWide; ++step) {
        __m512 keys[U];
#pragma GCC unroll 8
        for (int u = 0; u < U; ++u) keys[u] = P::load(units[u] + step * kKeyStep<P>);
        if (asks_values)
            for (int u = 0; u < U; ++u) _mm_prefetch(units[u] + values + step * kKeyStep<P>, _MM_HINT_T1);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const __m512 query = P::broadcast(q + r * static_cast<size_t>(head_dim) + step * P::kWide);
#pragma GCC unroll 8
            for (int u = 0; u < U; ++u) sums[r][u] = P::dot(sums[r][u], keys[u], query);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int u = 0; u < U; ++u)
            _mm512_storeu_ps(scores + r * kChunk + u * kUnitTokens,
                             _mm512_mul_ps(sums[r][u], _mm512_set1_ps(scale)));
}

// A run of steps of V in one chunk, and where the 16-dim vectors to compute lie.
struct ValueRun {
    const uint8_t* const* units;
    int32_t begin;  // steps
    int32_t end;
    size_t offset;                     // bytes from the start of a unit to the first vector
    size_t step_bytes;                 // from one step to the next
    __mmask16 last;                    // lanes of the last vector
    int32_t keep;                      // edge: the bits of a pair that count
    const uint8_t* const* next_units;  // null, or units whose keys are asked for meanwhile
    size_t next_bytes;                 // of keys, per step
};

// out[r][n] += P * V over the run, continuing one chain per output in key order.
template <class P, int R, int N, bool kEdge>
void add_values(const typename P::Element* p, const ValueRun& run, float* out, size_t out_stride) {
    constexpr int32_t kStepsPerUnit = kUnitTokens / P::kWide;
    __m512 sums[R][N];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) sums[r][n] = _mm512_loadu_ps(out + r * out_stride + n * 16);
    for (int32_t step = run.begin; step < run.end; ++step) {
        const uint8_t* at =
            run.units[step / kStepsPerUnit] + run.offset + step % kStepsPerUnit * run.step_bytes;
        if (run.next_units != nullptr) {
            const uint8_t* next = run.next_units[step / kStepsPerUnit];
            for (size_t i = 0; next != nullptr && i < run.next_bytes; i += 64)
                _mm_prefetch(next + step % kStepsPerUnit * run.next_bytes + i, _MM_HINT_T1);
        }
        __m512 values[N];
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) {
            values[n] = n + 1 < N ? P::load(at + n * 16 * kValueDim<P>)
                                  : P::load(run.last, at + n * 16 * kValueDim<P>);
            if (kEdge) values[n] = _mm512_and_ps(values[n], _mm512_castsi512_ps(_mm512_set1_epi32(run.keep)));
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const __m512 weight = P::broadcast(p + r * kChunk + step * P::kWide);
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n) sums[r][n] = P::dot(sums[r][n], values[n], weight);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) _mm512_storeu_ps(out + r * out_stride + n * 16, sums[r][n]);
}

template <class P>
using ScoreFunction = void (*)(const typename P::Element*, const uint8_t* const*, int32_t, float, bool,
                               float*);
template <class P>
using ValueFunction = void (*)(const typename P::Element*, const ValueRun&, float*, size_t);

// [rows - 1][0: one, 1: two, 2: four vectors]
template <class P>
constexpr ScoreFunction<P> kScore[kRows][3] = {
    {score<P, 1, 1>, score<P, 1, 2>, score<P, 1, 4>}, {score<P, 2, 1>, score<P, 2, 2>, score<P, 2, 4>},
    {score<P, 3, 1>, score<P, 3, 2>, score<P, 3, 4>}, {score<P, 4, 1>, score<P, 4, 2>, score<P, 4, 4>},
    {score<P, 5, 1>, score<P, 5, 2>, score<P, 5, 4>}, {score<P, 6, 1>, score<P, 6, 2>, score<P, 6, 4>}};
template <class P>
constexpr ValueFunction<P> kValues[kRows][3] = {
    {add_values<P, 1, 1, false>, add_values<P, 1, 2, false>, add_values<P, 1, 4, false>},
    {add_values<P, 2, 1, false>, add_values<P, 2, 2, false>, add_values<P, 2, 4, false>},
    {add_values<P, 3, 1, false>, add_values<P, 3, 2, false>, add_values<P, 3, 4, false>},
    {add_values<P, 4, 1, false>, add_values<P, 4, 2, false>, add_values<P, 4, 4, false>},
    {add_values<P, 5, 1, false>, add_values<P, 5, 2, false>, add_values<P, 5, 4, false>},
    {add_values<P, 6, 1, false>, add_values<P, 6, 2, false>, add_values<P, 6, 4, false>}};
template <class P>
constexpr ValueFunction<P> kEdgeValues[3] = {add_values<P, 1, 1, true>, add_values<P, 1, 2, true>,
                                             add_values<P, 1, 4, true>};

// Vectors to take at once of `left`: 4, 2 or 1, as an index of the tables above.
int widest(int32_t left) { return left >= 4 ? 2 : left >= 2 ? 1 : 0; }

template <class P>
class ChunkAttention {
  public:
    using Element = typename P::Element;

    ChunkAttention(const QueryTile& tile, int32_t chunk_pos, const uint8_t* const* units, void* scratch,
                   const Partial& partial)
        : tile_(tile),
          chunk_pos_(chunk_pos),
          units_(units),
          partial_(partial),
          scores_(static_cast<float*>(scratch)),
          stride_(static_cast<size_t>(partial_stride(tile.head_dim))) {
        // float P overwrites the scores, bf16 P has room behind them
        if constexpr (sizeof(Element) == 4)
            p_ = scores_;
        else
            p_ = reinterpret_cast<Element*>(scores_ + std::min(kRows, tile.num_rows()) * kChunk);
    }

    void run() {
        for (int32_t row = 0; row < tile_.num_rows(); row += kRows) {
            const int32_t count = std::min(kRows, tile_.num_rows() - row);
            first_row_ = row;
            score_rows(row, count);
            for (int32_t i = row; i < row + count; ++i) find_maximum(i);  // apart: their ends overlap
            for (int32_t i = row; i < row + count; ++i) exponentiate(i);
            add_rows(row, count);
        }
    }

  private:
    // Steps of V one row takes: whole ones, and half pairs before and after.
    struct Steps {
        int32_t begin;
        int32_t end;
        bool has_low;
        bool has_high;
    };

    Visible visible(int32_t row) const {
        const int64_t pos = tile_.first_pos + row / tile_.heads;
        return {clamp(pos - tile_.window + 1 - chunk_pos_), clamp(pos + 1 - chunk_pos_)};
    }
    static int32_t clamp(int64_t key) { return static_cast<int32_t>(std::clamp<int64_t>(key, 0, kChunk)); }

    static Steps steps(Visible keys) {
        constexpr int32_t kWide = P::kWide;
        if (keys.begin >= keys.end) return {0, 0, false, false};
        return {(keys.begin + kWide - 1) / kWide, keys.end / kWide, keys.begin % kWide != 0,
                keys.end % kWide != 0};
    }

    void score_rows(int32_t row, int32_t count) {
        const int32_t begin = visible(row).begin / kUnitTokens;
        const int32_t end = (visible(row + count - 1).end + kUnitTokens - 1) / kUnitTokens;
        const auto* q = static_cast<const Element*>(tile_.q) + static_cast<size_t>(row) * tile_.head_dim;
        for (int32_t unit = begin; unit < end;) {
            const int width = widest(end - unit);
            kScore<P>[count - 1][width](q, units_ + unit, tile_.head_dim, tile_.scale, row == 0,
                                        scores_ + unit* kUnitTokens);
            unit += 1 << width;
        }
    }

    static __mmask16 visible_lanes(Visible keys, int32_t unit) {
        const int32_t first = unit * kUnitTokens;
        const auto below = static_cast<__mmask16>(keys.begin > first ? (1u << (keys.begin - first)) - 1 : 0);
        return first_lanes(keys.end - first) & static_cast<__mmask16>(~below);
    }

    // Keys beside the visible ones, in the first and the last unit, get no weight: e to the -inf is zero.
    static void hide(float* scores, Visible keys) {
        for (const int32_t unit : {keys.begin / kUnitTokens, (keys.end - 1) / kUnitTokens}) {
            const auto hidden = static_cast<__mmask16>(~visible_lanes(keys, unit));
            if (hidden != 0)  // a store nobody needs would hold up the loads to come
                _mm512_mask_storeu_ps(scores + unit * kUnitTokens, hidden, _mm512_set1_ps(-HUGE_VALF));
        }
    }

    // The maximum of a row's visible scores; the others of their units are hidden.
    void find_maximum(int32_t row) {
        const Visible keys = visible(row);
        partial_.max[row] = -HUGE_VALF;
        if (keys.begin >= keys.end) return;
        float* scores = scores_ + (row - first_row_) * kChunk;
        const int32_t begin = keys.begin / kUnitTokens;
        const int32_t end = (keys.end + kUnitTokens - 1) / kUnitTokens;
        if (tile_.softcap > 0) cap_scores(scores, begin, end);
        hide(scores, keys);
        __m512 largest = _mm512_set1_ps(-FLT_MAX);
        for (int32_t unit = begin; unit < end; ++unit)
            largest = _mm512_max_ps(largest, _mm512_loadu_ps(scores + unit * kUnitTokens));
        partial_.max[row] = _mm512_reduce_max_ps(largest);
    }

    // Scores -> P of a row's visible keys, zero beside them in their units; the sum.
    void exponentiate(int32_t row) {
        const Visible keys = visible(row);
        partial_.sum[row] = 0.0f;
        if (keys.begin >= keys.end) return;
        const float* scores = scores_ + (row - first_row_) * kChunk;
        Element* p = p_ + (row - first_row_) * kChunk;
        const __m512 max = _mm512_set1_ps(partial_.max[row]);
        __m512 sum = _mm512_setzero_ps();
        const int32_t end = (keys.end + kUnitTokens - 1) / kUnitTokens;
        for (int32_t unit = keys.begin / kUnitTokens; unit < end; ++unit) {
            const __m512 score = _mm512_loadu_ps(scores + unit * kUnitTokens);
            const __m512 e = exp_of_bounded(_mm512_sub_ps(score, max));
            sum = _mm512_add_ps(sum, P::store_probability(p + unit * kUnitTokens, e));
        }
        partial_.sum[row] = sum_lanes(sum);
    }

    void cap_scores(float* scores, int32_t begin, int32_t end) const {
        const __m512 cap = _mm512_set1_ps(tile_.softcap);
        for (int32_t i = begin * kUnitTokens; i < end * kUnitTokens; i += 16)
            _mm512_storeu_ps(scores + i,
                             _mm512_mul_ps(cap, tanh_of(_mm512_div_ps(_mm512_loadu_ps(scores + i), cap))));
    }

    // P * V of some rows: what all of them see together, what only some see row by row before and after.
    void add_rows(int32_t row, int32_t count) {
        Steps each[kRows];
        int32_t begin = 0, end = kChunk;
        for (int32_t i = 0; i < count; ++i) {
            each[i] = steps(visible(row + i));
            begin = std::max(begin, each[i].begin);
            end = std::min(end, each[i].end);
        }
        const int32_t num_vectors = static_cast<int32_t>(stride_ / 16);
        std::memset(partial_.out + row * stride_, 0, count * stride_ * sizeof(float));
        for (int32_t vector = 0; vector < num_vectors;) {
            const int width = widest(num_vectors - vector);
            const Columns columns{vector, width, vector + (1 << width) == num_vectors};
            if (count == 1 || begin >= end) {
                for (int32_t i = 0; i < count; ++i) add_row(row + i, each[i], columns);
            } else {
                for (int32_t i = 0; i < count; ++i)
                    add_row(row + i, {each[i].begin, begin, each[i].has_low, false}, columns);
                add(row, count, begin, end, columns);
                for (int32_t i = 0; i < count; ++i)
                    add_row(row + i, {end, each[i].end, false, each[i].has_high}, columns);
            }
            vector += 1 << width;
        }
    }

    struct Columns {
        int32_t vector;
        int width;
        bool is_last;
    };

    void add_row(int32_t row, Steps steps, Columns columns) {
        if (steps.has_low) add_edge(row, steps.begin - 1, static_cast<int32_t>(0xFFFF0000), columns);
        if (steps.begin < steps.end) add(row, 1, steps.begin, steps.end, columns);
        if (steps.has_high) add_edge(row, steps.end, 0x0000FFFF, columns);
    }

    ValueRun run_of(int32_t begin, int32_t end, Columns columns) const {
        const int32_t tail = tile_.head_dim % 16;
        return {units_,
                begin,
                end,
                size_t{kUnitTokens} * P::kStoredBytes * tile_.head_dim + columns.vector * 16 * kValueDim<P>,
                kValueDim<P> * tile_.head_dim,
                columns.is_last && tail != 0 ? first_lanes(tail) : static_cast<__mmask16>(0xFFFF),
                0,
                nullptr,
                size_t{P::kWide} * P::kStoredBytes * tile_.head_dim};
    }

    void add(int32_t row, int32_t count, int32_t begin, int32_t end, Columns columns) {
        ValueRun run = run_of(begin, end, columns);
        if (row == 0 && columns.vector == 0) run.next_units = tile_.next_units;
        kValues<P>[count - 1][columns.width](p_ + (row - first_row_)* kChunk, run,
                                             partial_.out + row* stride_ + columns.vector* 16, stride_);
    }

    void add_edge(int32_t row, int32_t step, int32_t keep, Columns columns) {
        ValueRun run = run_of(step, step + 1, columns);
        run.keep = keep;
        kEdgeValues<P>[columns.width](p_ + (row - first_row_)* kChunk, run,
                                      partial_.out + row* stride_ + columns.vector* 16, stride_);
    }

    const QueryTile& tile_;
    const int32_t chunk_pos_;
    const uint8_t* const* units_;
    const Partial& partial_;
    float* scores_;  // [kRows][kChunk] of the rows from first_row_ on: in L1, as they take turns
    Element* p_;     // as scores_
    int32_t first_row_ = 0;
    const size_t stride_;
};

void attend_chunk(KVPrecision precision, const QueryTile& tile, int32_t chunk_pos,
                  const uint8_t* const* units, void* scratch, const Partial& partial) {
    if (precision == KVPrecision::f32) ChunkAttention<F32>(tile, chunk_pos, units, scratch, partial).run();
    if (precision == KVPrecision::f16) ChunkAttention<F16>(tile, chunk_pos, units, scratch, partial).run();
    if (precision == KVPrecision::bf16) ChunkAttention<BF16>(tile, chunk_pos, units, scratch, partial).run();
    if (precision == KVPrecision::int8) attend_int8(tile, chunk_pos, units, scratch, partial);
}

void write_bf16(const float* k, const float* v, int32_t head_dim, int32_t slot, uint8_t* unit) {
    uint8_t* values = unit + size_t{2} * kUnitTokens * head_dim;
    for (int32_t d = 0; d < head_dim; d += 16) {
        const __mmask16 lanes = first_lanes(head_dim - d);
        alignas(32) uint32_t pairs[8];
        const __m256i keys = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lanes, k + d));
        _mm256_store_si256(reinterpret_cast<__m256i*>(pairs), keys);
        for (int32_t i = 0; i < std::min(8, (head_dim - d) / 2); ++i)
            std::memcpy(unit + (d / 2 + i) * size_t{64} + slot * 4, &pairs[i], 4);

        const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lanes, v + d));
        const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16 * (slot % 2));
        const int32_t count = std::min(16, head_dim - d);
        const auto written = static_cast<__mmask32>((uint64_t{1} << (2 * count)) - 1);
        _mm512_mask_storeu_epi16(values + (size_t{static_cast<uint32_t>(slot / 2)} * head_dim + d) * 4,
                                 written & (0x55555555u << (slot % 2)), wide);
    }
}

void write_f16(const float* k, const float* v, int32_t head_dim, int32_t slot, uint8_t* unit) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    auto* keys = reinterpret_cast<uint16_t*>(unit);
    uint16_t* values = keys + size_t{kUnitTokens} * head_dim + static_cast<size_t>(slot) * head_dim;
    for (int32_t d = 0; d < head_dim; d += 16) {
        const __mmask16 lanes = first_lanes(head_dim - d);
        alignas(32) uint16_t halves[16];
        _mm256_store_si256(reinterpret_cast<__m256i*>(halves),
                           _mm512_cvtps_ph(_mm512_maskz_loadu_ps(lanes, k + d), kNearest));
        for (int32_t i = 0; i < std::min(16, head_dim - d); ++i)
            keys[(d + i) * kUnitTokens + slot] = halves[i];
        _mm256_mask_storeu_epi16(values + d, lanes,
                                 _mm512_cvtps_ph(_mm512_maskz_loadu_ps(lanes, v + d), kNearest));
    }
}

void write_f32(const float* k, const float* v, int32_t head_dim, int32_t slot, uint8_t* unit) {
    auto* keys = reinterpret_cast<float*>(unit);
    for (int32_t d = 0; d < head_dim; ++d) keys[d * kUnitTokens + slot] = k[d];
    std::memcpy(keys + static_cast<size_t>(kUnitTokens + slot) * head_dim, v, sizeof(float) * head_dim);
}

void write_kv(KVPrecision precision, const float* k, const float* v, int32_t head_dim, int32_t slot,
              uint8_t* unit) {
    if (precision == KVPrecision::f32) write_f32(k, v, head_dim, slot, unit);
    if (precision == KVPrecision::f16) write_f16(k, v, head_dim, slot, unit);
    if (precision == KVPrecision::bf16) write_bf16(k, v, head_dim, slot, unit);
    if (precision == KVPrecision::int8) write_kv_int8(k, v, head_dim, slot, unit);
}

void pack_queries(KVPrecision precision, const float* q, int32_t num_rows, int32_t head_dim,
                  const PackedQueries& out) {
    if (precision == KVPrecision::int8) return pack_queries_int8(q, num_rows, head_dim, out);
    const int32_t n = num_rows * head_dim;
    if (precision != KVPrecision::bf16) {
        std::memcpy(out.q, q, sizeof(float) * n);
        return;
    }
    auto* packed = static_cast<uint16_t*>(out.q);
    for (int32_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        _mm256_mask_storeu_epi16(packed + i, lanes,
                                 (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lanes, q + i)));
    }
}

// One row: total.out = total.out * old_weight + chunk.out * new_weight.
void fold_row(float* total, const float* chunk, size_t stride, float old_weight, float new_weight) {
    for (size_t d = 0; d < stride; d += 16) {
        const __m512 added = _mm512_mul_ps(_mm512_loadu_ps(chunk + d), _mm512_set1_ps(new_weight));
        _mm512_storeu_ps(total + d,
                         _mm512_fmadd_ps(_mm512_loadu_ps(total + d), _mm512_set1_ps(old_weight), added));
    }
}

void fold(const Partial& total, const Partial& chunk, int32_t num_rows, int32_t head_dim) {
    const auto stride = static_cast<size_t>(partial_stride(head_dim));
    for (int32_t first = 0; first < num_rows; first += 16) {
        const __mmask16 lanes = first_lanes(num_rows - first);
        const __m512 old_max = _mm512_maskz_loadu_ps(lanes, total.max + first);
        const __m512 new_max = _mm512_maskz_loadu_ps(lanes, chunk.max + first);
        const __m512 max = _mm512_max_ps(old_max, new_max);
        alignas(64) float old_weight[16], new_weight[16], largest[16];
        _mm512_store_ps(old_weight, exp_of(_mm512_sub_ps(old_max, max)));
        _mm512_store_ps(new_weight, exp_of(_mm512_sub_ps(new_max, max)));
        _mm512_store_ps(largest, max);
        for (int32_t i = 0; i < std::min(16, num_rows - first); ++i) {
            const int32_t row = first + i;
            if (chunk.max[row] == -HUGE_VALF) continue;
            if (total.max[row] == -HUGE_VALF) {
                total.max[row] = chunk.max[row];
                total.sum[row] = chunk.sum[row];
                std::copy_n(chunk.out + row * stride, stride, total.out + row * stride);
                continue;
            }
            total.max[row] = largest[i];
            total.sum[row] = total.sum[row] * old_weight[i] + chunk.sum[row] * new_weight[i];
            fold_row(total.out + row * stride, chunk.out + row * stride, stride, old_weight[i],
                     new_weight[i]);
        }
    }
}

void finish(const Partial& total, int32_t row, int32_t head_dim, float* out) {
    const float* sums = total.out + static_cast<size_t>(row) * partial_stride(head_dim);
    const __m512 sum = _mm512_set1_ps(total.sum[row]);
    for (int32_t d = 0; d < head_dim; d += 16)
        _mm512_mask_storeu_ps(out + d, first_lanes(head_dim - d),
                              _mm512_div_ps(_mm512_loadu_ps(sums + d), sum));
}

constexpr AttentionKernels kAttention = {write_kv, pack_queries, attend_chunk, fold, finish};

}  // namespace

void fill_attention(KernelTable& table) { table.attention = &kAttention; }

}  // namespace twostroke::avx512
