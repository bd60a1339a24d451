#include "pattern_place.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace twostroke {

PatternPlace::PatternPlace(std::shared_ptr<Pattern> pattern) : pattern_(std::move(pattern)) {
    pattern_->make_room();
    be_at(pattern_->start());
}

void PatternPlace::be_at(uint32_t state) {
    state_ = state;
    places_ = pattern_->places(state);
    age_ = pattern_->age();
}

uint32_t PatternPlace::state() {
    pattern_->make_room();
    if (age_ != pattern_->age()) be_at(pattern_->find(places_));
    return state_;
}

const MaskWords& PatternPlace::mask() {
    if (has_ended_) return pattern_->vocabulary().end_tokens();
    const MaskWords& words = pattern_->mask(state());
    if (std::all_of(words.begin(), words.end(), [](uint32_t word) { return word == 0; }))
        throw std::domain_error("no token goes on from where it is");
    return words;
}

void PatternPlace::advance(int32_t id) {
    const PatternVocabulary& vocabulary = pattern_->vocabulary();
    if (!vocabulary.has(id))
        throw std::invalid_argument("token " + std::to_string(id) + " is not in the vocabulary");
    const uint32_t here = state();
    const bool ends = vocabulary.is_end(id) && pattern_->ends(here);
    if (!ends) be_at(has_ended_ ? PatternStates::kDead : pattern_->behind(here, id));
    has_ended_ = ends;
}

}  // namespace twostroke
