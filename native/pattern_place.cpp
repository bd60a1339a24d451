#include "pattern_place.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace twostroke {

PatternPlace::PatternPlace(std::shared_ptr<PatternMasks> masks) : masks_(std::move(masks)) {
    masks_->make_room();
    be_at(masks_->start());
}

void PatternPlace::be_at(uint32_t state) {
    state_ = state;
    places_ = masks_->places(state);
    age_ = masks_->age();
}

uint32_t PatternPlace::state() {
    masks_->make_room();
    if (age_ != masks_->age()) be_at(masks_->find(places_));
    return state_;
}

const MaskWords& PatternPlace::mask() {
    if (has_ended_) return masks_->vocabulary().end_tokens();
    const MaskWords& words = masks_->of(state());
    if (std::all_of(words.begin(), words.end(), [](uint32_t word) { return word == 0; }))
        throw std::domain_error("no token goes on from where it is");
    return words;
}

void PatternPlace::advance(int32_t id) {
    const PatternVocabulary& vocabulary = masks_->vocabulary();
    if (!vocabulary.has(id))
        throw std::invalid_argument("token " + std::to_string(id) + " is not in the vocabulary");
    const uint32_t here = state();
    if (has_ended_ || !vocabulary.is_end(id)) {
        be_at(has_ended_ ? PatternStates::kDead : masks_->behind(here, id));
        has_ended_ = false;
    } else {
        has_ended_ = masks_->ends(here);
        if (!has_ended_) be_at(PatternStates::kDead);
    }
}

}  // namespace twostroke
