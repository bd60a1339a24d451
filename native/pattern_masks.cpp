#include "pattern_masks.h"

#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace twostroke {
namespace {

constexpr uint32_t kUnknown = ~uint32_t{0};
constexpr uint64_t kFewNodes = 1024;             // take less than finding what tells bytes apart
constexpr size_t kMostListed = 16384;            // nodes of a mask that is known again by them
constexpr uint64_t kMostWork = 4'000'000;        // places looked at for one mask: some 20 ms
constexpr size_t kMostMemory = size_t{8} << 20;  // of what is remembered
constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();

}  // namespace

PatternMasks::PatternMasks(std::shared_ptr<PatternVocabulary> vocabulary, PatternProgram program)
    : vocabulary_(std::move(vocabulary)), states_(std::move(program)) {}

uint32_t PatternMasks::behind(uint32_t state, int32_t id) {
    const std::string_view text = vocabulary_->text(id);
    if (text.empty()) return PatternStates::kDead;
    const ByteClasses& class_of = states_.program().class_of();
    for (const char byte : text) state = states_.behind(state, class_of[static_cast<uint8_t>(byte)]);
    return state;
}

bool PatternMasks::is_forced(uint32_t state) {
    if (ends(state)) return false;
    size_t num_bytes = 0;
    for (const uint8_t byte_class : states_.program().class_of())
        num_bytes += states_.behind(state, byte_class) != PatternStates::kDead;
    return num_bytes == 1;
}

const MaskWords& PatternMasks::of(uint32_t state) {
    if (mask_of_.size() <= state) mask_of_.resize(states_.size(), kUnknown);
    if (mask_of_[state] == kUnknown) mask_of_[state] = find_mask(state);
    return masks_[mask_of_[state]];
}

uint32_t PatternMasks::find_mask(uint32_t state) {
    most_work_ = states_.work() + kMostWork;
    found_.clear();
    std::array<Seen, kNumTries> seen;
    for (size_t which = 0; which < kNumTries; ++which) seen[which] = see(which, state);
    found_.push_back(ends(state));
    const auto number = static_cast<uint32_t>(masks_.size());
    if (found_.size() <= kMostListed) {
        const auto [known, is_new] = numbers_.try_emplace(found_, number);
        if (!is_new) return known->second;
        memory_bytes_ += found_.size() * sizeof(uint32_t);
    }
    masks_.push_back(ends(state) ? vocabulary_->end_tokens() : vocabulary_->no_token());
    for (const Seen& each : seen)
        for (size_t index = each.begin; index < each.end; ++index)
            allow(each.trie->ids(found_[index]), masks_.back());
    memory_bytes_ += masks_.back().size() * sizeof(uint32_t);
    return number;
}

PatternMasks::Seen PatternMasks::see(size_t which, uint32_t state) {
    const TokenTrie& trie = vocabulary_->trie(which);
    const ByteClasses& class_of = states_.program().class_of();
    Seen seen{&trie, nullptr, found_.size(), 0};
    uint32_t sight_number = 0;
    if (!look(trie, class_of, state, kFewNodes)) {
        found_.resize(seen.begin);
        Sight& sight = sight_of(which, state);
        if (sight.was_had) seen.merged = vocabulary_->merged(which, sight.class_of);
        sight.was_had = true;
        if (seen.merged) {
            seen.trie = seen.merged.get();
            sight_number = sight.number;
        }
        look(*seen.trie, seen.merged ? sight.pattern_of : class_of, state, kAll);
    }
    seen.end = found_.size();
    found_.insert(found_.end(), {static_cast<uint32_t>(seen.end - seen.begin), sight_number});
    return seen;
}

PatternMasks::Sight& PatternMasks::sight_of(size_t which, uint32_t state) {
    PatternProgram& program = states_.program();
    const Kinds kinds = program.near(states_.places(state), which);
    const auto [at, is_new] = sights_[which].try_emplace(kinds);
    Sight& sight = at->second;
    if (is_new) {
        sight.number = static_cast<uint32_t>(sights_[which].size());
        sight.class_of = program.classes_of(kinds);
        for (size_t byte = 0; byte < sight.class_of.size(); ++byte)
            sight.pattern_of[sight.class_of[byte]] = program.class_of()[byte];
        memory_bytes_ += sizeof(Sight) + sizeof(Kinds);
    }
    return sight;
}

// Appends to found_. False: there are more than `most` nodes to look at.
bool PatternMasks::look(const TokenTrie& trie, const ByteClasses& class_of, uint32_t state, uint64_t most) {
    path_.resize(trie.depth() + 1);
    path_[0] = state;
    uint64_t num_looked = 0;
    for (uint32_t at = 0; at < trie.num_nodes() && num_looked <= most; ++num_looked) {
        const TokenTrie::Node& node = trie.node(at);
        const uint32_t there = states_.behind(path_[node.depth - 1], class_of[node.key]);
        if (there == PatternStates::kDead) {
            at = node.behind;
            continue;
        }
        if (states_.work() > most_work_)
            throw std::length_error("it is in too many places at once: a step looked at more than " +
                                    std::to_string(kMostWork));
        path_[node.depth] = there;
        if (trie.has_ids(at)) found_.push_back(at);
        ++at;
    }
    num_looked_ += num_looked;
    return num_looked <= most;
}

void PatternMasks::make_room() {
    if (states_.memory_bytes() + memory_bytes_ <= kMostMemory) return;
    states_.clear();
    mask_of_.clear();
    masks_.clear();
    numbers_.clear();
    for (auto& each : sights_) each.clear();
    memory_bytes_ = 0;
    ++age_;
}

}  // namespace twostroke
