#include "kernels/attention.h"

#include <algorithm>
#include <cfloat>
#include <cstring>

#include "activations.h"
#include "exp.h"
#include "kernels/int8_heads.h"
#include "unpack.h"

namespace twostroke {
namespace {

// Round to nearest even; what is too large becomes infinite, what is below 2^-25 zero.
uint16_t to_half(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t sign = bits >> 16 & 0x8000;
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
    if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | 0x7c00);
    if (magnitude < 0x38800000) {  // subnormal half: 0.5 + |x| has its unit in the last place at 2^-24
        const float aligned = 0.5f + std::bit_cast<float>(magnitude);
        return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000));
    }
    const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return static_cast<uint16_t>(sign | (rounded - 0x38000000) >> 13);
}

// How each precision stores an element and where it lies in a unit.
struct F32 {
    using Stored = float;
    static float load(float x) { return x; }
    static float store(float x) { return x; }
    static float round_probability(float p) { return p; }
    static int32_t key_index(int32_t d, int32_t slot) { return d * kUnitTokens + slot; }
    static int32_t value_index(int32_t d, int32_t slot, int32_t head_dim) { return slot * head_dim + d; }
};

struct F16 : F32 {
    using Stored = uint16_t;
    static float load(uint16_t x) { return portable::half_to_float(x); }
    static uint16_t store(float x) { return to_half(x); }
};

struct BF16 {
    using Stored = uint16_t;
    static float load(uint16_t x) { return portable::bf16_to_float(x); }
    static uint16_t store(float x) { return portable::to_bf16(x); }
    static float round_probability(float p) { return load(store(p)); }
    static int32_t key_index(int32_t d, int32_t slot) { return (d / 2 * kUnitTokens + slot) * 2 + d % 2; }
    static int32_t value_index(int32_t d, int32_t slot, int32_t head_dim) {
        return (slot / 2 * head_dim + d) * 2 + slot % 2;
    }
};

template <class P>
void write_unit(const float* k, const float* v, int32_t head_dim, int32_t slot, uint8_t* unit) {
    auto* keys = reinterpret_cast<typename P::Stored*>(unit);
    auto* values = keys + kUnitTokens * head_dim;
    for (int32_t d = 0; d < head_dim; ++d) {
        keys[P::key_index(d, slot)] = P::store(k[d]);
        values[P::value_index(d, slot, head_dim)] = P::store(v[d]);
    }
}

// Scores of 16 keys: one chain per key in order of d.
template <class P>
void score_unit(const float* q, const uint8_t* unit, int32_t head_dim, float* scores) {
    const auto* keys = reinterpret_cast<const typename P::Stored*>(unit);
    float lanes[kUnitTokens] = {};
    for (int32_t d = 0; d < head_dim; ++d)
        for (int32_t slot = 0; slot < kUnitTokens; ++slot)
            lanes[slot] += q[d] * P::load(keys[P::key_index(d, slot)]);
    std::copy_n(lanes, kUnitTokens, scores);
}

template <class P>
void add_value(float probability, const uint8_t* unit, int32_t slot, int32_t head_dim, float* out) {
    const auto* values = reinterpret_cast<const typename P::Stored*>(unit) + kUnitTokens * head_dim;
    for (int32_t d = 0; d < head_dim; ++d)
        out[d] += probability * P::load(values[P::value_index(d, slot, head_dim)]);
}

float sum_lanes(float* lanes) {
    for (int32_t half = kUnitTokens / 2; half > 0; half /= 2)
        for (int32_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    return lanes[0];
}

// scores -> P over the visible keys; their maximum and sum.
template <class P>
void softmax(Visible keys, float* scores, float* max, float* sum) {
    float largest = -FLT_MAX;
    for (int32_t key = keys.begin; key < keys.end; ++key)
        largest = scores[key] > largest || scores[key] != scores[key] ? scores[key] : largest;
    float lanes[kUnitTokens] = {};
    for (int32_t key = keys.begin; key < keys.end; ++key) {
        scores[key] = P::round_probability(exp_of(scores[key] - largest));
        lanes[key % kUnitTokens] += scores[key];
    }
    *max = largest;
    *sum = sum_lanes(lanes);
}

template <class P>
void attend_row(const QueryTile& tile, const float* q, Visible keys, const uint8_t* const* units,
                float* scores, float* max, float* sum, float* out) {
    std::fill_n(out, partial_stride(tile.head_dim), 0.0f);
    *max = -HUGE_VALF;
    *sum = 0.0f;
    if (keys.begin >= keys.end) return;
    for (int32_t unit = keys.begin / kUnitTokens; unit * kUnitTokens < keys.end; ++unit)
        score_unit<P>(q, units[unit], tile.head_dim, scores + unit * kUnitTokens);
    for (int32_t key = keys.begin; key < keys.end; ++key) {
        scores[key] *= tile.scale;
        if (tile.softcap > 0) scores[key] = tile.softcap * tanh_of(scores[key] / tile.softcap);
    }
    softmax<P>(keys, scores, max, sum);
    for (int32_t key = keys.begin; key < keys.end; ++key)
        add_value<P>(scores[key], units[key / kUnitTokens], key % kUnitTokens, tile.head_dim, out);
}

Visible visible(const QueryTile& tile, int32_t row, int32_t chunk_pos) {
    const int64_t pos = tile.first_pos + row / tile.heads;
    const int64_t begin = std::max<int64_t>(pos - tile.window + 1 - chunk_pos, 0);
    const int64_t end = std::min<int64_t>(pos + 1 - chunk_pos, kChunk);
    return {static_cast<int32_t>(std::min<int64_t>(begin, kChunk)), static_cast<int32_t>(end)};
}

template <class P>
void attend(const QueryTile& tile, int32_t chunk_pos, const uint8_t* const* units, float* scores,
            const Partial& partial) {
    for (int32_t row = 0; row < tile.num_rows(); ++row) {
        attend_row<P>(tile, static_cast<const float*>(tile.q) + row * tile.head_dim,
                      visible(tile, row, chunk_pos), units, scores, partial.max + row, partial.sum + row,
                      partial.out + row * partial_stride(tile.head_dim));
    }
}

// Whole numbers q * k of one key.
int32_t dot_key(const int8_t* q, const uint8_t* keys, int32_t slot, int32_t head_dim) {
    int32_t sum = 0;
    for (int32_t d = 0; d < head_dim; ++d)
        sum += q[d] * (keys[(d / 4 * kUnitTokens + slot) * 4 + d % 4] - 128);
    return sum;
}

// exponentials -> whole steps of the chunk's largest exponential * scale of V; returns the step, which a NaN
// spoils.
float round_probabilities(Visible keys, const uint8_t* const* units, int32_t head_dim, float* p) {
    uint32_t largest = 0;
    for (int32_t key = keys.begin; key < keys.end; ++key) {
        p[key] *= Int8Unit(units[key / kUnitTokens], head_dim).value_scales[key % kUnitTokens];
        largest = std::max(largest, std::bit_cast<uint32_t>(p[key]));  // a NaN is the largest, and stays
    }
    const ProbabilityStep rounding = probability_step(largest);
    for (int32_t key = keys.begin; key < keys.end; ++key)
        p[key] = rounding.step == rounding.step ? std::nearbyint(p[key] * rounding.inverse) : 0.0f;
    return rounding.step;
}

void attend_int8_row(const QueryTile& tile, int32_t row, Visible keys, const uint8_t* const* units,
                     float* scores, const Partial& partial) {
    const int32_t head_dim = tile.head_dim;
    float* out = partial.out + row * partial_stride(head_dim);
    std::fill_n(out, partial_stride(head_dim), 0.0f);
    partial.max[row] = -HUGE_VALF;
    partial.sum[row] = 0.0f;
    if (keys.begin >= keys.end) return;
    const int8_t* q = static_cast<const int8_t*>(tile.q) + static_cast<size_t>(row) * int8_stride(head_dim);
    for (int32_t key = keys.begin; key < keys.end; ++key) {
        const Int8Unit unit(units[key / kUnitTokens], head_dim);
        const int32_t slot = key % kUnitTokens;
        const auto dot = static_cast<float>(dot_key(q, unit.keys, slot, head_dim));
        scores[key] = dot * unit.key_scales[slot] * score_factor(tile, row);
        if (tile.softcap > 0) scores[key] = tile.softcap * tanh_of(scores[key] / tile.softcap);
    }
    softmax<F32>(keys, scores, partial.max + row, partial.sum + row);
    const float step = round_probabilities(keys, units, head_dim, scores);
    for (int32_t d = 0; d < head_dim; ++d) {
        int32_t sum = 0;
        for (int32_t key = keys.begin; key < keys.end; ++key) {
            const Int8Unit unit(units[key / kUnitTokens], head_dim);
            const int32_t slot = key % kUnitTokens;
            sum += static_cast<int32_t>(scores[key]) * unit.values[(slot / 4 * head_dim + d) * 4 + slot % 4];
        }
        out[d] = static_cast<float>(sum) * step;
    }
}

void write_kv(KVPrecision precision, const float* k, const float* v, int32_t head_dim, int32_t slot,
              uint8_t* unit) {
    if (precision == KVPrecision::f32) write_unit<F32>(k, v, head_dim, slot, unit);
    if (precision == KVPrecision::f16) write_unit<F16>(k, v, head_dim, slot, unit);
    if (precision == KVPrecision::bf16) write_unit<BF16>(k, v, head_dim, slot, unit);
    if (precision == KVPrecision::int8) write_int8(k, v, head_dim, slot, unit);
}

// Queries stay float unless keys are int8; for bf16 they are rounded.
void pack_queries(KVPrecision precision, const float* q, int32_t num_rows, int32_t head_dim,
                  const PackedQueries& out) {
    if (precision == KVPrecision::int8) return pack_int8(q, num_rows, head_dim, out);
    auto* packed = static_cast<float*>(out.q);
    for (int32_t i = 0; i < num_rows * head_dim; ++i)
        packed[i] = precision == KVPrecision::bf16 ? BF16::load(BF16::store(q[i])) : q[i];
}

void attend_chunk(KVPrecision precision, const QueryTile& tile, int32_t chunk_pos,
                  const uint8_t* const* units, void* scratch, const Partial& partial) {
    auto* scores = static_cast<float*>(scratch);
    if (precision == KVPrecision::f32) attend<F32>(tile, chunk_pos, units, scores, partial);
    if (precision == KVPrecision::f16) attend<F16>(tile, chunk_pos, units, scores, partial);
    if (precision == KVPrecision::bf16) attend<BF16>(tile, chunk_pos, units, scores, partial);
    if (precision == KVPrecision::int8)
        for (int32_t row = 0; row < tile.num_rows(); ++row)
            attend_int8_row(tile, row, visible(tile, row, chunk_pos), units, scores, partial);
}

void fold(const Partial& total, const Partial& chunk, int32_t num_rows, int32_t head_dim) {
    const int32_t stride = partial_stride(head_dim);
    for (int32_t row = 0; row < num_rows; ++row) {
        float* out = total.out + row * stride;
        const float* added = chunk.out + row * stride;
        if (chunk.max[row] == -HUGE_VALF) continue;
        if (total.max[row] == -HUGE_VALF) {
            total.max[row] = chunk.max[row];
            total.sum[row] = chunk.sum[row];
            std::copy_n(added, stride, out);
            continue;
        }
        const float max = total.max[row] > chunk.max[row] ? total.max[row] : chunk.max[row];
        const float old_weight = exp_of(total.max[row] - max);
        const float new_weight = exp_of(chunk.max[row] - max);
        total.max[row] = max;
        total.sum[row] = total.sum[row] * old_weight + chunk.sum[row] * new_weight;
        for (int32_t d = 0; d < head_dim; ++d) out[d] = out[d] * old_weight + added[d] * new_weight;
    }
}

void finish(const Partial& total, int32_t row, int32_t head_dim, float* out) {
    const float* sums = total.out + row * partial_stride(head_dim);
    for (int32_t d = 0; d < head_dim; ++d) out[d] = sums[d] / total.sum[row];
}

constexpr AttentionKernels kAttention = {write_kv, pack_queries, attend_chunk, fold, finish};

}  // namespace

void portable_fill_attention(KernelTable& table) { table.attention = &kAttention; }

}  // namespace twostroke
