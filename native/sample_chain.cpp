// Samplers the usual way has no place for, and orders that are not the usual one: every token that may still
// be drawn is listed, and one stage after the other thins out the list.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/portable/exp.h"
#include "sample_noise.h"
#include "sample_row.h"

namespace twostroke {
namespace {

constexpr float kLowestLogit = std::numeric_limits<float>::lowest();

double weight_of(int64_t units) { return static_cast<double>(units) * 0x1p-40; }

}  // namespace

int32_t RowSampler::draw_from_chain(const SamplingState& state, std::optional<double>& surprise) {
    const SamplingWishes& wishes = state.wishes();
    scale_.inverse_temperature = 1.0f;
    last_rank_ = std::numeric_limits<uint64_t>::max();
    bool is_listed = false;
    for (const Stage stage : state.stages().chain) {
        if (stage == Stage::temperature && wishes.dynatemp_range == 0) {
            scale_.inverse_temperature = state.inverse_temperature();
        } else if (stage == Stage::top_k && !is_listed) {
            keep_top_k(std::min(wishes.top_k, num_present_));
            is_listed = true;
        } else {
            if (!is_listed) gather(kLowestLogit);
            is_listed = true;
            apply(stage, state);
        }
    }
    if (!is_listed) gather(kLowestLogit);
    if (wishes.has_mirostat()) keep_expected(state.surprise_limit());
    const int32_t id = draw_from_survivors(state.noise_key());
    if (wishes.has_mirostat()) surprise = surprise_of(id);
    return id;
}

void RowSampler::apply(Stage stage, const SamplingState& state) {
    const SamplingWishes& wishes = state.wishes();
    switch (stage) {
        case Stage::penalties:
        case Stage::dry:
            penalise_survivors(stage, state);
            break;
        case Stage::temperature:
            scale_.inverse_temperature = inverse_of_temperature(dynamic_temperature(wishes));
            break;
        case Stage::top_k:
            keep_first(wishes.top_k);
            break;
        case Stage::top_p:
            survivors_.resize(shortest_prefix(units_of_share(wishes.top_p, weigh())));
            break;
        case Stage::min_p:
            keep_min_p(wishes.min_p);
            break;
        case Stage::typical_p:
            keep_typical(wishes.typical_p);
            break;
        case Stage::top_n_sigma:
            keep_top_n_sigma(wishes.top_n_sigma);
            break;
        case Stage::xtc:
            exclude_top_choices(state);
            break;
    }
}

// Units and scores count from the best of the survivors.
void RowSampler::refer_to_best() {
    const uint64_t rank = std::min_element(survivors_.begin(), survivors_.end(), ranks_before)->rank;
    scale_.max = logit_of(rank);
    best_id_ = id_of(rank);
}

// What a token's score lies below zero, on average over the draws: the entropy is log(mass) + this. Terms are
// whole units: their sums have no order.
double RowSampler::mean_depth() {
    const int64_t total = weigh();
    int64_t depth = 0;
    for (const RankedToken& token : survivors_)
        if (token.units > 0)
            depth += static_cast<int64_t>(static_cast<double>(token.units) * -score_of(token));
    return static_cast<double>(depth) / static_cast<double>(total);
}

void RowSampler::keep_typical(double typical_p) {
    const double depth = mean_depth();
    const auto is_more_typical = [&](const RankedToken& a, const RankedToken& b) {
        const double of_a = std::abs(score_of(a) + depth);
        const double of_b = std::abs(score_of(b) + depth);
        return of_a < of_b || (of_a == of_b && a.rank < b.rank);
    };
    int64_t total = 0;
    for (const RankedToken& token : survivors_) total += token.units;
    survivors_.resize(shortest_prefix(units_of_share(typical_p, total), is_more_typical));
    refer_to_best();
}

// Mean and deviation are sums in the order of ids.
void RowSampler::keep_top_n_sigma(double num_sigmas) {
    const auto by_id = [](const RankedToken& a, const RankedToken& b) {
        return id_of(a.rank) < id_of(b.rank);
    };
    if (!std::is_sorted(survivors_.begin(), survivors_.end(), by_id))
        std::sort(survivors_.begin(), survivors_.end(), by_id);
    std::erase_if(survivors_, [&](const RankedToken& token) { return !std::isfinite(score_of(token)); });
    const auto count = static_cast<double>(survivors_.size());
    double sum = 0;
    for (const RankedToken& token : survivors_) sum += score_of(token);
    const double mean = sum / count;
    double squares = 0;
    for (const RankedToken& token : survivors_) {
        const double off = score_of(token) - mean;
        squares += off * off;
    }
    const double lowest = -(num_sigmas * std::sqrt(squares / count));
    std::erase_if(survivors_, [&](const RankedToken& token) { return score_of(token) < lowest; });
}

// XTC: now and then all tokens that are likely enough, but for the least likely of them.
void RowSampler::exclude_top_choices(const SamplingState& state) {
    const SamplingWishes& wishes = state.wishes();
    constexpr int32_t kNoToken = 0;
    uint32_t word = 0;
    kernels_.words_of(state.noise_key(NoisePurpose::xtc), &kNoToken, 1, &word);
    if ((word + 0.5) * 0x1p-32 >= wishes.xtc_probability) return;
    const double enough = wishes.xtc_threshold * static_cast<double>(weigh());
    uint64_t last = 0;
    for (const RankedToken& token : survivors_)
        if (static_cast<double>(token.units) >= enough && std::isfinite(score_of(token)))
            last = std::max(last, token.rank);
    std::erase_if(survivors_, [&](const RankedToken& token) { return token.rank < last; });
    refer_to_best();
}

// T from T - range to T + range as the entropy goes from none to that of tokens all alike; no power of libm.
double RowSampler::dynamic_temperature(const SamplingWishes& wishes) {
    const double depth = mean_depth();
    int64_t total = 0;
    int64_t count = 0;
    for (const RankedToken& token : survivors_) {
        total += token.units;
        count += std::isfinite(score_of(token));
    }
    const double low = std::max(0.0, wishes.temperature - wishes.dynatemp_range);
    const double high = wishes.temperature + wishes.dynatemp_range;
    if (count < 2) return wishes.temperature;
    const double entropy = log_of(weight_of(total)) + depth;
    const double share = std::min(entropy / log_of(static_cast<double>(count)), 1.0);
    if (share <= 0) return wishes.dynatemp_exponent == 0 ? high : low;
    return low + (high - low) * exp_of(static_cast<float>(wishes.dynatemp_exponent * log_of(share)));
}

void RowSampler::penalise_survivors(Stage stage, const SamplingState& state) {
    const auto comes_before = [](const TokenPenalty& penalty, int32_t id) { return penalty.id < id; };
    const auto change = [&](RankedToken& token) {
        const int32_t id = id_of(token.rank);
        float logit = logit_of(token.rank);
        if (stage == Stage::penalties) {
            logit = state.penalised(logit, id);
        } else {
            const auto penalty = std::lower_bound(dry_.begin(), dry_.end(), id, comes_before);
            if (penalty != dry_.end() && penalty->id == id) logit = penalised_by(logit, penalty->penalty);
        }
        token.rank = rank_of(logit, id);
    };
    std::for_each(survivors_.begin(), survivors_.end(), change);
    refer_to_best();
}

// Mirostat v2: tokens of more surprise than the limit leave, but for the best.
void RowSampler::keep_expected(double surprise_limit) {
    const double log_mass = log_of(weight_of(weigh()));
    std::erase_if(survivors_, [&](const RankedToken& token) {
        return (log_mass - score_of(token)) / kLn2 > surprise_limit && id_of(token.rank) != best_id_;
    });
}

// In bits, among the survivors.
double RowSampler::surprise_of(int32_t id) {
    const double log_mass = log_of(weight_of(weigh()));
    const auto is_it = [id](const RankedToken& token) { return id_of(token.rank) == id; };
    return (log_mass - score_of(*std::find_if(survivors_.begin(), survivors_.end(), is_it))) / kLn2;
}

}  // namespace twostroke
