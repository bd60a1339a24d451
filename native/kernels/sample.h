// What sampling does with every logit of a row. Plain multiplications and additions, no FMA, and sums of
// whole numbers: the same bits on every ISA and in NumPy (sample/reference.py), whatever is computed beside
// it.
#pragma once

#include <cstdint>

#include "table.h"

namespace twostroke {

// Logits are looked at in blocks, so that a glance at the maximum of a block can spare its content.
inline constexpr int32_t kLogitBlock = 64;

// A row of logits as pointers to its blocks: those with penalised tokens are copies. Of a whole row, block
// after block; of one whose other logits nobody looks at, some panels.
struct LogitBlocks {
    const float* const* blocks;
    int32_t num_logits;                  // of the whole row
    const int32_t* first_ids = nullptr;  // of panels, in no order
    int32_t num_panels = 0;

    int32_t count() const {
        return first_ids != nullptr ? num_panels : (num_logits + kLogitBlock - 1) / kLogitBlock;
    }
    int32_t first_id(int32_t block) const {
        return first_ids != nullptr ? first_ids[block] : block * kLogitBlock;
    }
    int32_t size(int32_t block) const {
        const int32_t most = first_ids != nullptr ? kPanelRows : kLogitBlock;
        const int32_t left = num_logits - first_id(block);
        return left < most ? left : most;
    }
};

// score = (logit - max) * inverse_temperature; weight = exp(score); units = weight in whole multiples of
// 2^-40.
struct ScoreScale {
    float max;
    float inverse_temperature;

    float score(float logit) const { return (logit - max) * inverse_temperature; }
};
inline constexpr float kUnitsPerWeight = 0x1p40f;
inline constexpr float kWeightlessScore = -28.0f;  // exp(-28) is less than one unit
inline constexpr int32_t kMaxVocab = 1 << 22;      // 2^22 weights of 2^40 units fit in 63 bits

inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53;
inline constexpr uint32_t kPhiloxMultiplier2 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9;
inline constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85;

// What the words of one draw have in common. They are those of Philox4x32-10 (Salmon et al., SC'11,
// section 3.3): sample/random.py draws the counter.
struct NoiseKey {
    NoiseKey(uint64_t seed, uint32_t choice_index, uint32_t position, uint32_t purpose)
        : choice_index(choice_index), position(position), purpose(purpose) {
        uint32_t first = static_cast<uint32_t>(seed), second = static_cast<uint32_t>(seed >> 32);
        for (RoundKey& round : rounds) {
            round = {first, second};
            first += kPhiloxWeyl0;
            second += kPhiloxWeyl1;
        }
    }

    struct RoundKey {
        uint64_t first;  // 32 bits, as wide as a lane of products
        uint64_t second;
    };

    RoundKey rounds[kPhiloxRounds];
    uint32_t choice_index;
    uint32_t position;
    uint32_t purpose;
};

// A word that begins with n ones has noise of at most (n + 1) * ln 2, see sample_noise.h; this one has nine.
inline constexpr uint32_t kTailWord = 0xFF800000;
inline constexpr float kNoiseBelowTail = 9 * 0.693147182f;

struct SampleKernels {
    // The first `n` logits of a block where their bits are set, -inf where not.
    void (*keep)(const float* block, int32_t n, uint64_t bits, float* out);
    // The maximum of each block. False when a logit is NaN; the maxima mean nothing then.
    bool (*maxima)(const LogitBlocks& row, float* block_max);
    // Ids of the logits from `floor` up to `ceiling`, block by block; returns how many, or some number beyond
    // `most` once they are more. Room for every id of the row.
    int32_t (*collect)(const LogitBlocks& row, const float* block_max, float floor, float ceiling,
                       int32_t most, int32_t* ids);
    // The units of the logits above `floor`; with -inf, of the whole row.
    int64_t (*total_units)(const LogitBlocks& row, const float* block_max, ScoreScale scale, float floor);
    // units[i] of logits[i]
    void (*units)(const float* logits, int32_t n, ScoreScale scale, int64_t* units);
    // words[i] of ids[i]
    void (*words_of)(const NoiseKey& key, const int32_t* ids, int32_t n, uint32_t* words);
    // The words of one block from `first_id`, and a bit for each of its `n` ids whose score is at least `bar`
    // or whose word is at least kTailWord.
    uint64_t (*words_of_block)(const NoiseKey& key, int32_t first_id, const float* block, int32_t n,
                               ScoreScale scale, float bar, uint32_t* words);
    // Of rows of `n` <= kPanelRows logits, `stride` apart: which have one that is not below the row's bar,
    // and the largest logit of each of these. NaN is below nothing and the largest of all.
    int32_t (*reach)(const float* tile, size_t stride, int32_t num_rows, int32_t n, const float* bars,
                     int32_t* rows, float* largest);
};

void portable_fill_sample(KernelTable& table);
#if TWOSTROKE_X86_64
namespace avx512 {
void fill_sample(KernelTable& table);
}
#endif

}  // namespace twostroke
