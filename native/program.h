// A program bound to kernels, weights, threads and a KV store. Built once, instr by instr; then one call per
// step.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frame.h"
#include "group.h"
#include "pool.h"

namespace twostroke {

// What `add` takes for an instr; integers and floats in the order of enum Op's comments.
struct InstrSpec {
    std::string op;
    std::string name;
    std::vector<int32_t> inputs;
    std::vector<int32_t> outputs;
    std::vector<const Weight*> weights;
    std::vector<std::vector<float>> vectors;
    std::vector<int64_t> ints;
    std::vector<double> floats;
};

class Program {
  public:
    // The pool and the store must outlive the program.
    Program(Pool& pool, KVStore& store, const KernelTable& kernels, const Limits& limits,
            std::vector<Value> values, std::vector<RopeTable> rope_tables);

    // Throws std::invalid_argument, naming the instr, when ids, shapes or attributes do not fit together.
    // Weights must outlive the program.
    void add(const InstrSpec& spec);
    // Closes the program: groups are ranges [first, last) of instrs, one after the other. Allocates
    // everything.
    void finish(const std::vector<std::pair<int32_t, int32_t>>& groups);

    // Runs one step. An empty string, or what is wrong with the input: then nothing has been written.
    std::string step(const StepInput& input, int num_workers);

    // What a thread reads first in every phase that reads weights; there is one when the program is finished.
    const ReadPlan& first_reads(int32_t worker) const { return read_plans_[worker]; }
    int32_t num_read_plans() const { return static_cast<int32_t>(read_plans_.size()); }
    const Limits& limits() const { return frame_.limits; }
    // Whether a step may ask for candidates: nothing comes after the phase of the head.
    bool brings_candidates() const { return brings_candidates_; }
    size_t memory_bytes() const;
    // Groups that find their input prepared by the group before.
    int32_t num_handovers() const { return num_handovers_; }

  private:
    void find_selected();
    void hand_over();
    void check_reads(int32_t first, int32_t last) const;
    void allocate();
    void plan_reads();
    std::string check(const StepInput& input) const;
    std::string check_candidates(const StepInput& input) const;
    std::string check_row(const StepInput& input, int32_t row) const;
    std::string check_blocks(const StepInput& input, int32_t row, int32_t group) const;
    void begin_step(const StepInput& input);
    void fill_angles(const Worker& worker);

    Pool& pool_;
    Frame frame_;
    std::vector<Instr> instrs_;
    std::vector<std::unique_ptr<Group>> groups_;
    int32_t num_handovers_ = 0;
    bool brings_candidates_ = false;
    std::vector<ReadPlan> read_plans_;  // per thread
    std::vector<int32_t> windows_;      // per KV group: the widest any attend looks back
};

}  // namespace twostroke
