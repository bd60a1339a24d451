#include "token_history.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace twostroke {
namespace {

// By squaring, so that Python's floats go through the same products.
double power_of(double base, uint32_t exponent) {
    double result = 1.0;
    for (; exponent != 0; exponent >>= 1) {
        if ((exponent & 1) != 0) result *= base;
        base *= base;
    }
    return result;
}

}  // namespace

float penalised_by(float logit, double penalty) {
    if (!std::isfinite(logit)) return logit;
    constexpr double kLargest = std::numeric_limits<float>::max();
    return static_cast<float>(std::clamp(logit - std::min(penalty, kLargest), -kLargest, kLargest));
}

TokenHistory::TokenHistory(std::vector<TokenIds> bad_words, const std::vector<TokenIds>& breakers)
    : bad_words_(std::move(bad_words)) {
    for (const TokenIds& breaker : breakers)
        breakers_[breaker.back()].emplace_back(breaker.begin(), breaker.end() - 1);
}

void TokenHistory::append(int32_t token_id) {
    tokens_.push_back(token_id);
    ++num_since_breaker_;
    const auto heads = breakers_.find(token_id);
    if (heads == breakers_.end()) return;
    for (const TokenIds& head : heads->second)
        if (ends_with(head, 1)) num_since_breaker_ = 0;
}

// Whether `head` is what stands before the `num_behind` newest tokens.
bool TokenHistory::ends_with(const TokenIds& head, size_t num_behind) const {
    if (head.size() + num_behind > tokens_.size()) return false;
    return std::equal(head.rbegin(), head.rend(), tokens_.rbegin() + num_behind);
}

void TokenHistory::add_bad_ends(TokenIds& ids) const {
    for (const TokenIds& word : bad_words_) {
        const size_t num_head = word.size() - 1;
        if (num_head <= tokens_.size() && std::equal(word.begin(), word.end() - 1, tokens_.end() - num_head))
            ids.push_back(word.back());
    }
}

void TokenHistory::add_repeated_ends(int32_t n, TokenIds& ids, TokenIds& scratch) const {
    if (n == 0 || tokens_.empty()) return;
    if (n == 1) {
        ids.insert(ids.end(), tokens_.begin(), tokens_.end());
        return;
    }
    match_suffixes(tokens_.size(), scratch);
    for (size_t back = 1; back < tokens_.size(); ++back)
        if (scratch[back] >= n - 1) ids.push_back(tokens_[tokens_.size() - back]);
}

std::vector<TokenPenalty> TokenHistory::dry_penalties(const DryWishes& wishes, TokenIds& scratch) const {
    const size_t window =
        wishes.last_n < 0 ? tokens_.size() : std::min<size_t>(wishes.last_n, tokens_.size());
    const auto limit = static_cast<int32_t>(std::min(window, num_since_breaker_));
    std::vector<TokenPenalty> penalties;
    if (limit < wishes.allowed_length) return penalties;
    match_suffixes(window, scratch);
    std::unordered_map<int32_t, int32_t> longest;
    for (size_t back = 1; back < window; ++back) {
        const int32_t length = std::min(scratch[back], limit);
        if (length < wishes.allowed_length) continue;
        int32_t& best = longest[tokens_[tokens_.size() - back]];
        best = std::max(best, length);
    }
    for (const auto& [id, length] : longest) {
        const auto heads = breakers_.find(id);
        const bool breaks_alone =
            heads != breakers_.end() && std::any_of(heads->second.begin(), heads->second.end(),
                                                    [](const TokenIds& head) { return head.empty(); });
        if (breaks_alone) continue;  // it ends a repetition, it does not go on with one
        penalties.push_back({id, wishes.multiplier * power_of(wishes.base, length - wishes.allowed_length)});
    }
    std::sort(penalties.begin(), penalties.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    return penalties;
}

// matches[back] is how many of the newest tokens stand, in the same order, `back` places earlier too, within
// the `window` newest ones: the Z-function (Gusfield 1997, section 1.3) of the window read from its end.
void TokenHistory::match_suffixes(size_t window, TokenIds& matches) const {
    matches.assign(window, 0);
    const auto at = [&](size_t back) { return tokens_[tokens_.size() - 1 - back]; };
    size_t left = 0;
    size_t right = 0;  // the match that reaches furthest: from `left` up to here
    for (size_t back = 1; back < window; ++back) {
        size_t length = 0;
        if (back < right) length = std::min<size_t>(matches[back - left], right - back);
        while (back + length < window && at(length) == at(back + length)) ++length;
        matches[back] = static_cast<int32_t>(length);
        if (back + length > right) {
            left = back;
            right = back + length;
        }
    }
}

}  // namespace twostroke
