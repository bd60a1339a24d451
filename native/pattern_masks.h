// Which tokens may come next in a text that follows a pattern; for one thread at a time.
//
// A mask takes one walk over the trie of all tokens, a quarter of a million for some. That is spared where it
// is long: tokens are put into groups that take one way through the states, some tens where letters and
// blanks are counted. Other states are asked group by group then, and what is found is looked up: places that
// differ in a count have the same mask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "byte_partitions.h"
#include "pattern_states.h"
#include "pattern_vocabulary.h"
#include "token_groups.h"

namespace twostroke {

class PatternMasks {
  public:
    // Up to `few_nodes` of the vocabulary's trie are looked at without groups.
    PatternMasks(std::shared_ptr<const PatternVocabulary> vocabulary, PatternProgram program,
                 uint32_t few_nodes);
    PatternMasks(const PatternMasks&) = delete;  // its parts know one another
    PatternMasks& operator=(const PatternMasks&) = delete;

    const PatternVocabulary& vocabulary() const { return *vocabulary_; }
    uint32_t start() { return states_.start(); }
    // kDead where the token may not come.
    uint32_t behind(uint32_t state, int32_t id);
    bool ends(uint32_t state) const { return states_.ends(state); }
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

    // Of all that is remembered.
    size_t memory_bytes() const {
        return states_.memory_bytes() + partitions_.memory_bytes() + memory_bytes_;
    }
    // Nodes of tries that were looked at so far.
    uint64_t num_looked() const { return num_looked_; }

  private:
    // Nodes whose tokens may come; behind them the number of the trie they are of and whether the text may
    // end.
    using Found = std::vector<uint32_t>;
    struct Numbered {
        uint32_t number;
        std::unique_ptr<const TokenGroups> groups;
    };
    // What was learned at states of one partition. Groups made for one of them fit most others, not all.
    struct Lessons {
        uint32_t num_tries = 0;
        std::vector<Numbered> known;
    };

    uint32_t& number_of_mask(uint32_t state);
    uint32_t find_mask(uint32_t state);
    uint32_t add(MaskWords words);
    // Fills found_, but for whether the text may end. The trie it is of.
    const TokenTrie& see(uint32_t state);
    // The same by groups. False where the state does not fit them.
    bool look(const Numbered& numbered, uint32_t state);
    // The same token by token. False where there are more nodes to look at.
    bool look(uint32_t most_nodes, uint32_t state);
    template <class ClassOf, class GoesOn>
    bool walk(const TokenTrie& trie, uint32_t state, ClassOf class_of, GoesOn goes_on);
    // Whether there are groups for it now.
    bool learn(Lessons& lessons, uint32_t state);

    const std::shared_ptr<const PatternVocabulary> vocabulary_;
    const uint32_t few_nodes_;
    PatternStates states_;
    BytePartitions partitions_;
    std::vector<uint32_t> mask_of_;  // per state, or kUnknown
    std::vector<MaskWords> masks_;
    std::unordered_map<Found, uint32_t, HashOfNumbers> numbers_;  // of masks
    std::unordered_map<uint32_t, Lessons> lessons_;               // of each partition
    uint32_t num_groups_ = 0;
    size_t memory_bytes_ = 0;  // without the states' and the partitions'
    uint64_t age_ = 0;
    uint64_t num_looked_ = 0;
    uint64_t most_work_ = 0;
    Found found_;                 // by the look of now
    std::vector<uint32_t> path_;  // states on the way to its node
};

}  // namespace twostroke
