// Sampling gives the same bits on every machine: digests of what one of them computed.
#include <algorithm>
#include <cmath>

#include "checks.h"
#include "float_state.h"
#include "kernels/sample.h"

namespace twostroke::checks {
namespace {

constexpr uint64_t kDigest = 0x0955ED313ED84D9A;
constexpr int32_t kNumLogits = 1000;  // 15 blocks and 40 more

struct Row {
    Row() : logits(kNumLogits) {
        Random random(5);
        std::vector<float> values(kNumLogits);
        for (float& x : values) x = 20 * random.symmetric();
        std::memcpy(logits.data(), values.data(), sizeof(float) * kNumLogits);
        for (int32_t at = 0; at < kNumLogits; at += kLogitBlock) blocks.push_back(logits.data() + at);
    }
    LogitBlocks view() const { return {blocks.data(), kNumLogits}; }
    Guarded<float> logits;
    std::vector<const float*> blocks;
};

uint64_t digest_of_sampling(const SampleKernels& kernels) {
    const Row row;
    std::vector<float> block_max(row.blocks.size());
    std::vector<int32_t> ids(kNumLogits);
    std::vector<int64_t> units(kNumLogits);
    std::vector<uint32_t> words(kNumLogits), block_words(kLogitBlock);
    check(kernels.maxima(row.view(), block_max.data()), "a logit is NaN", "sample");
    ids.resize(kernels.collect(row.view(), block_max.data(), 3.0f, 19.0f, kNumLogits, ids.data()));
    const ScoreScale scale = {19.9f, 1.25f};
    kernels.units(row.logits.data(), kNumLogits, scale, units.data());
    const NoiseKey key = {0x0123456789ABCDEF, 3, 77, 1};
    words.resize(ids.size());
    kernels.words_of(key, ids.data(), static_cast<int32_t>(ids.size()), words.data());
    uint64_t able =
        kernels.words_of_block(key, 128, row.blocks[2], kLogitBlock, scale, -5.0f, block_words.data());
    const auto total = static_cast<uint64_t>(kernels.total_units(row.view(), block_max.data(), scale, 2.0f));
    const uint64_t parts[] = {digest(block_max.data(), block_max.size() * sizeof(float)),
                              digest(ids.data(), ids.size() * sizeof(int32_t)),
                              digest(units.data(), units.size() * sizeof(int64_t)),
                              digest(words.data(), words.size() * sizeof(uint32_t)),
                              digest(block_words.data(), block_words.size() * sizeof(uint32_t)),
                              able,
                              total};
    return digest(parts, sizeof parts);
}

void test_nan(const Isa& isa) {
    const Row row;
    std::vector<float> block_max(row.blocks.size());
    for (const int32_t at : {0, 63, 500, kNumLogits - 1}) {
        const float kept = row.logits.data()[at];
        row.logits.data()[at] = NAN;
        check(!isa.kernels.sample->maxima(row.view(), block_max.data()), "NaN went unseen",
              isa.name + " sample");
        row.logits.data()[at] = kept;
    }
}

// Rows of a tile and a bar of each: below, at and above it, zeros of both signs, NaN on either side, any
// length.
void test_reach(const Isa& isa) {
    constexpr int32_t kRows = 9;
    Random random(11);
    for (int32_t n = 1; n <= kPanelRows; ++n) {
        std::vector<float> values(kRows * kPanelRows), bars(kRows);
        random.fill(values);
        for (float& bar : bars) bar = 0.9f + 0.1f * random.uniform();
        values[kPanelRows + n - 1] = bars[1];
        values[2 * kPanelRows + n / 2] = NAN;
        values[3 * kPanelRows + n - 1] = 2.0f;
        if (n < kPanelRows) values[4 * kPanelRows + n] = 2.0f;  // past the end
        for (int32_t i = 0; i < n; ++i) values[5 * kPanelRows + i] = -0.0f;
        bars[5] = 0.0f;
        bars[6] = -HUGE_VALF;
        bars[7] = HUGE_VALF;
        const Guarded<float> tile(values), bar(bars);
        std::vector<int32_t> expected, rows(kRows);
        for (int32_t row = 0; row < kRows; ++row) {
            bool is_below = true;
            for (int32_t i = 0; i < n; ++i) is_below &= values[row * kPanelRows + i] < bars[row];
            if (!is_below) expected.push_back(row);
        }
        std::vector<float> largest(kRows);
        rows.resize(isa.kernels.sample->reach(tile.data(), kPanelRows, kRows, n, bar.data(), rows.data(),
                                              largest.data()));
        const std::string where = isa.name + " " + std::to_string(n);
        check(rows == expected, "other rows reach their bars", where);
        for (size_t i = 0; i < rows.size(); ++i) {
            const float* const x = values.data() + rows[i] * kPanelRows;
            const bool has_nan = std::any_of(x, x + n, [](float each) { return std::isnan(each); });
            check(has_nan ? std::isnan(largest[i]) : largest[i] == *std::max_element(x, x + n),
                  "another logit is the largest", where);
        }
    }
}

}  // namespace

void test_sample() {
    const FloatState float_state(Denormals::kept);
    for (const Isa& isa : usable()) {
        check(digest_of_sampling(*isa.kernels.sample) == kDigest, "sampling differs from other machines",
              isa.name);
        test_nan(isa);
        test_reach(isa);
    }
}

}  // namespace twostroke::checks
