#include "token_trie.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>

namespace twostroke {
namespace {

constexpr size_t kMostDepth = (size_t{1} << 24) - 1;

size_t common_length(std::string_view left, std::string_view right) {
    const size_t most = std::min(left.size(), right.size());
    return std::mismatch(left.begin(), left.begin() + most, right.begin()).first - left.begin();
}

}  // namespace

TokenTrie::TokenTrie(std::vector<Token> tokens) {
    std::sort(tokens.begin(), tokens.end(), [](const Token& left, const Token& right) {
        return std::tie(left.text, left.id) < std::tie(right.text, right.id);
    });
    TokenTrieWriter writer(*this);
    std::string_view before;
    for (const auto& [text, id] : tokens) {
        if (text.size() > kMostDepth)
            throw std::length_error("a token has " + std::to_string(text.size()) + " bytes: the limit is " +
                                    std::to_string(kMostDepth));
        for (size_t at = common_length(before, text); at < text.size(); ++at)
            writer.append(static_cast<uint32_t>(at + 1), static_cast<uint8_t>(text[at]));
        writer.append_id(id);
        before = text;
    }
    writer.finish();
}

size_t TokenTrie::memory_bytes() const {
    return nodes_.size() * sizeof(Node) + ids_.size() * sizeof(int32_t);
}

void TokenTrieWriter::append(uint32_t depth, uint8_t key) {
    close(depth);
    if (depth == 1) trie_.tops_.push_back({key, next()});
    open_.push_back(next());
    trie_.nodes_.push_back({0, num_ids(), depth, key});
    trie_.depth_ = std::max(trie_.depth_, depth);
}

size_t TokenTrieWriter::append_room(size_t num_ids) {
    const size_t place = trie_.ids_.size();
    trie_.ids_.resize(place + num_ids);
    return place;
}

void TokenTrieWriter::finish() {
    close(1);
    trie_.nodes_.push_back({next() + 1, num_ids(), 0, 0});
}

void TokenTrieWriter::close(uint32_t depth) {
    for (; open_.size() >= depth; open_.pop_back()) trie_.nodes_[open_.back()].behind = next();
}

}  // namespace twostroke
