#include "pattern.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace twostroke {
namespace {

constexpr uint32_t kUnknown = ~uint32_t{0};
constexpr uint32_t kOwnTrie = 0;               // the vocabulary's, before those of groups
constexpr size_t kMostGroupings = 4;           // for states of one partition
constexpr uint32_t kMostVain = 4;              // tries to group tokens, of all states
constexpr size_t kMostListed = 16384;          // nodes of a mask that is known again by them
constexpr uint64_t kMostWork = 1'000'000;      // places and forks gone through for one mask: some 20 ms
constexpr size_t kMuch = size_t{8} << 20;      // bytes, after which all is forgotten
constexpr size_t kTooMuch = size_t{16} << 20;  // bytes, for one mask beside what was remembered

}  // namespace

Pattern::Pattern(std::shared_ptr<const PatternVocabulary> vocabulary, PatternProgram program,
                 uint32_t few_nodes)
    : vocabulary_(std::move(vocabulary)),
      few_nodes_(few_nodes),
      states_(std::move(program)),
      partitions_(states_) {}

uint32_t Pattern::behind(uint32_t state, int32_t id) {
    const std::string_view text = vocabulary_->text(id);
    if (text.empty()) return PatternStates::kDead;
    for (const char byte : text)
        state = states_.behind(state, states_.class_of()[static_cast<uint8_t>(byte)]);
    return state;
}

bool Pattern::is_forced(uint32_t state) {
    if (ends(state)) return false;
    size_t num_bytes = 0;
    for (const uint8_t byte_class : states_.class_of())
        num_bytes += states_.behind(state, byte_class) != PatternStates::kDead;
    return num_bytes == 1;
}

const MaskWords& Pattern::mask(uint32_t state) {
    if (mask_of_.size() <= state || mask_of_[state] == kUnknown) {
        const uint32_t number = find_mask(state);
        mask_of_.resize(states_.size(), kUnknown);
        mask_of_[state] = number;
    }
    return masks_[mask_of_[state]];
}

uint32_t Pattern::find_mask(uint32_t state) {
    most_work_ = states_.work() + kMostWork;
    const TokenTrie& trie = find_nodes(state);
    const size_t num_found = found_.size() - 1;
    found_.push_back(ends(state));
    const auto number = static_cast<uint32_t>(masks_.size());
    if (found_.size() <= kMostListed) {
        const auto [known, is_new] = numbers_.try_emplace(found_, number);
        if (!is_new) return known->second;
        memory_bytes_ += found_.size() * sizeof(uint32_t);
    }
    MaskWords words = ends(state) ? vocabulary_->end_tokens() : vocabulary_->no_token();
    for (size_t index = 0; index < num_found; ++index) allow(trie.ids(found_[index]), words);
    memory_bytes_ += words.size() * sizeof(uint32_t);
    masks_.push_back(std::move(words));
    return number;
}

const TokenTrie& Pattern::find_nodes(uint32_t state) {
    Groupings& groupings = groupings_[partitions_.of(state)];
    for (const Grouping& grouping : groupings)
        if (walk_groups(state, grouping)) return grouping.groups->trie;
    if (!walk_tokens(state, few_nodes_)) {
        if (group(state, groupings)) {
            walk_groups(state, groupings.back());
            return groupings.back().groups->trie;
        }
        walk_tokens(state, vocabulary_->trie().num_nodes());
    }
    return vocabulary_->trie();
}

bool Pattern::group(uint32_t state, Groupings& groupings) {
    if (groupings.size() >= kMostGroupings || num_vain_ >= kMostVain) return false;
    auto groups =
        group_tokens(vocabulary_->trie(), states_, partitions_, state, [&] { return is_too_much(); });
    most_work_ = states_.work() + kMostWork;  // in vain or not, it is no work of the mask
    if (groups == nullptr) {
        ++num_vain_;
        return false;
    }
    memory_bytes_ += groups->memory_bytes();
    groupings.push_back({++num_groupings_, std::move(groups)});
    return true;
}

bool Pattern::walk_groups(uint32_t state, const Grouping& grouping) {
    const TokenGroups& groups = *grouping.groups;
    const auto fits = [&](uint32_t node, uint32_t there) {
        return groups.partition[node] == TokenGroups::kLeaf ||
               partitions_.fits(there, groups.partition[node]);
    };
    if (!walk(state, groups.trie, [](uint8_t key) { return key; }, fits)) return false;
    found_.push_back(grouping.number);
    return true;
}

bool Pattern::walk_tokens(uint32_t state, uint32_t most_nodes) {
    const ByteClasses& class_of = states_.class_of();
    const uint64_t last = num_walked_ + most_nodes;
    const auto is_due = [&](uint32_t, uint32_t) { return num_walked_ <= last; };
    if (!walk(state, vocabulary_->trie(), [&](uint8_t key) { return class_of[key]; }, is_due)) return false;
    found_.push_back(kOwnTrie);
    return true;
}

template <class ClassOf, class GoesOn>
bool Pattern::walk(uint32_t state, const TokenTrie& trie, ClassOf class_of, GoesOn goes_on) {
    found_.clear();
    path_.resize(trie.depth() + 1);
    path_[0] = state;
    for (const auto& [key, top] : trie.tops()) {
        if (states_.behind(state, class_of(key)) == PatternStates::kDead) continue;
        for (uint32_t at = top; at < trie.node(top).behind;) {
            ++num_walked_;
            const TokenTrie::Node& node = trie.node(at);
            const uint32_t there = states_.behind(path_[node.depth - 1], class_of(node.key));
            if (there == PatternStates::kDead) {
                at = node.behind;
                continue;
            }
            if (!goes_on(at, there)) return false;
            if (gave_up_ || is_too_much()) {
                gave_up_ = true;
                throw std::length_error("it is in too many places at once");
            }
            path_[node.depth] = there;
            if (trie.has_ids(at)) found_.push_back(at);
            ++at;
        }
    }
    return true;
}

bool Pattern::is_too_much() const { return states_.work() > most_work_ || memory_bytes() > kTooMuch; }

size_t Pattern::memory_bytes() const {
    return states_.memory_bytes() + partitions_.memory_bytes() + memory_bytes_;
}

void Pattern::make_room() {
    if (memory_bytes() <= kMuch) return;
    states_.clear();
    partitions_ = BytePartitions(states_);
    forget(mask_of_);
    forget(masks_);
    forget(numbers_);
    forget(groupings_);
    num_groupings_ = 0;
    memory_bytes_ = 0;
    ++age_;
}

}  // namespace twostroke
