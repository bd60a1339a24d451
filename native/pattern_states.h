// The states of a pattern: sets of places it may be in at once, made when they are first come to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "pattern_program.h"

namespace twostroke {

// Empties it, and gives its memory back.
template <class Container>
void forget(Container& container) {
    Container().swap(container);
}

struct HashOfNumbers {
    size_t operator()(const std::vector<uint32_t>& numbers) const;
};

class PatternStates {
  public:
    static constexpr uint32_t kDead = 0;  // in no place: no text goes on from there

    explicit PatternStates(PatternProgram program);

    uint32_t num_classes() const { return program_.num_classes(); }
    const ByteClasses& class_of() const { return program_.class_of(); }
    uint32_t size() const { return static_cast<uint32_t>(places_.size()); }
    size_t memory_bytes() const { return memory_bytes_; }
    // Places and forks gone through to make them so far.
    uint64_t work() const { return program_.work(); }

    uint32_t start() { return find(program_.start()); }
    uint32_t find(const Places& places);
    const Places& places(uint32_t state) const { return *places_[state]; }
    uint32_t behind(uint32_t state, uint8_t byte_class) {
        const uint32_t known = behind_[size_t{state} * program_.num_classes() + byte_class];
        return known != kUnknown ? known : find_behind(state, byte_class);
    }
    // Whether the text may end there.
    bool ends(uint32_t state) const { return program_.ends(places(state)); }
    // Forgets all but the dead one; numbers begin anew.
    void clear();

  private:
    static constexpr uint32_t kUnknown = ~uint32_t{0};

    uint32_t find_behind(uint32_t state, uint8_t byte_class);

    PatternProgram program_;
    std::unordered_map<Places, uint32_t, HashOfNumbers> numbers_;
    std::vector<const Places*> places_;  // of each state, in numbers_
    std::vector<uint32_t> behind_;       // [size()][num_classes]
    size_t memory_bytes_ = 0;
};

}  // namespace twostroke
