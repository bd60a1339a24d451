// The tokens of one sequence, prompt and answer, and what their repetitions forbid or make less likely:
// sample/repetition.py is the definition.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "sampling_wishes.h"

namespace twostroke {

using TokenIds = std::vector<int32_t>;

struct TokenPenalty {
    int32_t id;
    double penalty;
};

// A logit less a penalty; what is impossible stays so, and nothing becomes so.
float penalised_by(float logit, double penalty);

class TokenHistory {
  public:
    // `bad_words` are forbidden at their last token; a repetition never reaches back over one of `breakers`.
    // No sequence is empty.
    TokenHistory(std::vector<TokenIds> bad_words, const std::vector<TokenIds>& breakers);

    void append(int32_t token_id);
    const TokenIds& tokens() const { return tokens_; }

    // Adds the last tokens of bad words whose others are the newest tokens here.
    void add_bad_ends(TokenIds& ids) const;
    // Adds the tokens that would complete an n-gram that is already there; n 0 adds none.
    void add_repeated_ends(int32_t n, TokenIds& ids, TokenIds& scratch) const;
    // What DRY subtracts, each token once, in the order of ids.
    std::vector<TokenPenalty> dry_penalties(const DryWishes& wishes, TokenIds& scratch) const;

  private:
    bool ends_with(const TokenIds& head, size_t num_behind) const;
    void match_suffixes(size_t window, TokenIds& matches) const;

    TokenIds tokens_;
    std::vector<TokenIds> bad_words_;
    std::unordered_map<int32_t, std::vector<TokenIds>> breakers_;  // last token -> those before it
    size_t num_since_breaker_ = 0;
};

}  // namespace twostroke
