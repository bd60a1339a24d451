// The token of one row of logits. sample/reference.py is the definition; this is how to get there without
// looking at every logit more than once or twice.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/sample.h"
#include "sampling_state.h"

namespace twostroke {

struct TokenLogprob {
    int32_t token_id;
    float logprob;
};

struct TokenReport {
    float logprob;
    std::vector<TokenLogprob> best;
};

struct RowChoice {
    int32_t token_id = 0;
    std::optional<float> broken;  // the best logit of a row that cannot be sampled: NaN, inf or -inf
    std::optional<TokenReport> report;
};

// A token in the ranking, which goes by logit, best first, and by id on ties. Ranks are compared as numbers.
struct RankedToken {
    uint64_t rank;
    int64_t units;
};

// One thread's working memory; it grows to the largest row and stays. Cache lines of its own, as in pool.h.
class alignas(128) RowSampler {
  public:
    explicit RowSampler(const SampleKernels& kernels) : kernels_(kernels) {}

    RowChoice sample(const float* logits, int32_t num_logits, const SamplingState& state);

  private:
    void view(const float* logits, int32_t num_logits);
    void adjust(const SamplingState& state);
    void keep_allowed(const SamplingState& state);
    float* own_logit(int32_t id);
    bool find_best();
    std::optional<float> find_fault();
    bool list_survivors(const SamplingWishes& wishes);
    void keep_top_k(int32_t k);
    bool keep_top_p(double top_p);
    void keep_min_p(double min_p);
    bool try_gather(float floor, float ceiling, size_t limit);
    void gather(float floor, float ceiling = std::numeric_limits<float>::infinity());
    int64_t weigh();
    size_t shortest_prefix(int64_t wanted);
    void find_border(int64_t wanted);
    float floor_of_best(int32_t k);
    float floor_of_score(double score) const;
    float floor_of_min_p(double min_p) const;
    int32_t draw_from_ranks(const NoiseKey& key);
    int32_t draw_from_survivors(const NoiseKey& key);
    TokenReport report(int32_t token_id, int32_t num_best);

    const SampleKernels& kernels_;
    std::vector<const float*> blocks_;
    std::vector<float> copies_;  // blocks with changed tokens
    size_t num_copied_ = 0;      // floats of copies_ in use
    std::vector<float> block_max_;
    std::vector<float> maxima_;
    LogitBlocks row_{};
    ScoreScale scale_{};
    int32_t best_id_ = 0;
    uint64_t last_rank_ = 0;  // of the tokens that may be drawn, where they are too many to list
    std::vector<int32_t> ids_;
    std::vector<float> logits_;
    std::vector<int64_t> units_;
    std::vector<uint32_t> words_;
    std::vector<RankedToken> survivors_;
};

}  // namespace twostroke
