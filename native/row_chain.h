// Row ops that follow each other, run token by token.
#pragma once

#include <span>
#include <vector>

#include "frame.h"

namespace twostroke {

class RowChain {
  public:
    RowChain(const Frame& frame, std::span<const Instr> instrs);

    static bool accepts(Op op);

    bool is_empty() const { return links_.empty(); }
    size_t scratch_floats() const { return num_slots_ * static_cast<size_t>(slot_stride_); }

    // Runs every op for row `index`. Values of the arena are written there if `publish`, else only into the
    // caller's scratch: then several threads may run the same row.
    void run(int32_t index, bool publish, float* scratch) const;
    // Where `value` is after run with the same arguments; for values of others, its place in the arena.
    const float* find(int32_t value, int32_t index, bool publish, float* scratch) const;
    bool produces(int32_t value) const { return slot_of(value) >= 0; }

  private:
    struct Place {
        int32_t value;
        int32_t slot;  // -1: another group's
    };
    struct Link {
        const Instr* instr;
        std::vector<Place> inputs;
        Place output;
    };

    void check_axis(const Link& link) const;
    int32_t slot_of(int32_t value) const;
    float* at(Place place, int32_t index, bool publish, float* scratch) const;
    void run_link(const Link& link, int32_t index, bool publish, float* scratch) const;
    void write_kv(const Instr& instr, int32_t index, const float* k, const float* v) const;
    void rope(const Instr& instr, int32_t index, const float* x, float* out) const;

    const Frame& frame_;
    std::vector<Link> links_;
    int32_t num_slots_ = 0;
    int32_t slot_stride_ = 0;
};

}  // namespace twostroke
