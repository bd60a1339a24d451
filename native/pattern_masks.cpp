#include "pattern_masks.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace twostroke {
namespace {

constexpr uint32_t kUnknown = ~uint32_t{0};
constexpr uint32_t kOwnTrie = 0;                 // in the place of a sight: the vocabulary's
constexpr uint64_t kFewNodes = 4096;             // are looked at sooner than a trie is merged
constexpr size_t kMostListed = 16384;            // nodes of a mask that is known again by them
constexpr uint64_t kMostWork = 4'000'000;        // places looked at for one mask: some 20 ms
constexpr size_t kMostMemory = size_t{8} << 20;  // of what is remembered

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

bool PatternMasks::wants_spelling(uint32_t state) {
    if (number_of_mask(state) != kUnknown || ends(state)) return false;
    size_t num_bytes = 0;
    for (const uint8_t byte_class : states_.program().class_of())
        num_bytes += states_.behind(state, byte_class) != PatternStates::kDead;
    return num_bytes == 1;
}

void PatternMasks::keep(uint32_t state, MaskWords words) {
    words.resize(vocabulary_->no_token().size());
    number_of_mask(state) = add(std::move(words));
}

const MaskWords& PatternMasks::of(uint32_t state) {
    uint32_t number = number_of_mask(state);
    if (number == kUnknown) number = number_of_mask(state) = find_mask(state);
    return masks_[number];
}

uint32_t& PatternMasks::number_of_mask(uint32_t state) {
    if (mask_of_.size() < states_.size()) mask_of_.resize(states_.size(), kUnknown);
    return mask_of_[state];
}

uint32_t PatternMasks::add(MaskWords words) {
    memory_bytes_ += words.size() * sizeof(uint32_t);
    masks_.push_back(std::move(words));
    return static_cast<uint32_t>(masks_.size() - 1);
}

uint32_t PatternMasks::find_mask(uint32_t state) {
    most_work_ = states_.work() + kMostWork;
    found_.clear();
    std::array<Seen, kNumTries> seen;
    for (size_t which = 0; which < kNumTries; ++which) seen[which] = see(which, state);
    found_.push_back(ends(state));
    if (found_.size() <= kMostListed) {
        const auto [known, is_new] = numbers_.try_emplace(found_, static_cast<uint32_t>(masks_.size()));
        if (!is_new) return known->second;
        memory_bytes_ += found_.size() * sizeof(uint32_t);
    }
    MaskWords words = ends(state) ? vocabulary_->end_tokens() : vocabulary_->no_token();
    for (const Seen& each : seen)
        for (size_t index = each.begin; index < each.end; ++index)
            allow(each.trie->ids(found_[index]), words);
    return add(std::move(words));
}

PatternMasks::Seen PatternMasks::see(size_t which, uint32_t state) {
    const Kinds kinds = states_.program().near(states_.places(state), which);
    Sight& sight = sight_of(which, kinds);
    Seen seen{&vocabulary_->trie(which), nullptr, found_.size(), 0};
    if (sight.is_wide) seen.merged = vocabulary_->merged(which, sight.class_of);
    if (seen.merged) {
        seen.trie = seen.merged.get();
        look(*seen.trie, sight.pattern_of, state);
    } else if (look(*seen.trie, states_.program().class_of(), state) > kFewNodes && !sight.is_wide) {
        widen(sight, kinds);
    }
    seen.end = found_.size();
    found_.insert(found_.end(),
                  {static_cast<uint32_t>(seen.end - seen.begin), seen.merged ? sight.number : kOwnTrie});
    return seen;
}

PatternMasks::Sight& PatternMasks::sight_of(size_t which, const Kinds& kinds) {
    const auto [at, is_new] = sights_[which].try_emplace(kinds);
    if (is_new) {
        at->second.number = static_cast<uint32_t>(sights_[which].size());
        memory_bytes_ += sizeof(Sight) + sizeof(Kinds);
    }
    return at->second;
}

void PatternMasks::widen(Sight& sight, const Kinds& kinds) {
    const PatternProgram& program = states_.program();
    sight.is_wide = true;
    sight.class_of = program.classes_of(kinds);
    for (size_t byte = 0; byte < sight.class_of.size(); ++byte)
        sight.pattern_of[sight.class_of[byte]] = program.class_of()[byte];
}

uint64_t PatternMasks::look(const TokenTrie& trie, const ByteClasses& class_of, uint32_t state) {
    path_.resize(trie.depth() + 1);
    path_[0] = state;
    uint64_t num_looked = 0;
    for (const auto& [key, top] : trie.tops()) {
        if (states_.behind(state, class_of[key]) == PatternStates::kDead) continue;
        for (uint32_t at = top; at < trie.node(top).behind; ++num_looked) {
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
    }
    num_looked_ += num_looked;
    return num_looked;
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
