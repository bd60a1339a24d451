#include "sampling_state.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace twostroke {

SamplingState::SamplingState(const SamplingWishes& wishes, uint64_t seed, uint32_t choice_index,
                             const TokenIds& prompt_token_ids, std::vector<TokenBias> biases, LateTokens late,
                             TokenHistory history)
    : position(static_cast<uint32_t>(prompt_token_ids.size())),
      wishes_(wishes),
      seed_(seed),
      choice_index_(choice_index),
      inverse_temperature_(inverse_of_temperature(wishes.temperature)),
      stages_(plan_stages(wishes)),
      surprise_limit_(2 * wishes.mirostat_tau),
      num_prompt_(prompt_token_ids.size()),
      history_(std::move(history)),
      biases_(std::move(biases)),
      late_(std::move(late)) {
    for (const int32_t token_id : prompt_token_ids) {
        history_.append(token_id);
        see(history_.tokens().size() - 1);
    }
}

void SamplingState::append(int32_t token_id) {
    ++position;
    history_.append(token_id);
    see(history_.tokens().size() - 1);
    if (surprise_) surprise_limit_ -= wishes_.mirostat_eta * (*surprise_ - wishes_.mirostat_tau);
    surprise_.reset();
}

void SamplingState::add_bans(TokenIds& ids, TokenIds& scratch) const {
    ids.insert(ids.end(), late_ids().begin(), late_ids().end());
    history_.add_bad_ends(ids);
    history_.add_repeated_ends(wishes_.no_repeat_ngram_size, ids, scratch);
}

int32_t SamplingState::num_enough() const {
    const bool looks_far_back = wishes_.has_dry() || wishes_.no_repeat_ngram_size > 0;
    if (wishes_.num_logprobs || looks_far_back) return 0;  // what looks back would be done a second time
    if (wishes_.temperature == 0) return 1;
    for (const Stage stage : stages_.chain) {
        if (stage == Stage::top_k) break;
        if (stage != Stage::temperature || wishes_.dynatemp_range > 0) return 0;
    }
    return wishes_.top_k;
}

void SamplingState::add_changed(TokenIds& ids, TokenIds& scratch) const {
    add_bans(ids, scratch);
    for (const TokenBias& token : biases_) ids.push_back(token.id);
    if (!penalises_row()) return;
    for (const SeenToken& token : seen_) ids.push_back(token.id);
}

bool SamplingState::raises_logits() const {
    const bool rewards =
        wishes_.repetition_penalty < 1 || wishes_.presence_penalty < 0 || wishes_.frequency_penalty < 0;
    return (penalises_row() && rewards) ||
           std::any_of(biases_.begin(), biases_.end(), [](const TokenBias& token) { return token.bias > 0; });
}

bool SamplingState::penalises_row() const {
    return std::find(stages_.row.begin(), stages_.row.end(), Stage::penalties) != stages_.row.end();
}

// The token at this place enters the window of the penalties, and the one it pushes out leaves.
void SamplingState::see(size_t place) {
    if (!wishes_.has_penalties()) return;
    const bool is_prompt = place < num_prompt_;
    if (!is_prompt)
        ++entry_of(history_.tokens()[place]).count;
    else if (wishes_.repetition_penalty != 1.0)
        ++entry_of(history_.tokens()[place]).prompt_count;
    const int32_t window = wishes_.penalty_last_n;
    if (window > 0 && place >= static_cast<size_t>(window)) forget(place - window);
}

void SamplingState::forget(size_t place) {
    const bool is_prompt = place < num_prompt_;
    if (is_prompt && wishes_.repetition_penalty == 1.0) return;
    const int32_t token_id = history_.tokens()[place];
    SeenToken& token = entry_of(token_id);
    --(is_prompt ? token.prompt_count : token.count);
    if (token.count > 0 || token.prompt_count > 0) return;
    slots_[seen_.back().id] = static_cast<int32_t>(&token - seen_.data());
    token = seen_.back();
    seen_.pop_back();
    slots_.erase(token_id);
}

SamplingState::SeenToken& SamplingState::entry_of(int32_t token_id) {
    const auto [place, is_new] = slots_.try_emplace(token_id, static_cast<int32_t>(seen_.size()));
    if (is_new) seen_.push_back({token_id, 0, 0});
    return seen_[place->second];
}

float SamplingState::penalised(float logit, int32_t id) const {
    const auto place = slots_.find(id);
    return place == slots_.end() ? logit : penalised(logit, seen_[place->second]);
}

float SamplingState::penalised(float logit, const SeenToken& token) const {
    if (!std::isfinite(logit)) return logit;
    const double before = logit;
    double after = before < 0 ? before * wishes_.repetition_penalty : before / wishes_.repetition_penalty;
    after -= wishes_.frequency_penalty * token.count + wishes_.presence_penalty * (token.count > 0);
    // A huge penalty must not look like a ban or a broken logit.
    constexpr double kLargest = std::numeric_limits<float>::max();
    return static_cast<float>(std::clamp(after, -kLargest, kLargest));
}

}  // namespace twostroke
