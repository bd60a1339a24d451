// What the sampler knows of one sequence: its wishes, the key of its noise and the tokens so far.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "kernels/sample.h"

namespace twostroke {

// The fields of params.py that choose a token, checked there. top_k 0: off.
struct SamplingWishes {
    double temperature;
    int32_t top_k;
    double top_p;
    double min_p;
    double repetition_penalty;
    double presence_penalty;
    double frequency_penalty;
    std::optional<int32_t> num_logprobs;  // best alternatives to report beside the token; none: no report

    bool has_penalties() const {
        return repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0;
    }
    // Whether a weight or noise is needed of every token, not of the best alone.
    bool weighs_all() const {
        const bool is_cut = temperature == 0 || top_k > 0 || (top_p == 1.0 && min_p > 0.0);
        return !is_cut || num_logprobs.has_value();
    }
};

class SamplingState {
  public:
    SamplingState(const SamplingWishes& wishes, uint64_t seed, uint32_t choice_index,
                  const std::vector<int32_t>& prompt_token_ids);

    // The sequence grew by this token.
    void append(int32_t token_id);

    // The logit of a token that was seen `count` times in the answer: sample/penalties.py.
    float penalised(float logit, int32_t count) const;

    // 1/T; beyond these bounds a temperature acts like the limit it tends to.
    float inverse_temperature() const { return inverse_temperature_; }
    NoiseKey noise_key() const { return {seed_, choice_index_, position, 0}; }
    const SamplingWishes& wishes() const { return wishes_; }

    struct SeenToken {
        int32_t id;
        int32_t count;  // in the answer; 0: in the prompt alone
    };
    // Empty where no penalty asks for them.
    const std::vector<SeenToken>& seen() const { return seen_; }

    uint32_t position;  // of the token to come

  private:
    int32_t& count_of(int32_t token_id);

    SamplingWishes wishes_;
    uint64_t seed_;
    uint32_t choice_index_;
    float inverse_temperature_;
    std::vector<SeenToken> seen_;
    std::unordered_map<int32_t, int32_t> slots_;  // token id -> index in seen_
};

}  // namespace twostroke
