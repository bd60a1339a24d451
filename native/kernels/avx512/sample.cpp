#include "kernels/sample.h"

#include <cmath>

#include "exp.h"

namespace twostroke::avx512 {
namespace {

// The portable exp_of in vectors, operation by operation: no FMA, so both give the same bits. x <= 0.
inline __m512 plain_exp_of(__m512 x) {
    const __m512 round = _mm512_set1_ps(12582912.0f);
    const __m512 shifted = _mm512_add_ps(_mm512_mul_ps(x, _mm512_set1_ps(kLog2E)), round);
    const __m512 n = _mm512_sub_ps(shifted, round);
    const auto step = [](__m512 a, __m512 b, float c) {
        return _mm512_add_ps(_mm512_set1_ps(c), _mm512_mul_ps(a, b));
    };
    __m512 r = _mm512_sub_ps(x, _mm512_mul_ps(n, _mm512_set1_ps(kLn2High)));
    r = _mm512_sub_ps(r, _mm512_mul_ps(n, _mm512_set1_ps(kLn2Low)));
    __m512 poly = step(r, _mm512_set1_ps(kExp6), kExp5);
    poly = step(r, poly, kExp4);
    poly = step(r, poly, kExp3);
    poly = step(r, poly, kExp2);
    const __m512 tail = _mm512_add_ps(r, _mm512_mul_ps(_mm512_mul_ps(r, r), poly));
    const __m512i y = _mm512_castps_si512(_mm512_add_ps(_mm512_set1_ps(1.0f), tail));
    const __m512i power = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    const __mmask16 is_normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.3f), _CMP_GE_OQ);
    return _mm512_castsi512_ps(_mm512_maskz_add_epi32(is_normal, y, power));
}

struct Scale {
    explicit Scale(ScoreScale scale)
        : max(_mm512_set1_ps(scale.max)), inverse(_mm512_set1_ps(scale.inverse_temperature)) {}
    __m512 score(__m512 logits) const { return _mm512_mul_ps(_mm512_sub_ps(logits, max), inverse); }

    __m512 max;
    __m512 inverse;
};

// Logits of the lanes below n; the others are -inf, which weighs nothing.
inline __m512 load(const float* x, int32_t n) {
    if (n >= 16) return _mm512_loadu_ps(x);
    return _mm512_mask_loadu_ps(_mm512_set1_ps(-HUGE_VALF), n > 0 ? first_lanes(n) : 0, x);
}

struct Units {
    explicit Units(__m512 scores) {
        const __m512 scaled = _mm512_mul_ps(plain_exp_of(scores), _mm512_set1_ps(kUnitsPerWeight));
        low = _mm512_cvttps_epi64(_mm512_castps512_ps256(scaled));
        high = _mm512_cvttps_epi64(_mm512_extractf32x8_ps(scaled, 1));
    }

    __m512i low;
    __m512i high;
};

void keep(const float* block, int32_t n, uint64_t bits, float* out) {
    const __m512 nothing = _mm512_set1_ps(-HUGE_VALF);
    for (int32_t i = 0; i < n; i += 16) {
        const __mmask16 valid = first_lanes(n - i);
        const __mmask16 kept = static_cast<__mmask16>(bits >> i) & valid;
        _mm512_mask_storeu_ps(out + i, valid, _mm512_mask_loadu_ps(nothing, kept, block + i));
    }
}

bool maxima(const LogitBlocks& row, float* block_max) {
    __mmask16 is_nan = 0;
    for (int32_t block = 0; block < row.count(); ++block) {
        const float* x = row.blocks[block];
        const int32_t n = row.size(block);
        const __m512 a = load(x, n), b = load(x + 16, n - 16), c = load(x + 32, n - 32),
                     d = load(x + 48, n - 48);
        is_nan |= _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q) | _mm512_cmp_ps_mask(c, d, _CMP_UNORD_Q);
        block_max[block] = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d)));
    }
    return is_nan == 0;
}

int32_t collect(const LogitBlocks& row, const float* block_max, float floor, float ceiling, int32_t most,
                int32_t* ids) {
    const __m512 low = _mm512_set1_ps(floor);
    const __m512 high = _mm512_set1_ps(ceiling);
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    int32_t count = 0;
    for (int32_t block = 0; block < row.count() && count <= most; ++block) {
        if (block_max[block] < floor) continue;
        const int32_t n = row.size(block);
        for (int32_t i = 0; i < n; i += 16) {
            const __mmask16 valid = first_lanes(n - i);
            const __m512 x = _mm512_maskz_loadu_ps(valid, row.blocks[block] + i);
            const __mmask16 found = _mm512_mask_cmp_ps_mask(
                _mm512_mask_cmp_ps_mask(valid, x, low, _CMP_GE_OQ), x, high, _CMP_LE_OQ);
            const __m512i id = _mm512_add_epi32(lanes, _mm512_set1_epi32(row.first_id(block) + i));
            const int32_t num_found = __builtin_popcount(found);
            // Compressed in a register and stored whole lanes at a time: a compressing store is slow on
            // Zen 4.
            _mm512_mask_storeu_epi32(ids + count, static_cast<__mmask16>((1u << num_found) - 1),
                                     _mm512_maskz_compress_epi32(found, id));
            count += num_found;
        }
    }
    return count;
}

template <bool kHasFloor>
int64_t sum_units(const LogitBlocks& row, const float* block_max, ScoreScale scale, float floor) {
    const Scale wide(scale);
    const __m512 lowest = _mm512_set1_ps(floor), none = _mm512_set1_ps(-HUGE_VALF);
    __m512i total = _mm512_setzero_si512();
    for (int32_t block = 0; block < row.count(); ++block) {
        if (block_max[block] <= floor || scale.score(block_max[block]) < kWeightlessScore) continue;
        const int32_t n = row.size(block);
        for (int32_t i = 0; i < n; i += 16) {
            __m512 logits = load(row.blocks[block] + i, n - i);
            if (kHasFloor)
                logits = _mm512_mask_mov_ps(none, _mm512_cmp_ps_mask(logits, lowest, _CMP_GT_OQ), logits);
            const Units part(wide.score(logits));
            total = _mm512_add_epi64(total, _mm512_add_epi64(part.low, part.high));
        }
    }
    return _mm512_reduce_add_epi64(total);
}

int64_t total_units(const LogitBlocks& row, const float* block_max, ScoreScale scale, float floor) {
    return floor == -HUGE_VALF ? sum_units<false>(row, block_max, scale, floor)
                               : sum_units<true>(row, block_max, scale, floor);
}

void units(const float* logits, int32_t n, ScoreScale scale, int64_t* units) {
    const Scale wide(scale);
    for (int32_t i = 0; i < n; i += 16) {
        const Units part(wide.score(load(logits + i, n - i)));
        const __mmask16 valid = first_lanes(n - i);
        _mm512_mask_storeu_epi64(units + i, static_cast<__mmask8>(valid), part.low);
        if (n - i > 8) _mm512_mask_storeu_epi64(units + i + 8, static_cast<__mmask8>(valid >> 8), part.high);
    }
}

inline __m512i xor_of(__m512i a, __m512i b, __m512i c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }

// The four words of eight counters, each in the low half of a lane: a product then brings both its halves
// where the next round wants them, and what stands in the high halves is looked at by nobody.
struct EightCounters {
    // `group` is the third word of each.
    EightCounters(const NoiseKey& key, __m512i group)
        : c0(_mm512_set1_epi64(key.choice_index)),
          c1(_mm512_set1_epi64(key.position)),
          c2(group),
          c3(_mm512_set1_epi64(key.purpose)) {}

    void round(__m512i key0, __m512i key1) {
        const __m512i left = _mm512_mul_epu32(c0, _mm512_set1_epi64(kPhiloxMultiplier0));
        const __m512i right = _mm512_mul_epu32(c2, _mm512_set1_epi64(kPhiloxMultiplier2));
        c0 = xor_of(_mm512_srli_epi64(right, 32), c1, key0);
        c1 = right;
        c2 = xor_of(_mm512_srli_epi64(left, 32), c3, key1);
        c3 = left;
    }

    __m512i first_pair() const { return _mm512_mask_mov_epi32(c0, 0xAAAA, _mm512_slli_epi64(c1, 32)); }
    __m512i second_pair() const { return _mm512_mask_mov_epi32(c2, 0xAAAA, _mm512_slli_epi64(c3, 32)); }

    __m512i c0, c1, c2, c3;
};

// All rounds for two times eight counters, whose products do not wait for each other.
void philox(const NoiseKey& key, EightCounters& a, EightCounters& b) {
    for (const NoiseKey::RoundKey& round : key.rounds) {
        const __m512i first = _mm512_set1_epi64(static_cast<int64_t>(round.first));
        const __m512i second = _mm512_set1_epi64(static_cast<int64_t>(round.second));
        a.round(first, second);
        b.round(first, second);
    }
}

void words_of(const NoiseKey& key, const int32_t* ids, int32_t n, uint32_t* words) {
    for (int32_t i = 0; i < n; i += 16) {
        const __mmask16 valid = first_lanes(n - i);
        const __m512i id = _mm512_maskz_loadu_epi32(valid, ids + i);
        const __m512i group = _mm512_srli_epi32(id, 2);
        EightCounters low(key, _mm512_cvtepu32_epi64(_mm512_castsi512_si256(group)));
        EightCounters high(key, _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(group, 1)));
        philox(key, low, high);
        // The words of counter c are 2 * c and 2 * c + 1 of a pair of registers; an id's low bits choose.
        const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        const __m512i at =
            _mm512_or_epi32(_mm512_slli_epi32(lanes, 1), _mm512_and_epi32(id, _mm512_set1_epi32(1)));
        const __m512i first = _mm512_permutex2var_epi32(low.first_pair(), at, high.first_pair());
        const __m512i second = _mm512_permutex2var_epi32(low.second_pair(), at, high.second_pair());
        const __mmask16 is_second = _mm512_test_epi32_mask(id, _mm512_set1_epi32(2));
        _mm512_mask_storeu_epi32(words + i, valid, _mm512_mask_mov_epi32(first, is_second, second));
    }
}

// The words of eight counters in the order of their ids: 32 of them in two registers.
struct InOrder {
    explicit InOrder(const EightCounters& counters) {
        const __m512i first = counters.first_pair(), second = counters.second_pair();
        low = _mm512_permutex2var_epi64(first, _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0), second);
        high = _mm512_permutex2var_epi64(first, _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4), second);
    }

    __m512i low;
    __m512i high;
};

uint64_t words_of_block(const NoiseKey& key, int32_t first_id, const float* block, int32_t n,
                        ScoreScale scale, float bar, uint32_t* words) {
    const __m512i lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    EightCounters front(key, _mm512_add_epi64(lanes, _mm512_set1_epi64(first_id / 4)));
    EightCounters back(key, _mm512_add_epi64(lanes, _mm512_set1_epi64(first_id / 4 + 8)));
    philox(key, front, back);
    const InOrder low(front), high(back);
    const __m512i four[4] = {low.low, low.high, high.low, high.high};
    const Scale wide(scale);
    uint64_t able = 0;
    for (int32_t i = 0; i < 4; ++i) {
        _mm512_storeu_si512(words + 16 * i, four[i]);
        const __m512 score = wide.score(load(block + 16 * i, n - 16 * i));
        const __mmask16 is_near = _mm512_cmp_ps_mask(score, _mm512_set1_ps(bar), _CMP_GE_OQ);
        const __mmask16 is_tail =
            _mm512_cmpge_epu32_mask(four[i], _mm512_set1_epi32(static_cast<int32_t>(kTailWord)));
        const __mmask16 valid = n > 16 * i ? first_lanes(n - 16 * i) : __mmask16{0};
        able |= static_cast<uint64_t>((is_near | is_tail) & valid) << (16 * i);
    }
    return able;
}

int32_t reach(const float* tile, size_t stride, int32_t num_rows, int32_t n, const float* bars, int32_t* rows,
              float* largest) {
    const __mmask16 low = first_lanes(n), high = n > 16 ? first_lanes(n - 16) : __mmask16{0};
    const __m512 none = _mm512_set1_ps(-HUGE_VALF);
    int32_t count = 0;
    for (int32_t row = 0; row < num_rows; ++row) {
        const float* x = tile + row * stride;
        const __m512 bar = _mm512_set1_ps(bars[row]);
        const __m512 front = _mm512_mask_loadu_ps(none, low, x);
        const __m512 back = _mm512_mask_loadu_ps(none, high, x + 16);
        const __mmask16 hits = _mm512_mask_cmp_ps_mask(low, front, bar, _CMP_NLT_UQ) |
                               _mm512_mask_cmp_ps_mask(high, back, bar, _CMP_NLT_UQ);
        if (hits == 0) continue;
        rows[count] = row;
        const bool has_nan = _mm512_cmp_ps_mask(front, back, _CMP_UNORD_Q) != 0;
        largest[count++] = has_nan ? NAN : _mm512_reduce_max_ps(_mm512_max_ps(front, back));
    }
    return count;
}

constexpr SampleKernels kSample = {keep,  maxima,   collect,        total_units,
                                   units, words_of, words_of_block, reach};

}  // namespace

void fill_sample(KernelTable& table) { table.sample = &kSample; }

}  // namespace twostroke::avx512
