// Weights a thread reads next, asked for while it would only wait: a decode step is bound by memory, and
// memory that rests at every barrier is time lost.
//
// Hints alone: no result depends on them, and no byte outside the weights is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace twostroke {

// Bytes that are read one after the other.
struct Stretch {
    const uint8_t* data;
    size_t num_bytes;
};

// What one thread reads first in every phase that reads weights, phase by phase.
using ReadPlan = std::vector<std::vector<Stretch>>;

// One thread's place in its plan during a step.
class ReadAhead {
  public:
    // Of a phase, only so much is asked for: waits are short, and more was slower (measured up to 192 KiB).
    static constexpr size_t kMostBytes = 16 * 1024;
    // Lines at a time: a thread that waits sees its barrier again within a moment.
    static constexpr size_t kLineBytes = 64, kLinesPerPull = 8;
    // Lines a phase that has not waited asks for before it prepares its input: as many as can be on their
    // way.
    static constexpr int kPullsBeforePrepare = 4;

    explicit ReadAhead(const ReadPlan& plan) : plan_(plan) {}

    // Asks for the next lines; false when the phase has no more of them.
    bool pull() {
        if (phase_ >= plan_.size()) return false;
        const std::vector<Stretch>& stretches = plan_[phase_];
        if (stretch_ >= stretches.size()) return false;
        const Stretch& stretch = stretches[stretch_];
        for (size_t i = 0; i < kLinesPerPull && offset_ < stretch.num_bytes; ++i, offset_ += kLineBytes)
            __builtin_prefetch(stretch.data + offset_, 0, 2);
        if (offset_ < stretch.num_bytes) return true;
        offset_ = 0;
        ++stretch_;
        return true;
    }
    // The phase has read its weights: the next one's turn.
    void next_phase() {
        ++phase_;
        stretch_ = offset_ = 0;
    }

  private:
    const ReadPlan& plan_;
    size_t phase_ = 0;
    size_t stretch_ = 0;
    size_t offset_ = 0;
};

}  // namespace twostroke
