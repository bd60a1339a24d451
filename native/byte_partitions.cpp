#include "byte_partitions.h"

namespace twostroke {

uint32_t BytePartitions::of(uint32_t state) {
    if (partition_of_.size() <= state) {
        memory_bytes_ += (states_->size() - partition_of_.size()) * sizeof(uint32_t);
        partition_of_.resize(states_->size(), kNone);
    }
    if (partition_of_[state] == kNone) partition_of_[state] = find(state);
    return partition_of_[state];
}

uint32_t BytePartitions::find(uint32_t state) {
    Partition partition(states_->num_classes(), kNoClass);
    std::unordered_map<uint32_t, uint32_t> lowest;  // class, by the state it leads to
    for (uint32_t each = 0; each < partition.size(); ++each) {
        const uint32_t there = states_->behind(state, static_cast<uint8_t>(each));
        if (there != PatternStates::kDead) partition[each] = lowest.try_emplace(there, each).first->second;
    }
    const auto [at, is_new] = numbers_.try_emplace(partition, static_cast<uint32_t>(partitions_.size()));
    if (is_new) {
        partitions_.push_back(&at->first);
        fits_.emplace_back();
        memory_bytes_ += partition.size() * sizeof(uint32_t);
    }
    return at->second;
}

bool BytePartitions::fits(uint32_t state, uint32_t partition) {
    std::vector<Fit>& known = fits_[partition];
    if (known.size() <= state) {
        memory_bytes_ += states_->size() - known.size();
        known.resize(states_->size(), kUnknown);
    }
    if (known[state] == kUnknown) {
        const bool fits =
            find_fit(state, *partitions_[partition]);  // which may make states, but no partition
        known[state] = fits ? kFits : kFitsNot;
    }
    return known[state] == kFits;
}

bool BytePartitions::find_fit(uint32_t state, const Partition& partition) {
    for (uint32_t each = 0; each < partition.size(); ++each) {
        const uint32_t there = states_->behind(state, static_cast<uint8_t>(each));
        const uint32_t wanted = partition[each] == kNoClass
                                    ? PatternStates::kDead
                                    : states_->behind(state, static_cast<uint8_t>(partition[each]));
        if (there != wanted) return false;
    }
    return true;
}

}  // namespace twostroke
