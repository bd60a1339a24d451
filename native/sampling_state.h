// What the sampler knows of one sequence: its wishes, the key of its noise and the tokens so far.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
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

struct TokenBias {
    int32_t id;
    float bias;
};

// Tokens that must not end the answer before `first_position`.
struct LateTokens {
    std::vector<int32_t> ids;
    uint32_t first_position;
};

class SamplingState {
  public:
    SamplingState(const SamplingWishes& wishes, uint64_t seed, uint32_t choice_index,
                  const std::vector<int32_t>& prompt_token_ids, std::vector<TokenBias> biases,
                  LateTokens late);

    // Only tokens whose bit is set may be drawn next; no words: every token.
    void allow(std::vector<uint32_t> words) { allowed_ = std::move(words); }
    bool is_allowed(int32_t id) const {
        const size_t word = static_cast<size_t>(id) / 32;
        return word < allowed_.size() && (allowed_[word] >> (id % 32) & 1) != 0;
    }
    bool has_mask() const { return !allowed_.empty(); }
    // Empty from their first position on.
    const std::vector<int32_t>& late_ids() const {
        static const std::vector<int32_t> kNone;
        return position < late_.first_position ? late_.ids : kNone;
    }
    const std::vector<TokenBias>& biases() const { return biases_; }
    // Whether a token is out of the question, whatever its logit.
    bool bans() const { return has_mask() || !late_ids().empty(); }
    bool leaves_logits() const { return !bans() && biases_.empty() && seen_.empty(); }

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
    std::vector<TokenBias> biases_;
    LateTokens late_;
    std::vector<uint32_t> allowed_;
};

}  // namespace twostroke
