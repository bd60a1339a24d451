#include "sample_row.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/portable/exp.h"
#include "sample_noise.h"

namespace twostroke {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// How far below the best to look first, in logits for top-k and in scores for top-p: a few hundred tokens are
// ranked in the time that tens of thousands take to be gathered.
constexpr float kMargins[] = {4.0f, 8.0f, 16.0f, kInfinity};
constexpr int32_t kMany = 2048;     // more are not listed: passes over the whole row are faster then
constexpr double kRounding = 1e-3;  // covers the rounding of a bound on scores

// A block of which nothing is allowed.
constexpr auto kNothing = [] {
    std::array<float, kLogitBlock> block{};
    block.fill(-kInfinity);
    return block;
}();

constexpr uint64_t kLastRank = std::numeric_limits<uint64_t>::max();

// The largest score + noise so far, lowest id on ties.
class Draw {
  public:
    // Noise costs two logarithms: only a word with a bound that reaches the best so far is given any.
    void consider(int32_t id, float score, uint32_t word) {
        if (score + gumbel_bound(word) < total_ - kRounding) return;
        const double total = score + gumbel(word);
        if (total > total_ || (total == total_ && id < id_)) {
            total_ = total;
            id_ = id;
        }
    }

    int32_t id() const { return id_; }
    double total() const { return total_; }

  private:
    int32_t id_ = 0;
    double total_ = -std::numeric_limits<double>::infinity();
};

}  // namespace

int64_t units_of_share(double share, int64_t total) {
    const double wanted = std::ceil(share * static_cast<double>(total));
    return std::clamp<int64_t>(static_cast<int64_t>(wanted), 1, total);
}

RowChoice RowSampler::sample(const LogitRow& row, int32_t num_logits, const SamplingState& state) {
    const SamplingWishes& wishes = state.wishes();
    RowChoice choice;
    view(row, num_logits);
    find_bans(state);
    choice.broken = fault_before_bans(row, state);
    bool is_changed = false;
    if (!choice.broken) {
        is_changed = adjust(state);
        choice.broken = find_fault();
    }
    if (choice.broken) return choice;
    choice.token_id = best_id_;
    const bool has_chain = !state.stages().chain.empty() || wishes.has_mirostat();
    if (wishes.temperature != 0 && has_chain) {
        choice.token_id = draw_from_chain(state, choice.surprise);
    } else if (wishes.temperature != 0) {
        scale_.inverse_temperature = state.inverse_temperature();
        choice.token_id = list_survivors(wishes) ? draw_from_survivors(state.noise_key())
                                                 : draw_from_many(state.noise_key());
    }
    if (wishes.num_logprobs) {
        if (is_changed) view(row, num_logits);
        if (is_changed || has_chain) find_best();
        choice.report = report(choice.token_id, *wishes.num_logprobs);
    }
    return choice;
}

void RowSampler::view(const LogitRow& row, int32_t num_logits) {
    row_ = {nullptr, num_logits};
    if (row.candidates != nullptr)
        view_panels(*row.candidates, row.row);
    else
        view_whole(row.logits);
    row_.blocks = blocks_.data();
    ids_.resize(num_present_);
    block_max_.resize(row_.count());
}

void RowSampler::view_whole(const float* logits) {
    num_present_ = row_.num_logits;
    blocks_.resize(row_.count());
    for (int32_t block = 0; block < row_.count(); ++block)
        blocks_[block] = logits + static_cast<size_t>(block) * kLogitBlock;
}

void RowSampler::view_panels(const Candidates& candidates, int32_t row) {
    for (const int32_t id : first_ids_) places_[id / kPanelRows] = -1;
    places_.resize(candidates.num_panels(), -1);
    candidates.find(row, panels_);
    const auto count = static_cast<int32_t>(panels_.size());
    blocks_.resize(count);
    first_ids_.resize(count);
    for (int32_t block = 0; block < count; ++block) {
        const int32_t panel = panels_[block].number();
        blocks_[block] = panels_[block].logits;
        first_ids_[block] = panel * kPanelRows;
        places_[panel] = block;
    }
    row_.first_ids = first_ids_.data();
    row_.num_panels = count;
    num_present_ = 0;
    for (int32_t block = 0; block < count; ++block) num_present_ += row_.size(block);
}

// A ban may not hide what is broken.
std::optional<float> RowSampler::fault_before_bans(const LogitRow& row, const SamplingState& state) {
    if (row.candidates != nullptr) {
        const float top = row.candidates->top(row.row);
        return std::isfinite(top) ? std::nullopt : std::optional(top);
    }
    return state.has_mask() || !bans_.empty() ? find_fault() : std::nullopt;
}

void RowSampler::find_bans(const SamplingState& state) {
    bans_.clear();
    state.add_bans(bans_, scratch_);
    dry_.clear();
    if (state.wishes().has_dry()) dry_ = state.history().dry_penalties(state.wishes().dry, scratch_);
}

// What changes logits, in order: the mask, bans, biases, penalties. It goes into copies of the blocks it
// touches: the model's logits stay as they are. False where there was nothing to change.
bool RowSampler::adjust(const SamplingState& state) {
    const std::vector<Stage>& stages = state.stages().row;
    size_t num_changed = state.biases().size() + bans_.size();
    for (const Stage stage : stages) num_changed += stage == Stage::dry ? dry_.size() : state.seen().size();
    if (!state.has_mask() && num_changed == 0) return false;
    const size_t num_blocks = state.has_mask() ? blocks_.size() : std::min(num_changed, blocks_.size());
    copies_.resize(num_blocks * kLogitBlock);
    num_copied_ = 0;
    if (state.has_mask()) keep_allowed(state);
    for (const int32_t id : bans_)
        if (float* const logit = own_logit(id)) *logit = -kInfinity;
    for (const TokenBias& token : state.biases()) {
        float* const logit = own_logit(token.id);
        if (logit == nullptr || !std::isfinite(*logit)) continue;
        constexpr float kLargest = std::numeric_limits<float>::max();
        *logit = std::clamp(*logit + token.bias, -kLargest, kLargest);
    }
    for (const Stage stage : stages) penalise(stage, state);
    return true;
}

void RowSampler::penalise(Stage stage, const SamplingState& state) {
    if (stage == Stage::penalties) {
        for (const auto& token : state.seen())
            if (float* const logit = own_logit(token.id)) *logit = state.penalised(*logit, token);
    } else {
        for (const TokenPenalty& token : dry_)
            if (float* const logit = own_logit(token.id)) *logit = penalised_by(*logit, token.penalty);
    }
}

void RowSampler::keep_allowed(const SamplingState& state) {
    for (int32_t block = 0; block < row_.count(); ++block) {
        const int32_t size = row_.size(block);
        const uint64_t whole = ~uint64_t{0} >> (kLogitBlock - size);
        const uint64_t allowed = state.allowed_from(row_.first_id(block)) & whole;
        if (allowed == whole) continue;
        if (allowed == 0) {
            blocks_[block] = kNothing.data();
            continue;
        }
        float* const copy = copies_.data() + num_copied_;
        kernels_.keep(blocks_[block], size, allowed, copy);
        blocks_[block] = copy;
        num_copied_ += kLogitBlock;
    }
}

// A token's logit in a copy of its block; null for padding of the head and what is not among candidates,
// which are never chosen.
float* RowSampler::own_logit(int32_t id) {
    if (id < 0 || id >= row_.num_logits) return nullptr;
    const int32_t block = block_of(id);
    if (block < 0) return nullptr;
    const float* const source = blocks_[block];
    const float* const begin = copies_.data();
    if (source < begin || source >= begin + num_copied_) {
        float* const copy = copies_.data() + num_copied_;
        std::copy_n(source, row_.size(block), copy);
        blocks_[block] = copy;
        num_copied_ += kLogitBlock;
    }
    return const_cast<float*>(blocks_[block]) + (id - row_.first_id(block));
}

// The best logit where no token can be drawn beside it: NaN, inf or -inf.
std::optional<float> RowSampler::find_fault() {
    if (row_.count() == 0) return -kInfinity;
    if (!find_best()) return std::numeric_limits<float>::quiet_NaN();
    return std::isfinite(scale_.max) ? std::nullopt : std::optional(scale_.max);
}

// The lowest id of the largest logit. False when a logit is NaN.
bool RowSampler::find_best() {
    if (!kernels_.maxima(row_, block_max_.data())) return false;
    const auto best = std::max_element(block_max_.begin(), block_max_.end());
    scale_ = {*best, 1.0f};
    int32_t block = static_cast<int32_t>(best - block_max_.begin());
    for (int32_t i = block + 1; i < row_.num_panels; ++i)
        if (block_max_[i] == *best && row_.first_id(i) < row_.first_id(block)) block = i;
    const float* const first = blocks_[block];
    const float* const place = std::find(first, first + row_.size(block), *best);
    best_id_ = row_.first_id(block) + static_cast<int32_t>(place - first);
    return true;
}

// False when the survivors are not listed: they are then the first tokens of the ranking that have
// units_wanted_.
bool RowSampler::list_survivors(const SamplingWishes& wishes) {
    const bool has_top_k = 0 < wishes.top_k && wishes.top_k < num_present_;
    bool is_listed = has_top_k;
    units_wanted_.reset();
    if (has_top_k) keep_top_k(wishes.top_k);
    if (wishes.top_p < 1.0) {
        if (has_top_k)
            survivors_.resize(shortest_prefix(units_of_share(wishes.top_p, weigh())));
        else
            is_listed = keep_top_p(wishes.top_p);
    }
    if (wishes.min_p > 0.0) {
        last_rank_ = units_wanted_ ? border(*units_wanted_) : kLastRank;
        if (!is_listed) gather(floor_of_min_p(wishes.min_p));
        keep_min_p(wishes.min_p);
        is_listed = true;
    }
    return is_listed;
}

void RowSampler::keep_top_k(int32_t k) {
    gather(floor_of_best(k));
    keep_first(k);
}

void RowSampler::keep_first(int32_t k) {
    if (survivors_.size() > static_cast<size_t>(k)) {
        std::nth_element(survivors_.begin(), survivors_.begin() + k, survivors_.end(), ranks_before);
        survivors_.resize(k);
    }
}

// A logit that at least k tokens reach, and few more where that can be had cheaply.
float RowSampler::floor_of_best(int32_t k) {
    if (k > row_.count()) {
        for (const float margin : kMargins)
            if (kernels_.collect(row_, block_max_.data(), scale_.max - margin, kInfinity, k - 1,
                                 ids_.data()) >= k)
                return scale_.max - margin;
    }
    // The k-th largest maximum of disjoint groups. Groups are put together while enough of them are left for
    // most of the best to be alone in theirs.
    maxima_.assign(block_max_.begin(), block_max_.end());
    while (maxima_.size() >= 8 * static_cast<size_t>(k)) {
        const size_t half = (maxima_.size() + 1) / 2;
        for (size_t group = half; group < maxima_.size(); ++group)
            maxima_[group - half] = std::max(maxima_[group - half], maxima_[group]);
        maxima_.resize(half);
    }
    std::nth_element(maxima_.begin(), maxima_.begin() + (k - 1), maxima_.end(), std::greater<>());
    return maxima_[k - 1];
}

// False when the survivors are too many to list; units_wanted_ says then where they end.
bool RowSampler::keep_top_p(double top_p) {
    const int64_t wanted =
        units_of_share(top_p, kernels_.total_units(row_, block_max_.data(), scale_, -kInfinity));
    for (const float margin : kMargins) {
        if (!try_gather(floor_of_score(-margin), kInfinity, kMany)) break;
        if (weigh() < wanted) continue;
        survivors_.resize(shortest_prefix(wanted));
        return true;
    }
    units_wanted_ = wanted;
    return false;
}

void RowSampler::keep_min_p(double min_p) {
    if (min_p >= 1.0) {
        survivors_.assign(1, {rank_of(scale_.max, best_id_), 0});
        return;
    }
    std::erase_if(survivors_, [&](const RankedToken& token) {
        return token.rank > last_rank_ || exp_of(scale_.score(logit_of(token.rank))) < min_p;
    });
}

// A logit that every token within reach of min-p has at least. What weighs less than a unit is beyond the
// reach of any noise.
float RowSampler::floor_of_min_p(double min_p) const {
    const double reach = log_of(std::max(min_p, 0x1p-60)) - 0.01;
    return floor_of_score(std::max<double>(kWeightlessScore, reach));
}

// A logit whose score is about `score`.
float RowSampler::floor_of_score(double score) const {
    return static_cast<float>(scale_.max + score / scale_.inverse_temperature);
}

// The tokens with logits from `floor` to `ceiling` become the survivors. False, and none do, when they are
// more than `limit`.
bool RowSampler::try_gather(float floor, float ceiling, int32_t limit) {
    const int32_t count = kernels_.collect(row_, block_max_.data(), floor, ceiling, limit, ids_.data());
    if (count > limit) return false;
    survivors_.resize(count);
    for (int32_t i = 0; i < count; ++i) survivors_[i] = {rank_of(logit_at(ids_[i]), ids_[i]), 0};
    return true;
}

void RowSampler::gather(float floor, float ceiling) { try_gather(floor, ceiling, num_present_); }

// Fills in the units of the survivors and returns their sum.
int64_t RowSampler::weigh() {
    const size_t count = survivors_.size();
    logits_.resize(count);
    units_.resize(count);
    for (size_t i = 0; i < count; ++i) logits_[i] = logit_of(survivors_[i].rank);
    kernels_.units(logits_.data(), static_cast<int32_t>(count), scale_, units_.data());
    int64_t total = 0;
    for (size_t i = 0; i < count; ++i) total += survivors_[i].units = units_[i];
    return total;
}

size_t RowSampler::shortest_prefix(int64_t wanted) { return shortest_prefix(wanted, ranks_before); }

// Whether a token is among the shortest prefix of the ranking with `wanted` units: those before it have
// fewer.
bool RowSampler::is_within(int32_t id, int64_t wanted) {
    const float logit = logit_at(id);
    const int64_t above = kernels_.total_units(row_, block_max_.data(), scale_, logit);
    const int32_t num_equal =
        kernels_.collect(row_, block_max_.data(), logit, logit, num_present_, ids_.data());
    const auto num_before =
        std::count_if(ids_.begin(), ids_.begin() + num_equal, [=](int32_t other) { return other < id; });
    int64_t own = 0;
    kernels_.units(&logit, 1, scale_, &own);
    return above + num_before * own < wanted;
}

// The last rank of the shortest prefix of the ranking with `wanted` units: units are counted in buckets of
// scores, and only the bucket where the prefix ends is ranked.
uint64_t RowSampler::border(int64_t wanted) {
    constexpr int32_t kBuckets = 1024;
    constexpr float kPerScore = (kBuckets - 1) / kWeightlessScore;
    const auto bucket_of = [&](float logit) {
        return static_cast<int32_t>(std::max(scale_.score(logit), kWeightlessScore) * kPerScore);
    };
    int64_t units_in[kBuckets] = {};
    int64_t units[kLogitBlock];
    int32_t buckets[kLogitBlock];
    for (int32_t block = 0; block < row_.count(); ++block) {
        if (scale_.score(block_max_[block]) < kWeightlessScore) continue;
        const int32_t size = row_.size(block);
        kernels_.units(blocks_[block], size, scale_, units);
        for (int32_t i = 0; i < size; ++i) buckets[i] = bucket_of(blocks_[block][i]);
        for (int32_t i = 0; i < size; ++i) units_in[buckets[i]] += units[i];
    }
    int32_t last = 0;
    while (last < kBuckets - 1 && wanted > units_in[last]) wanted -= units_in[last++];
    // A little more than the bucket, as the bounds are rounded; then the bucket itself.
    const float floor = last < kBuckets - 1 ? floor_of_score((last + 1.1) / kPerScore) : -kInfinity;
    gather(floor, floor_of_score((last - 0.1) / kPerScore));
    std::erase_if(survivors_,
                  [&](const RankedToken& token) { return bucket_of(logit_of(token.rank)) != last; });
    weigh();
    return survivors_[shortest_prefix(wanted) - 1].rank;
}

int32_t RowSampler::draw_from_survivors(const NoiseKey& key) {
    words_.resize(survivors_.size());
    for (size_t i = 0; i < survivors_.size(); ++i) ids_[i] = id_of(survivors_[i].rank);
    kernels_.words_of(key, ids_.data(), static_cast<int32_t>(words_.size()), words_.data());
    Draw draw;
    for (size_t i = 0; i < survivors_.size(); ++i)
        draw.consider(ids_[i], scale_.score(logit_of(survivors_[i].rank)), words_[i]);
    return draw.id();
}

// Noise belongs to tokens, so the best of all is the best of every part it is in: only a draw from beyond the
// survivors makes it worth while to find where they end.
int32_t RowSampler::draw_from_many(const NoiseKey& key) {
    last_rank_ = kLastRank;
    const int32_t id = draw_from_ranks(key);
    if (!units_wanted_ || is_within(id, *units_wanted_)) return id;
    last_rank_ = border(*units_wanted_);
    return draw_from_ranks(key);
}

int32_t RowSampler::draw_from_ranks(const NoiseKey& key) {
    Draw draw;
    uint32_t words[kLogitBlock];
    kernels_.words_of(key, &best_id_, 1, words);
    draw.consider(best_id_, 0.0f, words[0]);
    for (int32_t block = 0; block < row_.count(); ++block) {
        if (scale_.score(block_max_[block]) + kLargestNoise < draw.total() - kRounding) continue;
        const float bar = static_cast<float>(draw.total() - kNoiseBelowTail - kRounding);
        const int32_t first_id = row_.first_id(block);
        uint64_t able =
            kernels_.words_of_block(key, first_id, blocks_[block], row_.size(block), scale_, bar, words);
        for (; able != 0; able &= able - 1) {
            const int32_t place = std::countr_zero(able);
            const int32_t id = first_id + place;
            const float logit = blocks_[block][place];
            if (rank_of(logit, id) <= last_rank_) draw.consider(id, scale_.score(logit), words[place]);
        }
    }
    return draw.id();
}

// The model's own log-softmax: sample/logprobs.py. Impossible tokens are left out of the best.
TokenReport RowSampler::report(int32_t token_id, int32_t num_best) {
    scale_.inverse_temperature = 1.0f;
    const int64_t units = kernels_.total_units(row_, block_max_.data(), scale_, -kInfinity);
    const double log_total = log_of(static_cast<double>(units) * 0x1p-40);
    const auto logprob = [&](float logit) {
        return static_cast<float>(static_cast<double>(logit) - static_cast<double>(scale_.max) - log_total);
    };
    TokenReport result{logprob(logit_at(token_id)), {}};
    if (num_best == 0) return result;
    keep_top_k(std::min(num_best, num_present_));
    std::sort(survivors_.begin(), survivors_.end(), ranks_before);
    for (const RankedToken& token : survivors_) {
        const float value = logprob(logit_of(token.rank));
        if (std::isfinite(value)) result.best.push_back({id_of(token.rank), value});
    }
    return result;
}

}  // namespace twostroke
