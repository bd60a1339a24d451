#include "pattern_masks.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace twostroke {
namespace {

constexpr uint32_t kUnknown = ~uint32_t{0};
constexpr uint32_t kOwnTrie = 0;                 // the vocabulary's, before those of groups
constexpr uint32_t kMostTries = 4;               // to group tokens at states of one partition
constexpr size_t kMostListed = 16384;            // nodes of a mask that is known again by them
constexpr uint64_t kMostWork = 4'000'000;        // places looked at for one mask: some 20 ms
constexpr size_t kMostMemory = size_t{8} << 20;  // of what is remembered

}  // namespace

PatternMasks::PatternMasks(std::shared_ptr<const PatternVocabulary> vocabulary, PatternProgram program,
                           uint32_t few_nodes)
    : vocabulary_(std::move(vocabulary)),
      few_nodes_(few_nodes),
      states_(std::move(program)),
      partitions_(states_) {}

uint32_t PatternMasks::behind(uint32_t state, int32_t id) {
    const std::string_view text = vocabulary_->text(id);
    if (text.empty()) return PatternStates::kDead;
    for (const char byte : text)
        state = states_.behind(state, states_.class_of()[static_cast<uint8_t>(byte)]);
    return state;
}

bool PatternMasks::wants_spelling(uint32_t state) {
    if (number_of_mask(state) != kUnknown || ends(state)) return false;
    size_t num_bytes = 0;
    for (const uint8_t byte_class : states_.class_of())
        num_bytes += states_.behind(state, byte_class) != PatternStates::kDead;
    return num_bytes == 1;
}

void PatternMasks::keep(uint32_t state, MaskWords words) {
    words.resize(vocabulary_->no_token().size());
    number_of_mask(state) = add(std::move(words));
}

const MaskWords& PatternMasks::of(uint32_t state) {
    if (number_of_mask(state) == kUnknown) {
        const uint32_t number = find_mask(state);  // which makes states
        number_of_mask(state) = number;
    }
    return masks_[number_of_mask(state)];
}

uint32_t& PatternMasks::number_of_mask(uint32_t state) {
    if (mask_of_.size() <= state) mask_of_.resize(states_.size(), kUnknown);
    return mask_of_[state];
}

uint32_t PatternMasks::add(MaskWords words) {
    memory_bytes_ += words.size() * sizeof(uint32_t);
    masks_.push_back(std::move(words));
    return static_cast<uint32_t>(masks_.size() - 1);
}

uint32_t PatternMasks::find_mask(uint32_t state) {
    most_work_ = states_.work() + kMostWork;
    const TokenTrie& trie = see(state);
    const size_t num_found = found_.size() - 1;
    found_.push_back(ends(state));
    if (found_.size() <= kMostListed) {
        const auto [known, is_new] = numbers_.try_emplace(found_, static_cast<uint32_t>(masks_.size()));
        if (!is_new) return known->second;
        memory_bytes_ += found_.size() * sizeof(uint32_t);
    }
    MaskWords words = ends(state) ? vocabulary_->end_tokens() : vocabulary_->no_token();
    for (size_t index = 0; index < num_found; ++index) allow(trie.ids(found_[index]), words);
    return add(std::move(words));
}

const TokenTrie& PatternMasks::see(uint32_t state) {
    Lessons& lessons = lessons_[partitions_.of(state)];
    for (const Numbered& known : lessons.known)
        if (look(known, state)) return known.groups->trie;
    if (look(few_nodes_, state)) return vocabulary_->trie();
    if (learn(lessons, state)) {
        look(lessons.known.back(), state);
        return lessons.known.back().groups->trie;
    }
    look(vocabulary_->trie().num_nodes(), state);
    return vocabulary_->trie();
}

bool PatternMasks::learn(Lessons& lessons, uint32_t state) {
    if (lessons.num_tries++ >= kMostTries) return false;
    auto groups = group_tokens(vocabulary_->trie(), states_, partitions_, state, most_work_);
    if (groups == nullptr) return false;
    memory_bytes_ += groups->memory_bytes();
    lessons.known.push_back({++num_groups_, std::move(groups)});
    return true;
}

bool PatternMasks::look(const Numbered& numbered, uint32_t state) {
    const TokenGroups& groups = *numbered.groups;
    const auto fits = [&](uint32_t node, uint32_t there) {
        return groups.partition[node] == TokenGroups::kLeaf ||
               partitions_.fits(there, groups.partition[node]);
    };
    if (!walk(groups.trie, state, [](uint8_t key) { return key; }, fits)) return false;
    found_.push_back(numbered.number);
    return true;
}

bool PatternMasks::look(uint32_t most_nodes, uint32_t state) {
    const ByteClasses& class_of = states_.class_of();
    const uint64_t last = num_looked_ + most_nodes;
    const auto is_due = [&](uint32_t, uint32_t) { return num_looked_ <= last; };
    if (!walk(vocabulary_->trie(), state, [&](uint8_t key) { return class_of[key]; }, is_due)) return false;
    found_.push_back(kOwnTrie);
    return true;
}

template <class ClassOf, class GoesOn>
bool PatternMasks::walk(const TokenTrie& trie, uint32_t state, ClassOf class_of, GoesOn goes_on) {
    found_.clear();
    path_.resize(trie.depth() + 1);
    path_[0] = state;
    for (const auto& [key, top] : trie.tops()) {
        if (states_.behind(state, class_of(key)) == PatternStates::kDead) continue;
        for (uint32_t at = top; at < trie.node(top).behind;) {
            ++num_looked_;
            const TokenTrie::Node& node = trie.node(at);
            const uint32_t there = states_.behind(path_[node.depth - 1], class_of(node.key));
            if (there == PatternStates::kDead) {
                at = node.behind;
                continue;
            }
            if (!goes_on(at, there)) return false;
            if (states_.work() > most_work_)
                throw std::length_error("it is in too many places at once: a step looked at more than " +
                                        std::to_string(kMostWork));
            path_[node.depth] = there;
            if (trie.has_ids(at)) found_.push_back(at);
            ++at;
        }
    }
    return true;
}

void PatternMasks::make_room() {
    if (memory_bytes() <= kMostMemory) return;
    states_.clear();
    partitions_.clear();
    mask_of_.clear();
    masks_.clear();
    numbers_.clear();
    lessons_.clear();
    num_groups_ = 0;
    memory_bytes_ = 0;
    ++age_;
}

}  // namespace twostroke
