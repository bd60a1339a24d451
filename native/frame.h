// What all groups of a program share: kernels, stores and memory, and the arrays of the step that runs now.
// Allocated when the program is finished; a step only writes into it.
#pragma once

#include <cstdint>
#include <vector>

#include "candidates.h"
#include "instr.h"
#include "kernels/table.h"
#include "kv_store.h"
#include "pages.h"

namespace twostroke {

struct BlockTable {
    const int32_t* blocks = nullptr;  // [rows][max_blocks], -1: none
    int32_t max_blocks = 0;
};

// One step as arrays (BoundStep in program/program.py); logits is [num_selected][output_width].
struct StepInput {
    const int32_t* token_ids = nullptr;
    int32_t num_tokens = 0;
    const int32_t* row_starts = nullptr;
    const int32_t* row_positions = nullptr;
    int32_t num_rows = 0;
    std::vector<BlockTable> tables;
    const int32_t* selected = nullptr;
    int32_t num_selected = 0;
    float* logits = nullptr;
    // A bit per vocabulary id, kPanelRows to a word: a panel of the head without one is left out, and so are
    // those past the words; their logits come as -inf. Null: all are wanted.
    const uint32_t* wanted = nullptr;
    int32_t num_wanted_words = 0;
    // A row per selected token: of those that do not want all their logits none are written, and what there
    // is to choose from comes here. Null: all are written.
    Candidates* candidates = nullptr;
};

struct Limits {
    int32_t max_tokens;
    int32_t max_rows;
    int32_t context_length;
    int32_t vocab_size;
    int32_t output_width;  // of what a step writes per selected token: logits, or hidden states where there
                           // is no head
};

struct Angles {
    float* cos;  // [max_tokens][half]
    float* sin;
    int32_t half;
};

struct Frame {
    Frame(const KernelTable& kernels, KVStore& store, const Limits& limits, int32_t num_threads)
        : kernels(kernels), store(store), limits(limits), num_threads(num_threads) {}

    const KernelTable& kernels;
    KVStore& store;
    const Limits limits;
    const int32_t num_threads;

    std::vector<Value> values;
    std::vector<RopeTable> rope_tables;

    Pages arena;
    Pages shared[2];             // prepared activations of linears, which take turns
    std::vector<Pages> scratch;  // per thread
    Pages angle_pages;
    std::vector<Angles> angles;  // per rope table
    Pages partials;              // of attention split over chunks

    StepInput step;
    std::vector<int32_t> token_pos;  // [max_tokens]
    std::vector<int32_t> token_row;

    int32_t count(Axis axis) const { return axis == Axis::tokens ? step.num_tokens : step.num_selected; }

    // Row `index` of a value that is not local.
    float* place(int32_t id, int32_t index) const {
        const Value& value = values[id];
        if (value.offset == kInLogits) return step.logits + static_cast<size_t>(index) * value.stride;
        return arena.as<float>() + static_cast<size_t>(value.offset) * limits.max_tokens +
               static_cast<size_t>(index) * value.stride;
    }
};

// Hands out 64-byte aligned pieces; with a null base it only adds sizes up.
class Carver {
  public:
    explicit Carver(uint8_t* base) : base_(reinterpret_cast<uintptr_t>(base)) {}
    template <class T>
    T* take(size_t count) {
        T* piece = reinterpret_cast<T*>(base_ + used_);
        used_ += (count * sizeof(T) + 63) / 64 * 64;
        return piece;
    }
    size_t used() const { return used_; }

  private:
    uintptr_t base_;  // a number, as adding to a null pointer is not defined
    size_t used_ = 0;
};

inline constexpr int32_t round_up(int32_t value, int32_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

}  // namespace twostroke
