// A group of adjacent instrs that runs as one phase: between groups, and nowhere else, all threads meet.
//
// Three kinds, picked by what the group holds: attention (rope, norms and kv_write around one attend), linear
// (row ops, one linear or logits, element-wise ops on its outputs) and rows (anything per token).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "frame.h"
#include "pool.h"
#include "prepared.h"
#include "read_ahead.h"

namespace twostroke {

class Group {
  public:
    virtual ~Group() = default;
    // Called by every worker of the pool; ends with a barrier, at which `ahead` asks for what is read next.
    virtual void run(Worker& worker, ReadAhead& ahead) const = 0;
    // The weights a worker reads first, ReadAhead::kMostBytes of them; empty: the group reads none.
    virtual std::vector<Stretch> first_reads(int /*worker*/) const { return {}; }
    virtual size_t scratch_bytes() const = 0;           // per thread
    virtual size_t shared_bytes() const { return 0; }   // for all
    virtual size_t partial_bytes() const { return 0; }  // for all
    virtual void begin_step() {}                        // by the caller, before the threads start

    // The input it could take prepared from the group before it.
    virtual std::optional<Handover> wants() const { return std::nullopt; }
    // Whether it leaves the value prepared where there are many tokens, and nowhere else then.
    virtual bool gives(const Handover& /*handover*/) { return false; }
    // The group before it does.
    virtual void takes() {}
};

// Throws std::invalid_argument, naming the instr, when these do not form a group. The instrs must outlive it.
// `index`: among the groups of its program.
std::unique_ptr<Group> make_group(Frame& frame, std::span<const Instr> instrs, size_t index);

std::unique_ptr<Group> make_row_group(Frame& frame, std::span<const Instr> instrs);
std::unique_ptr<Group> make_linear_group(Frame& frame, std::span<const Instr> instrs, int32_t slot);
std::unique_ptr<Group> make_attention_group(Frame& frame, std::span<const Instr> instrs);

}  // namespace twostroke
