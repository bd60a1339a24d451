// Which tokens may come next in a text that follows a pattern; for one thread at a time.
//
// A mask takes one walk over the trie of all tokens, a quarter of a million for some. Most of that is spared:
// bytes that no place within a token's length tells from one another are one class, and by classes a
// vocabulary has few different tokens, some hundreds where letters and blanks are counted. Those are walked
// over, and what was found is looked up: places that differ in a count have the same mask.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "pattern_states.h"
#include "pattern_vocabulary.h"

namespace twostroke {

class PatternMasks {
  public:
    PatternMasks(std::shared_ptr<PatternVocabulary> vocabulary, PatternProgram program);

    const PatternVocabulary& vocabulary() const { return *vocabulary_; }
    uint32_t start() { return states_.find(states_.program().start()); }
    // kDead where the token may not come.
    uint32_t behind(uint32_t state, int32_t id);
    // Whether the text may end there.
    bool ends(uint32_t state) { return states_.program().ends(states_.places(state)); }
    // Whether one byte alone may come, and no mask is known that says with which token.
    bool wants_spelling(uint32_t state);
    // A mask that somebody else has found.
    void keep(uint32_t state, MaskWords words);
    // Good until the next call. Throws std::length_error where it would take too long to find.
    const MaskWords& of(uint32_t state);

    // Forgets everything where that is much, between two calls, which begins an age: then states are found
    // again by their places.
    void make_room();
    uint64_t age() const { return age_; }
    uint32_t find(const Places& places) { return states_.find(places); }
    const Places& places(uint32_t state) const { return states_.places(state); }

    // Nodes of tries that were looked at so far.
    uint64_t num_looked() const { return num_looked_; }

  private:
    // What tells bytes apart near a state. Where a first state has many nodes to look at, it is wide: for
    // others a merged trie is worth making.
    struct Sight {
        uint32_t number = 0;
        bool is_wide = false;
        ByteClasses class_of{};    // of each byte
        ByteClasses pattern_of{};  // of each such class: the class it is to the whole pattern
    };
    // Nodes whose tokens may come, behind those of each trie how many and by which sight; last whether the
    // text may end.
    using Found = std::vector<uint32_t>;
    struct Seen {
        const TokenTrie* trie;
        std::shared_ptr<const TokenTrie> merged;  // where it is not the vocabulary's own
        size_t begin, end;                        // in found_
    };

    uint32_t& number_of_mask(uint32_t state);
    uint32_t find_mask(uint32_t state);
    uint32_t add(MaskWords words);
    Seen see(size_t which, uint32_t state);
    Sight& sight_of(size_t which, const Kinds& kinds);
    void widen(Sight& sight, const Kinds& kinds);
    // Appends to found_; how many nodes there were to look at.
    uint64_t look(const TokenTrie& trie, const ByteClasses& class_of, uint32_t state);

    const std::shared_ptr<PatternVocabulary> vocabulary_;
    PatternStates states_;
    std::vector<uint32_t> mask_of_;  // per state, or kUnknown
    std::vector<MaskWords> masks_;
    std::unordered_map<Found, uint32_t, HashOfNumbers> numbers_;  // of masks
    std::array<std::unordered_map<Kinds, Sight>, kNumTries> sights_;
    size_t memory_bytes_ = 0;  // without the states'
    uint64_t age_ = 0;
    uint64_t num_looked_ = 0;
    uint64_t most_work_ = 0;
    Found found_;                 // by the look of now
    std::vector<uint32_t> path_;  // states on the way to its node
};

}  // namespace twostroke
