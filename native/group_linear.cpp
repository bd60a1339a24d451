#include <algorithm>
#include <limits>
#include <stdexcept>

#include "group.h"
#include "row_chain.h"

namespace twostroke {
namespace {

// Tokens swept with one pass over a thread's panels: their int8 input (K <= 2048) stays in half of L2.
constexpr int32_t kTokenBlock = 128;
// Many tokens are shared out among threads, not panels: what a thread computes it reads itself in the phases
// to come, from its own caches. Shares of fewer tokens would read the weights too often.
constexpr int32_t kMinShareTokens = 16;
// Pieces a thread's share is cut into, so that a late thread's rest can be taken over.
constexpr int32_t kPiecesPerThread = 12;

// [row ops] -> prepare -> one linear or logits -> [element-wise ops on its outputs, panel by panel].
//
// The last value of many tokens may go to the next group as that one's prepared input, each panel one block
// of it; a group whose input comes so begins with its products.
class LinearGroup : public Group {
  public:
    LinearGroup(Frame& frame, std::span<const Instr> instrs, size_t linear, int32_t slot)
        : frame_(frame),
          linear_(instrs[linear]),
          chain_(frame, instrs.first(linear)),
          axis_(frame.values[linear_.outputs[0]].axis),
          needs_(Prepared::needs_of(linear_.weights)),
          slot_(slot) {
        for (const Instr& instr : instrs.first(linear))
            if (frame.values[instr.outputs[0]].axis != axis_)
                throw std::invalid_argument(instr.name + ": is on another axis than the linear of its group");
        for (int32_t value : linear_.outputs) outputs_.push_back(add_result(value));
        for (const Instr& instr : instrs.subspan(linear + 1)) add_epilogue(instr);
        if (linear_.op == Op::logits) logits_tile_ = num_tiles_++;
        cut_segments();
        piece_ = std::max(1, num_panels_ / (frame.num_threads * kPiecesPerThread));
        num_pieces_ = (num_panels_ + piece_ - 1) / piece_;
    }

    size_t scratch_bytes() const override {
        Carver carver(nullptr);
        carve(carver);
        return carver.used();
    }

    size_t shared_bytes() const override {
        Carver carver(nullptr);
        Prepared(needs_, frame_.limits.max_tokens, carver);
        return carver.used();
    }

    std::vector<Stretch> first_reads(int worker) const override;

    std::optional<Handover> wants() const override {
        if (!chain_.is_empty() || !Prepared::takes_columns(needs_)) return std::nullopt;
        return Handover{linear_.inputs[0], needs_, slot_};
    }
    bool gives(const Handover& handover) override {
        if (epilogues_.empty() || epilogues_.back().output.value != handover.value) return false;
        const Place& input = epilogues_.back().inputs.front();
        handover_tile_ = input.tile >= 0 ? input.tile : num_tiles_++;
        handover_ = handover;
        return true;
    }
    void takes() override { is_given_ = true; }

    void run(Worker& worker, ReadAhead& ahead) const override;

  private:
    // A place for one panel of a value: a tile of the thread's scratch, or the value's own columns.
    struct Place {
        int32_t value;
        int32_t tile;  // -1: in the arena or the logits, or among those to hand on
    };
    struct Columns {
        float* base;
        size_t stride;
    };
    struct Epilogue {
        const Instr* instr;
        std::vector<Place> inputs;
        Place output;
    };
    // Weights whose panels of one number are computed together, as an epilogue joins them.
    struct Segment {
        int32_t first_weight;
        int32_t num_weights;
        int32_t first_panel;
        int32_t num_panels;
    };
    struct Scratch {
        int worker;
        float* chain;
        float* tiles;
        void* kernel;
        uint8_t* put;
        float* logits;  // of the panel at hand, where they are handed on
        Prepared own;
        std::optional<Prepared> next;
    };

    Scratch carve(Carver& carver, int worker = 0) const {
        float* chain = carver.take<float>(chain_.scratch_floats());
        float* tiles = carver.take<float>(static_cast<size_t>(num_tiles_) * kTokenBlock * kPanelRows);
        void* kernel = carver.take<uint8_t>(kLinearScratchBytes);
        auto* put = carver.take<uint8_t>(Prepared::put_bytes(static_cast<size_t>(kTokenBlock) * kPanelRows));
        return {worker,      chain, tiles, kernel, put, nullptr, Prepared(needs_, kRedundantTokens, carver),
                std::nullopt};
    }

    // Of all tokens, in memory all threads see.
    Prepared shared_prepared(const Prepared::Needs& needs, int32_t slot) const {
        Carver carver(frame_.shared[slot].as<uint8_t>());
        return Prepared(needs, frame_.limits.max_tokens, carver);
    }

    Place add_result(int32_t value) {
        const bool is_local = frame_.values[value].offset == kLocal;
        results_.push_back({value, is_local ? num_tiles_++ : -1});
        return results_.back();
    }

    Place find(int32_t value) const {
        for (const Place& place : results_)
            if (place.value == value) return place;
        return {value, -1};
    }

    void add_epilogue(const Instr& instr) {
        if (instr.op != Op::add && instr.op != Op::glu && instr.op != Op::scale && instr.op != Op::softcap)
            throw std::invalid_argument(instr.name + ": " + op_name(instr.op) +
                                        " cannot follow a linear in its group");
        Epilogue epilogue{&instr, {}, {}};
        for (int32_t value : instr.inputs) {
            if (chain_.produces(value) ||
                frame_.values[value].width != frame_.values[linear_.outputs[0]].width)
                throw std::invalid_argument(instr.name + ": its inputs do not match the linear's outputs");
            epilogue.inputs.push_back(find(value));
        }
        epilogue.output = add_result(instr.outputs[0]);
        epilogues_.push_back(std::move(epilogue));
    }

    void cut_segments() {
        const auto count = static_cast<int32_t>(linear_.weights.size());
        for (int32_t i = 0; i < count;) {
            int32_t joined = 1;
            while (!epilogues_.empty() && i + joined < count) ++joined;
            if (joined > 1)
                for (const Weight* weight : linear_.weights)
                    if (weight->rows != linear_.weights[0]->rows)
                        throw std::invalid_argument(linear_.name + ": joined weights must have equal rows");
            segments_.push_back({i, joined, num_panels_, linear_.weights[i]->num_panels});
            num_panels_ += linear_.weights[i]->num_panels;
            i += joined;
        }
    }

    const Segment& segment_of(int32_t panel) const {
        size_t index = 0;
        while (panel >= segments_[index].first_panel + segments_[index].num_panels) ++index;
        return segments_[index];
    }

    void prepare_row(const Prepared& prepared, int32_t index, bool publish, float* scratch) const {
        chain_.run(index, publish, scratch);
        prepared.fill(frame_.kernels, chain_.find(linear_.inputs[0], index, publish, scratch), index);
    }

    float* tile_at(float* tiles, int32_t tile) const {
        return tiles + static_cast<size_t>(tile) * kTokenBlock * kPanelRows;
    }

    // Of panels that wait in one tile.
    float* held_logits(const Scratch& scratch, int32_t index, int32_t num_tokens) const {
        return tile_at(scratch.tiles, logits_tile_) + static_cast<size_t>(index) * num_tokens * kPanelRows;
    }

    Columns columns(Place place, int32_t first_token, int32_t column, const Scratch& scratch) const {
        if (place.tile >= 0) return {tile_at(scratch.tiles, place.tile), kPanelRows};
        if (scratch.logits != nullptr && frame_.values[place.value].offset == kInLogits)
            return {scratch.logits, kPanelRows};
        return {frame_.place(place.value, first_token) + column,
                static_cast<size_t>(frame_.values[place.value].stride)};
    }

    void run_panel(int32_t panel, int32_t first_token, int32_t num_tokens, const Activations& in,
                   const Scratch& scratch) const;
    bool is_wanted(int32_t panel) const {
        const StepInput& step = frame_.step;
        if (linear_.op != Op::logits || step.wanted == nullptr) return true;
        return panel < step.num_wanted_words && step.wanted[panel] != 0;
    }
    void leave_out(int32_t panel, int32_t first_token, int32_t num_tokens, const Scratch& scratch) const;
    void hand_on(int32_t first_panel, int32_t num_panels, int32_t first_token, int32_t num_tokens,
                 const Scratch& scratch) const;
    void run_epilogue(const Epilogue& epilogue, Place output, int32_t first_token, int32_t num_tokens,
                      int32_t column, int32_t width, const Scratch& scratch) const;

    const Frame& frame_;
    const Instr& linear_;
    const RowChain chain_;
    const Axis axis_;
    const Prepared::Needs needs_;
    const int32_t slot_;  // of Frame::shared, for its prepared input
    bool is_given_ = false;
    std::optional<Handover> handover_;  // of its last value
    int32_t handover_tile_ = -1;        // where a panel of it waits
    std::vector<Place> results_;
    std::vector<Place> outputs_;  // per weight
    std::vector<Epilogue> epilogues_;
    std::vector<Segment> segments_;
    int32_t num_tiles_ = 0;
    int32_t logits_tile_ = -1;  // of a head: logits that are handed on
    int32_t num_panels_ = 0;
    int32_t piece_ = 1;  // panels a thread claims at once
    int32_t num_pieces_ = 0;
};

// As for_each shares pieces out.
std::vector<Stretch> LinearGroup::first_reads(int worker) const {
    const int32_t first = piece_ * static_cast<int32_t>(int64_t{num_pieces_} * worker / frame_.num_threads);
    std::vector<Stretch> stretches;
    size_t left = ReadAhead::kMostBytes;
    for (int32_t panel = first; panel < num_panels_ && left > 0; ++panel) {
        const Segment& segment = segment_of(panel);
        for (int32_t i = segment.first_weight; i < segment.first_weight + segment.num_weights; ++i) {
            const Weight& weight = *linear_.weights[i];
            const size_t num_bytes = std::min(left, weight.panel_bytes);
            if (num_bytes > 0) stretches.push_back({weight.panel(panel - segment.first_panel), num_bytes});
            left -= num_bytes;
        }
    }
    return stretches;
}

void LinearGroup::run(Worker& worker, ReadAhead& ahead) const {
    const int32_t num_tokens = frame_.count(axis_);
    if (num_tokens == 0) return ahead.next_phase();
    for (int i = 0; i < ReadAhead::kPullsBeforePrepare; ++i) ahead.pull();
    Carver own(frame_.scratch[worker.index()].as<uint8_t>());
    Scratch scratch = carve(own, worker.index());
    const bool is_redundant = num_tokens <= kRedundantTokens;
    if (handover_ && !is_redundant) scratch.next = shared_prepared(handover_->needs, handover_->slot);
    const Prepared prepared = is_redundant ? scratch.own : shared_prepared(needs_, slot_);
    if (is_redundant) {
        for (int32_t index = 0; index < num_tokens; ++index)
            prepare_row(prepared, index, worker.index() == 0, scratch.chain);
    } else if (!is_given_) {
        worker.for_each(num_tokens,
                        [&](int32_t index) { prepare_row(prepared, index, true, scratch.chain); });
        worker.barrier([&] { return ahead.pull(); });
    }

    const int32_t num_shares = std::clamp(num_tokens / kMinShareTokens, 1, worker.count());
    const int32_t num_blocks = (num_tokens / num_shares + kTokenBlock) / kTokenBlock;
    worker.for_each(num_shares * num_pieces_, num_blocks, [&](int32_t item, int32_t block) {
        const int32_t share = item / num_pieces_, index = item % num_pieces_;
        const int32_t first = num_tokens * share / num_shares + block * kTokenBlock;
        const int32_t count = std::min(kTokenBlock, num_tokens * (share + 1) / num_shares - first);
        if (count <= 0) return;
        const Activations in = prepared.from(first);
        const bool hands_on = linear_.op == Op::logits && frame_.step.candidates != nullptr;
        // Of few tokens many panels are handed on at once: a look at each would hold up the reading of
        // weights.
        const int32_t batch = hands_on ? kTokenBlock / count : num_panels_;
        const int32_t end = std::min(num_panels_, (index + 1) * piece_);
        for (int32_t begin = index * piece_; begin < end; begin += batch) {
            const int32_t size = std::min(batch, end - begin);
            for (int32_t panel = begin; panel < begin + size; ++panel) {
                if (hands_on) scratch.logits = held_logits(scratch, panel - begin, count);
                if (is_wanted(panel))
                    run_panel(panel, first, count, in, scratch);
                else
                    leave_out(panel, first, count, scratch);
            }
            if (hands_on) hand_on(begin, size, first, count, scratch);
        }
    });
    ahead.next_phase();
    worker.barrier([&] { return ahead.pull(); });
}

void LinearGroup::run_panel(int32_t panel, int32_t first_token, int32_t num_tokens, const Activations& in,
                            const Scratch& scratch) const {
    const Segment& segment = segment_of(panel);
    const int32_t local_panel = panel - segment.first_panel;
    const int32_t column = local_panel * kPanelRows;
    const int32_t width = std::min(kPanelRows, linear_.weights[segment.first_weight]->rows - column);
    for (int32_t i = segment.first_weight; i < segment.first_weight + segment.num_weights; ++i) {
        const Weight& weight = *linear_.weights[i];
        const Columns out = columns(outputs_[i], first_token, column, scratch);
        frame_.kernels.linear[static_cast<int32_t>(weight.type)](weight.panel(local_panel), weight.cols, in,
                                                                 num_tokens, out.base, out.stride, width,
                                                                 scratch.kernel);
        if (linear_.vectors.empty() || linear_.vectors[i].empty()) continue;
        frame_.kernels.rows->add(out.base, linear_.vectors[i].data() + column, width, out.base,
                                 {num_tokens, out.stride, 0, out.stride});
    }
    for (const Epilogue& epilogue : epilogues_) {
        const bool waits = scratch.next && &epilogue == &epilogues_.back();
        const Place output = {epilogue.output.value, waits ? handover_tile_ : epilogue.output.tile};
        run_epilogue(epilogue, output, first_token, num_tokens, column, width, scratch);
        if (waits)
            scratch.next->put(frame_.kernels, columns(output, first_token, column, scratch).base, num_tokens,
                              kPanelRows, first_token, column, scratch.put);
    }
}

// Nothing of it is read: no row draws one of its tokens.
void LinearGroup::leave_out(int32_t panel, int32_t first_token, int32_t num_tokens,
                            const Scratch& scratch) const {
    const int32_t column = panel * kPanelRows;
    const int32_t width = std::min(kPanelRows, linear_.weights[0]->rows - column);
    for (const Place& place : results_) {
        if (place.tile >= 0) continue;
        const Columns out = columns(place, first_token, column, scratch);
        for (int32_t t = 0; t < num_tokens; ++t)
            std::fill_n(out.base + t * out.stride, width, -std::numeric_limits<float>::infinity());
    }
}

// While panels are in the nearest cache: candidates take what they want of them, and rows that want all their
// logits get them.
void LinearGroup::hand_on(int32_t first_panel, int32_t num_panels, int32_t first_token, int32_t num_tokens,
                          const Scratch& scratch) const {
    const StepInput& step = frame_.step;
    for (int32_t i = 0; i < num_panels; ++i) {
        const int32_t panel = first_panel + i, column = panel * kPanelRows;
        const float* logits = held_logits(scratch, i, num_tokens);
        step.candidates->take(*frame_.kernels.sample, scratch.worker, panel, first_token, num_tokens, logits);
        const int32_t width = std::min(kPanelRows, linear_.weights[0]->rows - column);
        for (const int32_t row : step.candidates->whole_rows())
            if (first_token <= row && row < first_token + num_tokens)
                std::copy_n(logits + (row - first_token) * kPanelRows, width,
                            step.logits + static_cast<size_t>(row) * frame_.limits.output_width + column);
    }
}

void LinearGroup::run_epilogue(const Epilogue& epilogue, Place output, int32_t first_token,
                               int32_t num_tokens, int32_t column, int32_t width,
                               const Scratch& scratch) const {
    const Instr& instr = *epilogue.instr;
    const RowKernels& rows = *frame_.kernels.rows;
    const Columns a = columns(epilogue.inputs.front(), first_token, column, scratch);
    const Columns b = columns(epilogue.inputs.back(), first_token, column, scratch);
    const Columns out = columns(output, first_token, column, scratch);
    const Runs runs = {num_tokens, a.stride, b.stride, out.stride};
    if (instr.op == Op::add) rows.add(a.base, b.base, width, out.base, runs);
    if (instr.op == Op::glu) rows.glu(instr.activation, a.base, b.base, width, out.base, runs);
    if (instr.op == Op::scale) rows.scale(a.base, width, instr.factor, out.base, runs);
    if (instr.op == Op::softcap) rows.softcap(a.base, width, instr.cap, out.base, runs);
}

}  // namespace

std::unique_ptr<Group> make_linear_group(Frame& frame, std::span<const Instr> instrs, int32_t slot) {
    size_t linear = 0;
    while (RowChain::accepts(instrs[linear].op)) {
        if (instrs[linear].op == Op::kv_write)
            throw std::invalid_argument(instrs[linear].name +
                                        ": kv_write cannot precede a linear in its group");
        ++linear;
    }
    return std::make_unique<LinearGroup>(frame, instrs, linear, slot);
}

}  // namespace twostroke
