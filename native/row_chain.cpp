#include "row_chain.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace twostroke {

RowChain::RowChain(const Frame& frame, std::span<const Instr> instrs) : frame_(frame) {
    for (const Instr& instr : instrs) {
        Link link{&instr, {}, {-1, -1}};
        for (int32_t value : instr.inputs) link.inputs.push_back({value, slot_of(value)});
        if (!instr.outputs.empty()) link.output = {instr.outputs[0], num_slots_++};
        check_axis(link);
        links_.push_back(std::move(link));
        for (int32_t value : instr.outputs)
            slot_stride_ = std::max(slot_stride_, round_up(frame.values[value].width, 16));
    }
}

// One row index for the whole chain: only a select may cross, from a value of another group.
void RowChain::check_axis(const Link& link) const {
    const auto fail = [&](const char* why) { throw std::invalid_argument(link.instr->name + ": " + why); };
    if (link.instr->op == Op::select && link.inputs[0].slot >= 0)
        fail("selects from a value of its own group");
    const Axis axis = frame_.values[link.output.value >= 0 ? link.output.value : link.inputs[0].value].axis;
    for (const Link& other : links_)
        if (other.output.value >= 0 && frame_.values[other.output.value].axis != axis)
            fail("is on another axis than the row ops before it in its group");
}

bool RowChain::accepts(Op op) { return op != Op::linear && op != Op::logits && op != Op::attend; }

int32_t RowChain::slot_of(int32_t value) const {
    for (const Link& link : links_)
        if (link.output.value == value) return link.output.slot;
    return -1;
}

float* RowChain::at(Place place, int32_t index, bool publish, float* scratch) const {
    const bool is_own = place.slot >= 0;
    if (is_own && (!publish || frame_.values[place.value].offset == kLocal))
        return scratch + place.slot * static_cast<size_t>(slot_stride_);
    return frame_.place(place.value, index);
}

const float* RowChain::find(int32_t value, int32_t index, bool publish, float* scratch) const {
    return at({value, slot_of(value)}, index, publish, scratch);
}

void RowChain::run(int32_t index, bool publish, float* scratch) const {
    for (const Link& link : links_) run_link(link, index, publish, scratch);
}

void RowChain::run_link(const Link& link, int32_t index, bool publish, float* scratch) const {
    const Instr& instr = *link.instr;
    const RowKernels& rows = *frame_.kernels.rows;
    const auto in = [&](int i) -> const float* { return at(link.inputs[i], index, publish, scratch); };
    if (instr.op == Op::kv_write) return write_kv(instr, index, in(0), in(1));

    const int32_t width = frame_.values[link.output.value].width;
    float* out = at(link.output, index, publish, scratch);
    switch (instr.op) {
        case Op::embed:
            frame_.kernels.unpack_row(instr.weights[0]->type, instr.weights[0]->data(),
                                      frame_.step.token_ids[index], width, out);
            break;
        case Op::rmsnorm:
            for (int32_t i = 0; i < width; i += instr.norm_group)
                rows.rmsnorm(in(0) + i, instr.vectors[0].data(), instr.norm_group, instr.eps, out + i);
            break;
        case Op::rope:
            rope(instr, index, in(0), out);
            break;
        case Op::glu:
            rows.glu(instr.activation, in(0), in(1), width, out, {});
            break;
        case Op::add:
            rows.add(in(0), in(1), width, out, {});
            break;
        case Op::scale:
            rows.scale(in(0), width, instr.factor, out, {});
            break;
        case Op::softcap:
            rows.softcap(in(0), width, instr.cap, out, {});
            break;
        case Op::select:
            std::memcpy(out, at(link.inputs[0], frame_.step.selected[index], publish, scratch),
                        width * sizeof(float));
            break;
        default:
            break;  // kv_write is done above; accepts() keeps the others out
    }
}

void RowChain::rope(const Instr& instr, int32_t index, const float* x, float* out) const {
    const Angles& angles = frame_.angles[instr.table];
    const size_t offset = static_cast<size_t>(index) * angles.half;
    for (int32_t head = 0; head < instr.num_heads; ++head)
        frame_.kernels.rows->rope(x + head * instr.head_dim, angles.cos + offset, angles.sin + offset,
                                  instr.head_dim, instr.rotary_dim, instr.style, out + head * instr.head_dim);
}

void RowChain::write_kv(const Instr& instr, int32_t index, const float* k, const float* v) const {
    const KVStore& store = frame_.store;
    const BlockTable& table = frame_.step.tables[instr.group];
    const int32_t pos = frame_.token_pos[index];
    const int32_t block = table.blocks[static_cast<size_t>(frame_.token_row[index]) * table.max_blocks +
                                       pos / store.block_size()];
    for (int32_t head = 0; head < instr.num_kv_heads; ++head)
        frame_.kernels.attention->write_kv(store.precision(), k + head * instr.head_dim,
                                           v + head * instr.head_dim, instr.head_dim, pos % kUnitTokens,
                                           store.unit(instr.group, block, instr.layer, head, pos));
}

}  // namespace twostroke
