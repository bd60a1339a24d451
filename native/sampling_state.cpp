#include "sampling_state.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace twostroke {
namespace {

// float32 could not hold the quotient of a logit and a temperature outside these.
constexpr double kMinTemperature = 1e-30;
constexpr double kMaxTemperature = 1e30;

}  // namespace

SamplingState::SamplingState(const SamplingWishes& wishes, uint64_t seed, uint32_t choice_index,
                             const std::vector<int32_t>& prompt_token_ids, std::vector<TokenBias> biases,
                             LateTokens late)
    : position(static_cast<uint32_t>(prompt_token_ids.size())),
      wishes_(wishes),
      seed_(seed),
      choice_index_(choice_index),
      inverse_temperature_(
          static_cast<float>(1.0 / std::clamp(wishes.temperature, kMinTemperature, kMaxTemperature))),
      biases_(std::move(biases)),
      late_(std::move(late)) {
    if (wishes_.repetition_penalty != 1.0)
        for (const int32_t token_id : prompt_token_ids) count_of(token_id);
}

void SamplingState::append(int32_t token_id) {
    ++position;
    if (wishes_.has_penalties()) ++count_of(token_id);
}

int32_t& SamplingState::count_of(int32_t token_id) {
    const auto [place, is_new] = slots_.try_emplace(token_id, static_cast<int32_t>(seen_.size()));
    if (is_new) seen_.push_back({token_id, 0});
    return seen_[place->second].count;
}

float SamplingState::penalised(float logit, int32_t count) const {
    if (!std::isfinite(logit)) return logit;
    const double before = logit;
    double after = before < 0 ? before * wishes_.repetition_penalty : before / wishes_.repetition_penalty;
    after -= wishes_.frequency_penalty * count + wishes_.presence_penalty * (count > 0);
    // A huge penalty must not look like a ban or a broken logit.
    constexpr double kLargest = std::numeric_limits<float>::max();
    return static_cast<float>(std::clamp(after, -kLargest, kLargest));
}

}  // namespace twostroke
