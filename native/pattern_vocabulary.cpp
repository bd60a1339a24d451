#include "pattern_vocabulary.h"

#include <stdexcept>
#include <utility>

namespace twostroke {

void allow(std::span<const int32_t> ids, MaskWords& words) {
    for (const int32_t id : ids) words[static_cast<uint32_t>(id) / 32] |= uint32_t{1} << id % 32;
}

PatternVocabulary::PatternVocabulary(std::string texts, std::vector<size_t> ends,
                                     std::span<const int32_t> end_ids)
    : texts_(std::move(texts)), ends_(std::move(ends)), end_tokens_(no_token()), trie_(make_trie()) {
    for (const int32_t id : end_ids)
        if (!has(id))
            throw std::invalid_argument("end token " + std::to_string(id) + " is not in the vocabulary");
    allow(end_ids, end_tokens_);
}

TokenTrie PatternVocabulary::make_trie() const {
    std::vector<TokenTrie::Token> tokens;
    for (int32_t id = 0; id < size(); ++id)
        if (!text(id).empty()) tokens.push_back({text(id), id});
    return TokenTrie(std::move(tokens));
}

std::string_view PatternVocabulary::text(int32_t id) const {
    const size_t start = id == 0 ? 0 : ends_[id - 1];
    return std::string_view(texts_).substr(start, ends_[id] - start);
}

bool PatternVocabulary::is_end(int32_t id) const {
    return end_tokens_[static_cast<uint32_t>(id) / 32] >> id % 32 & 1;
}

}  // namespace twostroke
