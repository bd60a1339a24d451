// How states tell bytes apart: bytes of one part lead from a state to one other, bytes of no part nowhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "pattern_states.h"

namespace twostroke {

class BytePartitions {
  public:
    // Good until the states are forgotten.
    explicit BytePartitions(PatternStates& states) : states_(&states) {}

    // The number of the state's partition; equal ones have one number.
    uint32_t of(uint32_t state);
    // For a class of bytes the lowest one of its part, or kNoClass.
    uint8_t part(uint32_t partition, uint8_t byte_class) const {
        return static_cast<uint8_t>((*partitions_[partition])[byte_class]);
    }
    // Whether the state tells no two bytes apart that this partition does not, and takes none that it does
    // not.
    bool fits(uint32_t state, uint32_t partition);
    size_t memory_bytes() const { return memory_bytes_; }

  private:
    using Partition = std::vector<uint32_t>;  // of each class the lowest one of its part
    enum Fit : uint8_t { kUnknown, kFits, kFitsNot };

    static constexpr uint32_t kNone = ~uint32_t{0};

    uint32_t find(uint32_t state);
    bool find_fit(uint32_t state, const Partition& partition);

    PatternStates* states_;
    std::unordered_map<Partition, uint32_t, HashOfNumbers> numbers_;
    std::vector<const Partition*> partitions_;  // in numbers_
    std::vector<uint32_t> partition_of_;        // of each state, or kNone
    std::vector<std::vector<Fit>> fits_;        // of each partition with each state
    size_t memory_bytes_ = 0;
};

}  // namespace twostroke
