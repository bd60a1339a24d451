#include "pattern_vocabulary.h"

#include <algorithm>
#include <stdexcept>

namespace twostroke {
namespace {

constexpr size_t kMostMerged = 16;
constexpr uint32_t kMostNodes = 32768;  // a quarter of a megabyte and the ids; of more, little is spared

}  // namespace

void allow(std::span<const int32_t> ids, MaskWords& words) {
    for (const int32_t id : ids) words[static_cast<uint32_t>(id) / 32] |= uint32_t{1} << id % 32;
}

PatternVocabulary::PatternVocabulary(std::string texts, std::vector<size_t> ends,
                                     std::span<const int32_t> end_ids)
    : texts_(std::move(texts)), ends_(std::move(ends)), end_tokens_(no_token()) {
    for (const int32_t id : end_ids)
        if (!has(id))
            throw std::invalid_argument("end token " + std::to_string(id) + " is not in the vocabulary");
    allow(end_ids, end_tokens_);
    std::array<std::vector<TokenTrie::Token>, kNumTries> tokens;
    for (int32_t id = 0; id < size(); ++id) {
        if (text(id).empty()) continue;
        const auto which = std::lower_bound(kMostBytes.begin(), kMostBytes.end(), text(id).size());
        tokens[which - kMostBytes.begin()].push_back({text(id), id});
    }
    for (auto& each : tokens) tries_.emplace_back(std::move(each));
}

std::string_view PatternVocabulary::text(int32_t id) const {
    const size_t start = id == 0 ? 0 : ends_[id - 1];
    return std::string_view(texts_).substr(start, ends_[id] - start);
}

bool PatternVocabulary::is_end(int32_t id) const {
    return end_tokens_[static_cast<uint32_t>(id) / 32] >> id % 32 & 1;
}

std::shared_ptr<const TokenTrie> PatternVocabulary::merged(size_t which, const ByteClasses& class_of) {
    const auto found = std::find_if(merged_.begin(), merged_.end(), [&](const Merged& known) {
        return known.which == which && known.class_of == class_of;
    });
    if (found != merged_.end())
        merged_.splice(merged_.begin(), merged_, found);
    else
        merged_.push_front({which, class_of,
                            trie(which).merged(class_of, std::min(kMostNodes, trie(which).num_nodes() / 4))});
    if (merged_.size() > kMostMerged) merged_.pop_back();
    return merged_.front().trie;
}

}  // namespace twostroke
