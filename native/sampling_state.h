// What the sampler knows of one sequence: its wishes, the key of its noise and the tokens so far.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/sample.h"
#include "sampling_wishes.h"
#include "token_history.h"

namespace twostroke {

enum class NoisePurpose : uint32_t { sample, xtc };  // as in sample/random.py

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
                  const TokenIds& prompt_token_ids, std::vector<TokenBias> biases, LateTokens late,
                  TokenHistory history);

    // Only tokens whose bit is set may be drawn next; no words: every token.
    void allow(std::vector<uint32_t> words) { allowed_ = std::move(words); }
    // A bit per id from a multiple of 32 on.
    uint64_t allowed_from(int32_t first_id) const {
        const size_t word = static_cast<size_t>(first_id) / 32;
        const uint64_t low = word < allowed_.size() ? allowed_[word] : 0;
        const uint64_t high = word + 1 < allowed_.size() ? allowed_[word + 1] : 0;
        return low | high << 32;
    }
    bool has_mask() const { return !allowed_.empty(); }
    const std::vector<uint32_t>& allowed() const { return allowed_; }
    // Empty from their first position on.
    const std::vector<int32_t>& late_ids() const {
        static const std::vector<int32_t> kNone;
        return position < late_.first_position ? late_.ids : kNone;
    }
    const std::vector<TokenBias>& biases() const { return biases_; }
    // What is done to the whole row's logits, and to the tokens that may be drawn.
    const StagePlan& stages() const { return stages_; }
    // Whether a weight or noise is needed of every token, not of the best alone.
    bool weighs_all() const { return !stages_.chain.empty() || wishes_.weighs_all(); }
    // So many of the best tokens are all that a draw looks at, of those that may come and with what changes
    // logits done to them; 0: it looks at more.
    int32_t num_enough() const;
    // Adds every token whose logit may be changed before others are left out. `num_enough` is not 0.
    void add_changed(TokenIds& ids, TokenIds& scratch) const;
    // Whether such a change may raise a logit.
    bool raises_logits() const;
    const TokenHistory& history() const { return history_; }
    // Adds every token that may not come next, whatever its logit, but for those a mask leaves out.
    void add_bans(TokenIds& ids, TokenIds& scratch) const;

    // The sequence grew by this token.
    void append(int32_t token_id);

    struct SeenToken {
        int32_t id;
        int32_t count;         // in the answer
        int32_t prompt_count;  // both within the window of the penalties
    };
    // Empty where no penalty asks for them.
    const std::vector<SeenToken>& seen() const { return seen_; }
    // The logit of a token that penalties know: sample/penalties.py.
    float penalised(float logit, const SeenToken& token) const;
    // The same of any token.
    float penalised(float logit, int32_t id) const;

    // 1/T; beyond these bounds a temperature acts like the limit it tends to.
    float inverse_temperature() const { return inverse_temperature_; }
    NoiseKey noise_key(NoisePurpose purpose = NoisePurpose::sample) const {
        return {seed_, choice_index_, position, static_cast<uint32_t>(purpose)};
    }
    const SamplingWishes& wishes() const { return wishes_; }

    // Mirostat v2 (Basu et al. 2021, algorithm 2): the largest surprise a token may have, in bits.
    double surprise_limit() const { return surprise_limit_; }
    // The surprise of the token that was just drawn: the limit follows it once the sequence grows.
    void expect(double surprise) { surprise_ = surprise; }

    uint32_t position;  // of the token to come

  private:
    bool penalises_row() const;
    SeenToken& entry_of(int32_t token_id);
    void see(size_t place);
    void forget(size_t place);

    SamplingWishes wishes_;
    uint64_t seed_;
    uint32_t choice_index_;
    float inverse_temperature_;
    StagePlan stages_;
    double surprise_limit_;
    std::optional<double> surprise_;
    size_t num_prompt_;
    TokenHistory history_;
    std::vector<SeenToken> seen_;
    std::unordered_map<int32_t, int32_t> slots_;  // token id -> index in seen_
    std::vector<TokenBias> biases_;
    LateTokens late_;
    std::vector<uint32_t> allowed_;
};

}  // namespace twostroke
