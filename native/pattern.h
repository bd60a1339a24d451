// A pattern over a vocabulary: which tokens may come next in a text that follows it. For one thread at a
// time.
//
// A mask takes one walk over the trie of all tokens, a quarter of a million for some. That is spared where it
// is long: tokens are put into groups that take one way through the states, some tens where letters and
// blanks are counted. Other states are asked group by group then, and the mask is looked up by what is found:
// places that differ in a count have the same mask.
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

class Pattern {
  public:
    // Up to `few_nodes` of the vocabulary's trie are walked over without groups.
    Pattern(std::shared_ptr<const PatternVocabulary> vocabulary, PatternProgram program, uint32_t few_nodes);
    Pattern(const Pattern&) = delete;  // its parts know one another
    Pattern& operator=(const Pattern&) = delete;

    const PatternVocabulary& vocabulary() const { return *vocabulary_; }
    uint32_t start() { return states_.start(); }
    // kDead where the token may not come.
    uint32_t behind(uint32_t state, int32_t id);
    // Whether the text may end there.
    bool ends(uint32_t state) const { return states_.ends(state); }
    // Whether one byte alone may come.
    bool is_forced(uint32_t state);
    // Good until the next call. Throws std::length_error where that is too much to find, for this state and
    // from then on for every other: who asks should have another way.
    const MaskWords& mask(uint32_t state);

    // Forgets everything where that is much, between two calls, which begins an age: then states are found
    // again by their places.
    void make_room();
    uint64_t age() const { return age_; }
    uint32_t find(const Places& places) { return states_.find(places); }
    const Places& places(uint32_t state) const { return states_.places(state); }

    // Of all that is remembered.
    size_t memory_bytes() const;
    // Nodes of tries that were walked over so far.
    uint64_t num_walked() const { return num_walked_; }

  private:
    // Nodes whose tokens may come; behind them the number of the trie they are of and whether the text may
    // end.
    using Found = std::vector<uint32_t>;
    struct Grouping {
        uint32_t number;  // of its trie
        std::unique_ptr<const TokenGroups> groups;
    };
    // Of states of one partition. Groups made for one of them fit most others, not all.
    using Groupings = std::vector<Grouping>;

    uint32_t find_mask(uint32_t state);
    // Fills found_, but for whether the text may end. The trie it is of.
    const TokenTrie& find_nodes(uint32_t state);
    // The same by groups. False where the state does not fit them.
    bool walk_groups(uint32_t state, const Grouping& grouping);
    // The same token by token. False where there are more nodes than that.
    bool walk_tokens(uint32_t state, uint32_t most_nodes);
    template <class ClassOf, class GoesOn>
    bool walk(uint32_t state, const TokenTrie& trie, ClassOf class_of, GoesOn goes_on);
    // Whether there are groups for it now.
    bool group(uint32_t state, Groupings& groupings);
    bool is_too_much() const;

    const std::shared_ptr<const PatternVocabulary> vocabulary_;
    const uint32_t few_nodes_;
    PatternStates states_;
    BytePartitions partitions_;
    std::vector<uint32_t> mask_of_;  // per state, or kUnknown
    std::vector<MaskWords> masks_;
    std::unordered_map<Found, uint32_t, HashOfNumbers> numbers_;  // of masks
    std::unordered_map<uint32_t, Groupings> groupings_;           // of each partition
    uint32_t num_groupings_ = 0;
    uint32_t num_vain_ = 0;    // tries to group tokens that were given up
    size_t memory_bytes_ = 0;  // without the states' and the partitions'
    bool gave_up_ = false;
    uint64_t age_ = 0;
    uint64_t num_walked_ = 0;
    uint64_t most_work_ = 0;
    Found found_;                 // by the walk of now
    std::vector<uint32_t> path_;  // states on the way to its node
};

}  // namespace twostroke
