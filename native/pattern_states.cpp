#include "pattern_states.h"

#include <utility>

namespace twostroke {

PatternStates::PatternStates(PatternProgram program) : program_(std::move(program)) { clear(); }

void PatternStates::clear() {
    forget(numbers_);
    forget(places_);
    forget(behind_);
    memory_bytes_ = 0;
    find({});  // kDead
}

uint32_t PatternStates::find(const Places& places) {
    const auto [at, is_new] = numbers_.try_emplace(places, size());
    if (is_new) {
        places_.push_back(&at->first);
        behind_.resize(behind_.size() + program_.num_classes(), kUnknown);
        constexpr size_t kOfTheMap = 96;
        memory_bytes_ += (places.size() + program_.num_classes()) * sizeof(uint32_t) + kOfTheMap;
    }
    return at->second;
}

uint32_t PatternStates::find_behind(uint32_t state, uint8_t byte_class) {
    const uint32_t found = find(program_.behind(places(state), byte_class));
    behind_[size_t{state} * program_.num_classes() + byte_class] = found;
    return found;
}

size_t HashOfNumbers::operator()(const std::vector<uint32_t>& numbers) const {
    constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;  // its high bits depend on the whole number
    uint64_t hash = numbers.size();
    for (const uint32_t number : numbers) {
        hash = (hash ^ number) * kGoldenRatio;
        hash ^= hash >> 32;
    }
    return hash;
}

}  // namespace twostroke
