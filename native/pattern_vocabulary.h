// A vocabulary as patterns look at it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "token_trie.h"

namespace twostroke {

using MaskWords = std::vector<uint32_t>;  // id i is bit i % 32 of word i / 32

void allow(std::span<const int32_t> ids, MaskWords& words);

// Long tokens are few and lie in a trie of their own: most have to be looked ahead for no further than this.
constexpr size_t kNumTries = 2;
constexpr std::array<size_t, kNumTries> kMostBytes{16, std::numeric_limits<size_t>::max()};

class PatternVocabulary {
  public:
    // `ends` holds where each token's text ends, in the order of ids; one without text is never allowed.
    PatternVocabulary(std::string texts, std::vector<size_t> ends, std::span<const int32_t> end_ids);

    int32_t size() const { return static_cast<int32_t>(ends_.size()); }
    bool has(int32_t id) const { return id >= 0 && id < size(); }
    std::string_view text(int32_t id) const;
    bool is_end(int32_t id) const;
    MaskWords no_token() const { return MaskWords((ends_.size() + 31) / 32); }
    const MaskWords& end_tokens() const { return end_tokens_; }

    // Tokens of at most kMostBytes[which] bytes, without those of the trie before.
    const TokenTrie& trie(size_t which) const { return tries_[which]; }
    // The same by classes of bytes, null where it would hardly be smaller; the last few that were asked for
    // are kept.
    std::shared_ptr<const TokenTrie> merged(size_t which, const ByteClasses& class_of);

  private:
    struct Merged {
        size_t which;
        ByteClasses class_of;
        std::shared_ptr<const TokenTrie> trie;
    };

    const std::string texts_;
    const std::vector<size_t> ends_;
    MaskWords end_tokens_;
    std::vector<TokenTrie> tries_;
    std::list<Merged> merged_;  // the last asked for first
};

}  // namespace twostroke
