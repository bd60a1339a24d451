// A vocabulary as patterns look at it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "token_trie.h"

namespace twostroke {

using MaskWords = std::vector<uint32_t>;  // id i is bit i % 32 of word i / 32

void allow(std::span<const int32_t> ids, MaskWords& words);

class PatternVocabulary {
  public:
    // `ends` holds where each token's text ends, in the order of ids; one without text is never allowed.
    PatternVocabulary(std::string texts, std::vector<size_t> ends, std::span<const int32_t> end_ids);

    int32_t size() const { return static_cast<int32_t>(ends_.size()); }
    bool has(int32_t id) const { return id >= 0 && id < size(); }
    std::string_view text(int32_t id) const;
    bool is_end(int32_t id) const;
    const TokenTrie& trie() const { return trie_; }
    MaskWords no_token() const { return MaskWords((ends_.size() + 31) / 32); }
    const MaskWords& end_tokens() const { return end_tokens_; }

  private:
    TokenTrie make_trie() const;

    const std::string texts_;
    const std::vector<size_t> ends_;
    MaskWords end_tokens_;
    const TokenTrie trie_;
};

}  // namespace twostroke
