// The token of one row of logits. sample/reference.py is the definition; this is how to get there without
// looking at every logit more than once or twice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "candidates.h"
#include "kernels/sample.h"
#include "rank.h"
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
    std::optional<float> broken;     // the best logit of a row that cannot be sampled: NaN, inf or -inf
    std::optional<double> surprise;  // of the token in bits, where mirostat wants to hear it
    std::optional<TokenReport> report;
};

// A token in the ranking, which goes by logit, best first, and by id on ties. Ranks are compared as numbers.
struct RankedToken {
    uint64_t rank;
    int64_t units;
};

inline bool ranks_before(const RankedToken& a, const RankedToken& b) { return a.rank < b.rank; }

// The fewest units that are at least `share` of `total`.
int64_t units_of_share(double share, int64_t total);

// Where the logits of a row are: all of them, or what a head handed on of them.
struct LogitRow {
    const float* logits = nullptr;
    const Candidates* candidates = nullptr;  // instead of logits
    int32_t row = 0;                         // of candidates
};

// One thread's working memory; it grows to the largest row and stays. Cache lines of its own, as in pool.h.
class alignas(128) RowSampler {
  public:
    explicit RowSampler(const SampleKernels& kernels) : kernels_(kernels) {}

    RowChoice sample(const LogitRow& row, int32_t num_logits, const SamplingState& state);

  private:
    void view(const LogitRow& row, int32_t num_logits);
    void view_whole(const float* logits);
    void view_panels(const Candidates& candidates, int32_t row);
    std::optional<float> fault_before_bans(const LogitRow& row, const SamplingState& state);
    int32_t block_of(int32_t id) const {
        return row_.first_ids == nullptr ? id / kLogitBlock : places_[id / kPanelRows];
    }
    float logit_at(int32_t id) const {
        const int32_t block = block_of(id);
        return blocks_[block][id - row_.first_id(block)];
    }
    void find_bans(const SamplingState& state);
    bool adjust(const SamplingState& state);
    void penalise(Stage stage, const SamplingState& state);
    void keep_allowed(const SamplingState& state);
    float* own_logit(int32_t id);
    bool find_best();
    std::optional<float> find_fault();
    bool list_survivors(const SamplingWishes& wishes);
    void keep_top_k(int32_t k);
    void keep_first(int32_t k);
    bool keep_top_p(double top_p);
    void keep_min_p(double min_p);
    bool try_gather(float floor, float ceiling, int32_t limit);
    void gather(float floor, float ceiling = std::numeric_limits<float>::infinity());
    int64_t weigh();
    template <class Before>
    size_t shortest_prefix(int64_t wanted, Before before);
    size_t shortest_prefix(int64_t wanted);
    bool is_within(int32_t id, int64_t wanted);
    uint64_t border(int64_t wanted);
    float floor_of_best(int32_t k);
    float floor_of_score(double score) const;
    float floor_of_min_p(double min_p) const;
    int32_t draw_from_many(const NoiseKey& key);
    int32_t draw_from_ranks(const NoiseKey& key);
    int32_t draw_from_survivors(const NoiseKey& key);
    TokenReport report(int32_t token_id, int32_t num_best);

    // sample_chain.cpp: samplers that the usual way has no place for.
    int32_t draw_from_chain(const SamplingState& state, std::optional<double>& surprise);
    void apply(Stage stage, const SamplingState& state);
    void keep_typical(double typical_p);
    void keep_top_n_sigma(double num_sigmas);
    void exclude_top_choices(const SamplingState& state);
    void keep_expected(double surprise_limit);
    void penalise_survivors(Stage stage, const SamplingState& state);
    void refer_to_best();
    double score_of(const RankedToken& token) const { return scale_.score(logit_of(token.rank)); }
    double mean_depth();
    double dynamic_temperature(const SamplingWishes& wishes);
    double surprise_of(int32_t id);

    const SampleKernels& kernels_;
    std::vector<const float*> blocks_;
    std::vector<int32_t> first_ids_;  // where blocks are panels
    std::vector<int32_t> places_;     // per panel: the block that it is, or -1
    std::vector<Candidates::FoundPanel> panels_;
    std::vector<float> copies_;  // blocks with changed tokens
    size_t num_copied_ = 0;      // floats of copies_ in use
    std::vector<float> block_max_;
    std::vector<float> maxima_;
    LogitBlocks row_{};
    int32_t num_present_ = 0;  // logits in the blocks
    ScoreScale scale_{};
    int32_t best_id_ = 0;
    std::optional<int64_t>
        units_wanted_;        // of the first tokens that may be drawn, where top-p leaves too many to list
    uint64_t last_rank_ = 0;  // of the tokens that may be drawn, once it is known
    std::vector<int32_t> ids_;
    std::vector<float> logits_;
    std::vector<int64_t> units_;
    std::vector<uint32_t> words_;
    std::vector<RankedToken> survivors_;
    TokenIds bans_;
    std::vector<TokenPenalty> dry_;
    TokenIds scratch_;
};

// How many survivors make the shortest prefix with `wanted` units, in the order `before`; puts them first.
// Units are whole numbers: their sums have no order.
template <class Before>
size_t RowSampler::shortest_prefix(int64_t wanted, Before before) {
    size_t begin = 0;
    size_t end = survivors_.size();
    const auto first = survivors_.begin();
    while (end - begin > 32) {
        const size_t middle = begin + (end - begin) / 2;
        std::nth_element(first + begin, first + middle, first + end, before);
        int64_t units = 0;
        for (size_t i = begin; i < middle; ++i) units += survivors_[i].units;
        if (units >= wanted) {
            end = middle;
        } else {
            wanted -= units;
            begin = middle;
        }
    }
    std::sort(first + begin, first + end, before);
    while (begin < end && wanted > 0) wanted -= survivors_[begin++].units;
    return begin;
}

}  // namespace twostroke
