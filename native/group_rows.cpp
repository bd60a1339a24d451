#include <algorithm>

#include "group.h"
#include "row_chain.h"

namespace twostroke {
namespace {

// Row ops alone: tokens are split over the threads.
class RowGroup : public Group {
  public:
    RowGroup(Frame& frame, std::span<const Instr> instrs)
        : frame_(frame), chain_(frame, instrs), axis_(axis_of(frame, instrs)) {}

    size_t scratch_bytes() const override { return chain_.scratch_floats() * sizeof(float); }

    void run(Worker& worker, ReadAhead& ahead) const override {
        float* scratch = frame_.scratch[worker.index()].as<float>();
        worker.for_each(frame_.count(axis_), [&](int32_t index) { chain_.run(index, true, scratch); });
        worker.barrier([&] { return ahead.pull(); });
    }

  private:
    static Axis axis_of(const Frame& frame, std::span<const Instr> instrs) {
        const Instr& last = instrs.back();
        return frame.values[last.outputs.empty() ? last.inputs[0] : last.outputs[0]].axis;
    }

    const Frame& frame_;
    const RowChain chain_;
    const Axis axis_;
};

}  // namespace

std::unique_ptr<Group> make_row_group(Frame& frame, std::span<const Instr> instrs) {
    return std::make_unique<RowGroup>(frame, instrs);
}

std::unique_ptr<Group> make_group(Frame& frame, std::span<const Instr> instrs, size_t index) {
    const auto holds = [&](Op op) {
        return std::any_of(instrs.begin(), instrs.end(), [op](const Instr& instr) { return instr.op == op; });
    };
    if (holds(Op::attend)) return make_attention_group(frame, instrs);
    if (holds(Op::linear) || holds(Op::logits))
        return make_linear_group(frame, instrs, static_cast<int32_t>(index % 2));
    return make_row_group(frame, instrs);
}

}  // namespace twostroke
