// The tokens of a vocabulary in groups: those that take one way through the states of a pattern.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "byte_partitions.h"
#include "token_trie.h"

namespace twostroke {

// The groups of one state hold for every state whose ways part nowhere else; what may come is then found
// group by group.
struct TokenGroups {
    static constexpr uint32_t kLeaf = ~uint32_t{0};

    TokenTrie trie;                   // of classes of bytes; one stands for its whole part
    std::vector<uint32_t> partition;  // of each node that tokens go on from, the others have kLeaf

    size_t memory_bytes() const;
};

// Null where there would be so many nodes that little is spared, and where it is too much.
std::unique_ptr<const TokenGroups> group_tokens(const TokenTrie& trie, PatternStates& states,
                                                BytePartitions& partitions, uint32_t state,
                                                const std::function<bool()>& is_too_much);

}  // namespace twostroke
