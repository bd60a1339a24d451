#include "kernels/sample.h"

#include "exp.h"

namespace twostroke {
namespace {

constexpr int32_t kLanes = 16;  // a compiler keeps these apart in vector registers

void keep(const float* block, int32_t n, uint64_t bits, float* out) {
    for (int32_t i = 0; i < n; ++i) out[i] = bits >> i & 1 ? block[i] : -HUGE_VALF;
}

bool maxima(const LogitBlocks& row, float* block_max) {
    uint32_t num_nan = 0;
    for (int32_t block = 0; block < row.count(); ++block) {
        const float* x = row.blocks[block];
        const int32_t n = row.size(block);
        float lanes[kLanes];
        for (float& lane : lanes) lane = -HUGE_VALF;
        int32_t i = 0;
        for (; i + kLanes <= n; i += kLanes)
            for (int32_t lane = 0; lane < kLanes; ++lane) {
                lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
                num_nan += x[i + lane] != x[i + lane];
            }
        for (; i < n; ++i) {
            lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
            num_nan += x[i] != x[i];
        }
        float max = lanes[0];
        for (const float lane : lanes) max = lane > max ? lane : max;
        block_max[block] = max;
    }
    return num_nan == 0;
}

int32_t collect(const LogitBlocks& row, const float* block_max, float floor, float ceiling, int32_t most,
                int32_t* ids) {
    int32_t count = 0;
    for (int32_t block = 0; block < row.count() && count <= most; ++block) {
        if (block_max[block] < floor) continue;
        const float* x = row.blocks[block];
        for (int32_t i = 0; i < row.size(block); ++i) {
            ids[count] = row.first_id(block) + i;
            count += x[i] >= floor && x[i] <= ceiling;
        }
    }
    return count;
}

void units(const float* logits, int32_t n, ScoreScale scale, int64_t* units) {
    float scaled[kLogitBlock];
    for (int32_t first = 0; first < n; first += kLogitBlock) {
        const int32_t size = n - first < kLogitBlock ? n - first : kLogitBlock;
        for (int32_t i = 0; i < size; ++i)
            scaled[i] = exp_of(scale.score(logits[first + i])) * kUnitsPerWeight;
        for (int32_t i = 0; i < size; ++i) units[first + i] = static_cast<int64_t>(scaled[i]);
    }
}

int64_t total_units(const LogitBlocks& row, const float* block_max, ScoreScale scale, float floor) {
    int64_t total = 0;
    int64_t block_units[kLogitBlock];
    for (int32_t block = 0; block < row.count(); ++block) {
        if (block_max[block] <= floor || scale.score(block_max[block]) < kWeightlessScore) continue;
        const int32_t n = row.size(block);
        units(row.blocks[block], n, scale, block_units);
        for (int32_t i = 0; i < n; ++i) total += row.blocks[block][i] > floor ? block_units[i] : 0;
    }
    return total;
}

// The four output words of counters `group`, `group` + 1, ...: words[4 * i + j] is word j of counter i.
template <int32_t Counters, class Group>
void philox(const NoiseKey& key, Group group, uint32_t* words) {
    uint32_t c0[Counters], c1[Counters], c2[Counters], c3[Counters];
    for (int32_t i = 0; i < Counters; ++i) {
        c0[i] = key.choice_index;
        c1[i] = key.position;
        c2[i] = group(i);
        c3[i] = key.purpose;
    }
    for (const NoiseKey::RoundKey& round : key.rounds) {
        const auto key0 = static_cast<uint32_t>(round.first), key1 = static_cast<uint32_t>(round.second);
        for (int32_t i = 0; i < Counters; ++i) {
            const uint64_t left = static_cast<uint64_t>(kPhiloxMultiplier0) * c0[i];
            const uint64_t right = static_cast<uint64_t>(kPhiloxMultiplier2) * c2[i];
            c0[i] = static_cast<uint32_t>(right >> 32) ^ c1[i] ^ key0;
            c1[i] = static_cast<uint32_t>(right);
            c2[i] = static_cast<uint32_t>(left >> 32) ^ c3[i] ^ key1;
            c3[i] = static_cast<uint32_t>(left);
        }
    }
    for (int32_t i = 0; i < Counters; ++i) {
        words[4 * i] = c0[i];
        words[4 * i + 1] = c1[i];
        words[4 * i + 2] = c2[i];
        words[4 * i + 3] = c3[i];
    }
}

void words_of(const NoiseKey& key, const int32_t* ids, int32_t n, uint32_t* words) {
    for (int32_t i = 0; i < n; ++i) {
        uint32_t four[4];
        philox<1>(key, [&](int32_t) { return static_cast<uint32_t>(ids[i]) / 4; }, four);
        words[i] = four[ids[i] % 4];
    }
}

uint64_t words_of_block(const NoiseKey& key, int32_t first_id, const float* block, int32_t n,
                        ScoreScale scale, float bar, uint32_t* words) {
    const uint32_t first = static_cast<uint32_t>(first_id) / 4;
    philox<kLogitBlock / 4>(key, [&](int32_t i) { return first + static_cast<uint32_t>(i); }, words);
    uint64_t able = 0;
    for (int32_t i = 0; i < n; ++i)
        able |= static_cast<uint64_t>(scale.score(block[i]) >= bar || words[i] >= kTailWord) << i;
    return able;
}

template <int32_t N>
bool reaches(const float* x, int32_t n, float bar) {
    uint32_t num_below = 0;
    const int32_t count = N > 0 ? N : n;
    for (int32_t i = 0; i < count; ++i) num_below += x[i] < bar;
    return num_below != static_cast<uint32_t>(count);
}

int32_t reach(const float* tile, size_t stride, int32_t num_rows, int32_t n, const float* bars, int32_t* rows,
              float* largest) {
    int32_t count = 0;
    for (int32_t row = 0; row < num_rows; ++row) {
        const float* x = tile + row * stride;
        const bool is_hit =
            n == kPanelRows ? reaches<kPanelRows>(x, n, bars[row]) : reaches<0>(x, n, bars[row]);
        if (!is_hit) continue;
        rows[count] = row;
        if (!maxima({&x, n}, &largest[count])) largest[count] = NAN;
        ++count;
    }
    return count;
}

constexpr SampleKernels kSample = {keep,  maxima,   collect,        total_units,
                                   units, words_of, words_of_block, reach};

}  // namespace

void portable_fill_sample(KernelTable& table) { table.sample = &kSample; }

}  // namespace twostroke
