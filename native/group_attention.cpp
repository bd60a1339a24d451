#include <algorithm>
#include <atomic>
#include <climits>
#include <cmath>
#include <stdexcept>

#include "attention_plan.h"
#include "group.h"

namespace twostroke {
namespace {

// Norms, rope and scales that turn one value into the input of attend or kv_write, head by head.
class HeadChain {
  public:
    HeadChain(const Frame& frame, std::span<const Instr> instrs, int32_t value)
        : frame_(frame), source_(value) {
        for (bool found = true; found;) {
            found = false;
            for (const Instr& instr : instrs)
                if (!instr.outputs.empty() && instr.outputs[0] == source_) {
                    links_.insert(links_.begin(), &instr);
                    source_ = instr.inputs[0];
                    found = true;
                }
        }
    }

    size_t size() const { return links_.size(); }

    // The head's elements for a token; `buffer` is used when something has to be computed.
    const float* run(int32_t token, int32_t head, int32_t head_dim, float* buffer) const {
        const RowKernels& rows = *frame_.kernels.rows;
        const float* x = frame_.place(source_, token) + head * head_dim;
        for (const Instr* instr : links_) {
            if (instr->op == Op::rmsnorm)
                rows.rmsnorm(x, instr->vectors[0].data(), head_dim, instr->eps, buffer);
            if (instr->op == Op::scale) rows.scale(x, head_dim, instr->factor, buffer, {});
            if (instr->op == Op::rope) {
                const Angles& angles = frame_.angles[instr->table];
                const size_t offset = static_cast<size_t>(token) * angles.half;
                rows.rope(x, angles.cos + offset, angles.sin + offset, head_dim, instr->rotary_dim,
                          instr->style, buffer);
            }
            x = buffer;
        }
        return x;
    }

  private:
    const Frame& frame_;
    int32_t source_;
    std::vector<const Instr*> links_;
};

const Instr* find_op(std::span<const Instr> instrs, Op op) {
    for (const Instr& instr : instrs)
        if (instr.op == op) return &instr;
    return nullptr;
}

// attend, with the kv_write and the head-wise ops before it when they are in its group.
//
// When every row is one tile, the thread that attends a row's kv head writes its K and V first; otherwise
// all K and V are written before all threads meet once more.
class AttentionGroup : public Group {
  public:
    AttentionGroup(Frame& frame, std::span<const Instr> instrs, const Instr& attend, const Instr* write)
        : frame_(frame),
          attend_(attend),
          write_(write),
          q_(frame, instrs, attend.inputs[0]),
          k_(frame, instrs, write != nullptr ? write->inputs[0] : attend.inputs[0]),
          v_(frame, instrs, write != nullptr ? write->inputs[1] : attend.inputs[0]),
          heads_(attend.num_heads / attend.num_kv_heads),
          tile_rows_(AttentionPlan::tile_tokens(heads_) * heads_),
          window_(attend.window > 0 ? attend.window : INT_MAX),
          plan_(frame, attend.num_kv_heads, heads_, window_) {
        const size_t chained = q_.size() + (write != nullptr ? k_.size() + v_.size() + 1 : 0) + 1;
        if (chained != instrs.size())
            throw std::invalid_argument(attend.name + ": its group holds instrs that do not lead to it");
        check(instrs);
        done_ = std::vector<std::atomic<int32_t>>(static_cast<size_t>(plan_.max_split_entries()) *
                                                  attend.num_kv_heads);
    }

    size_t scratch_bytes() const override {
        Carver carver(nullptr);
        carve(carver);
        return carver.used();
    }

    size_t partial_bytes() const override {
        Carver carver(nullptr);
        carve_partial(carver, split_rows());
        return carver.used() * plan_.max_split_entries() * plan_.max_chunks() * attend_.num_kv_heads;
    }

    void begin_step() override { plan_.begin_step(); }
    bool gives(const Handover& handover) override {
        if (attend_.outputs[0] != handover.value || attend_.head_dim % kBlock != 0) return false;
        handover_ = handover;
        return true;
    }
    void run(Worker& worker, ReadAhead& ahead) const override;

  private:
    struct Scratch {
        float* head;  // one head
        float* q;     // [tile rows][head_dim]
        PackedQueries packed;
        uint8_t* kernel;
        Partial total;
        Partial chunk;
        uint8_t* put;
        std::optional<Prepared> next;
    };

    // A chunk of the keys of an entry's kv head.
    struct Place {
        int32_t entry;  // none: -1
        int32_t kv_head;
        int32_t chunk;
    };

    int32_t split_rows() const { return AttentionPlan::kSplitTokens * heads_; }

    Partial carve_partial(Carver& carver, int32_t rows) const {
        float* max = carver.take<float>(rows);
        float* sum = carver.take<float>(rows);
        return {max, sum, carver.take<float>(static_cast<size_t>(rows) * partial_stride(attend_.head_dim))};
    }

    Scratch carve(Carver& carver) const {
        const auto elements = static_cast<size_t>(tile_rows_) * attend_.head_dim;
        Scratch scratch;
        scratch.head = carver.take<float>(attend_.head_dim);
        scratch.q = carver.take<float>(elements);
        scratch.packed.q = carver.take<float>(elements);
        scratch.packed.scale = carver.take<float>(tile_rows_);
        scratch.packed.sum = carver.take<int32_t>(tile_rows_);
        scratch.kernel = carver.take<uint8_t>(attend_scratch_bytes(tile_rows_));
        scratch.total = carve_partial(carver, tile_rows_);
        scratch.chunk = carve_partial(carver, tile_rows_);
        scratch.put = carver.take<uint8_t>(Prepared::put_bytes(elements));
        return scratch;
    }

    // The partial of a split item, in memory all threads see.
    Partial shared_partial(int32_t item, int32_t kv_head) const {
        Carver size(nullptr);
        carve_partial(size, split_rows());
        const size_t index = static_cast<size_t>(item) * attend_.num_kv_heads + kv_head;
        Carver carver(frame_.partials.as<uint8_t>() + index * size.used());
        return carve_partial(carver, split_rows());
    }

    void check(std::span<const Instr> instrs) const;
    void write_token(int32_t token, int32_t kv_head, float* buffer_k, float* buffer_v) const;
    void write_entry(const AttendEntry& entry, int32_t kv_head, int32_t first_pos, int32_t end_pos,
                     const Scratch& scratch) const;
    QueryTile load_queries(const AttendEntry& entry, int32_t kv_head, const Scratch& scratch) const;
    Place place_of(int32_t item) const;
    void find_units(const Place& place, const uint8_t** units) const;
    void attend_chunk(const Place& place, const Place& next, QueryTile& tile, const Scratch& scratch,
                      const Partial& partial) const;
    void store(const AttendEntry& entry, int32_t kv_head, const Partial& total, const Scratch& scratch) const;
    bool is_read(const AttendEntry& entry) const;
    void run_entry(int32_t item, const Scratch& scratch) const;
    void run_split(int32_t item, const Scratch& scratch) const;

    const Frame& frame_;
    const Instr& attend_;
    const Instr* write_;
    const HeadChain q_, k_, v_;
    const int32_t heads_;
    const int32_t tile_rows_;
    const int32_t window_;
    std::optional<Handover> handover_;  // of its output
    AttentionPlan plan_;
    mutable std::vector<std::atomic<int32_t>>
        done_;  // chunks of (entry, kv head) that are done; 0 between steps
};

void AttentionGroup::check(std::span<const Instr> instrs) const {
    for (const Instr& instr : instrs) {
        const auto fail = [&](const char* why) { throw std::invalid_argument(instr.name + ": " + why); };
        if (instr.op == Op::rmsnorm && instr.norm_group != attend_.head_dim)
            fail("a norm beside attend must work on heads");
        if (instr.op == Op::rope && instr.head_dim != attend_.head_dim)
            fail("head_dim differs from attend's");
        if (instr.op == Op::kv_write && (instr.group != attend_.group || instr.layer != attend_.layer))
            fail("writes another layer than attend reads");
        const bool is_known = instr.op == Op::rmsnorm || instr.op == Op::rope || instr.op == Op::scale ||
                              instr.op == Op::kv_write || instr.op == Op::attend;
        if (!is_known) fail("cannot be in a group with attend");
        for (int32_t value : instr.outputs)
            if (instr.op != Op::attend && frame_.values[value].offset != kLocal)
                fail("its output is read outside the group of attend");
    }
}

void AttentionGroup::run(Worker& worker, ReadAhead& ahead) const {
    Carver carver(frame_.scratch[worker.index()].as<uint8_t>());
    Scratch scratch = carve(carver);
    if (handover_ && frame_.step.num_tokens > kRedundantTokens) {
        Carver common(frame_.shared[handover_->slot].as<uint8_t>());
        scratch.next = Prepared(handover_->needs, frame_.limits.max_tokens, common);
    }
    const int32_t kv_heads = attend_.num_kv_heads;
    if (write_ != nullptr && !plan_.writes_inline()) {
        worker.for_each(frame_.step.num_tokens, [&](int32_t token) {
            for (int32_t head = 0; head < kv_heads; ++head) write_token(token, head, scratch.head, scratch.q);
        });
        worker.barrier([&] { return ahead.pull(); });
    }
    worker.for_each(plan_.num_items() * kv_heads, [&](int32_t item) {
        if (plan_.is_split())
            run_split(item, scratch);
        else
            run_entry(item, scratch);
    });
    worker.barrier([&] { return ahead.pull(); });
}

void AttentionGroup::write_token(int32_t token, int32_t kv_head, float* buffer_k, float* buffer_v) const {
    const BlockTable& table = frame_.step.tables[attend_.group];
    const KVStore& kv = frame_.store;
    const int32_t pos = frame_.token_pos[token];
    const int32_t block =
        table.blocks[static_cast<size_t>(frame_.token_row[token]) * table.max_blocks + pos / kv.block_size()];
    const float* k = k_.run(token, kv_head, attend_.head_dim, buffer_k);
    const float* v = v_.run(token, kv_head, attend_.head_dim, buffer_v);
    frame_.kernels.attention->write_kv(kv.precision(), k, v, attend_.head_dim, pos % kUnitTokens,
                                       kv.unit(attend_.group, block, attend_.layer, kv_head, pos));
}

// The tokens of an entry at positions [first_pos, end_pos), if writing is left to whoever attends them.
void AttentionGroup::write_entry(const AttendEntry& entry, int32_t kv_head, int32_t first_pos,
                                 int32_t end_pos, const Scratch& scratch) const {
    if (write_ == nullptr || !plan_.writes_inline()) return;
    const int32_t first = std::max(0, first_pos - entry.first_pos);
    const int32_t end = std::min(entry.num_tokens, end_pos - entry.first_pos);
    for (int32_t i = first; i < end; ++i) write_token(entry.token + i, kv_head, scratch.head, scratch.q);
}

QueryTile AttentionGroup::load_queries(const AttendEntry& entry, int32_t kv_head,
                                       const Scratch& scratch) const {
    const int32_t head_dim = attend_.head_dim;
    for (int32_t row = 0; row < entry.num_tokens * heads_; ++row) {
        float* to = scratch.q + static_cast<size_t>(row) * head_dim;
        const float* from = q_.run(entry.token + row / heads_, kv_head * heads_ + row % heads_, head_dim, to);
        if (from != to) std::copy_n(from, head_dim, to);
    }
    frame_.kernels.attention->pack_queries(frame_.store.precision(), scratch.q, entry.num_tokens * heads_,
                                           head_dim, scratch.packed);
    return {scratch.packed.q,
            scratch.packed.scale,
            scratch.packed.sum,
            entry.num_tokens,
            heads_,
            head_dim,
            entry.first_pos,
            window_,
            attend_.scale,
            attend_.softcap,
            nullptr};
}

// Where an item of the list begins: a chunk where chunks are shared out, else a whole entry; none beyond the
// list.
AttentionGroup::Place AttentionGroup::place_of(int32_t item) const {
    const int32_t index = item / attend_.num_kv_heads;
    if (index >= plan_.num_items()) return {-1, 0, 0};
    const auto [entry, chunk] = plan_.item(index);
    return {entry, item % attend_.num_kv_heads, chunk};
}

void AttentionGroup::find_units(const Place& place, const uint8_t** units) const {
    const AttendEntry& entry = plan_.entry(place.entry);
    const BlockTable& table = frame_.step.tables[attend_.group];
    const int32_t* blocks = table.blocks + static_cast<size_t>(entry.row) * table.max_blocks;
    const int32_t first_key = std::max(0, entry.first_pos - window_ + 1);
    const int32_t end_key = entry.first_pos + entry.num_tokens;
    for (int32_t i = 0; i < kChunkUnits; ++i) {
        const int32_t pos = place.chunk * kChunk + i * kUnitTokens;
        units[i] = pos + kUnitTokens <= first_key || pos >= end_key
                       ? nullptr
                       : frame_.store.unit(attend_.group, blocks[pos / frame_.store.block_size()],
                                           attend_.layer, place.kv_head, pos);
    }
}

// `next` is what this thread attends after it, most likely: its keys are asked for early.
void AttentionGroup::attend_chunk(const Place& place, const Place& next, QueryTile& tile,
                                  const Scratch& scratch, const Partial& partial) const {
    const uint8_t* units[kChunkUnits];
    const uint8_t* next_units[kChunkUnits];
    find_units(place, units);
    tile.next_units = nullptr;
    if (next.entry >= 0) {
        find_units(next, next_units);
        tile.next_units = next_units;
    }
    frame_.kernels.attention->attend_chunk(frame_.store.precision(), tile, place.chunk * kChunk, units,
                                           scratch.kernel, partial);
}

void AttentionGroup::store(const AttendEntry& entry, int32_t kv_head, const Partial& total,
                           const Scratch& scratch) const {
    const int32_t head_dim = attend_.head_dim, columns = heads_ * head_dim;
    for (int32_t row = 0; row < entry.num_tokens * heads_; ++row) {
        float* out = scratch.next ? total.out + static_cast<size_t>(row) * head_dim
                                  : frame_.place(attend_.outputs[0], entry.token + row / heads_) +
                                        kv_head * columns + row % heads_ * head_dim;
        frame_.kernels.attention->finish(total, row, head_dim, out);
    }
    if (scratch.next)
        scratch.next->put(frame_.kernels, total.out, entry.num_tokens, columns, entry.token,
                          kv_head * columns, scratch.put);
}

// Behind the last attention only selected tokens go on.
bool AttentionGroup::is_read(const AttendEntry& entry) const {
    if (!frame_.values[attend_.outputs[0]].is_only_selected) return true;
    const int32_t* end = frame_.step.selected + frame_.step.num_selected;
    const int32_t* next = std::lower_bound(frame_.step.selected, end, entry.token);
    return next != end && *next < entry.token + entry.num_tokens;
}

void AttentionGroup::run_entry(int32_t item, const Scratch& scratch) const {
    Place place = place_of(item);
    const AttendEntry& entry = plan_.entry(place.entry);
    write_entry(entry, place.kv_head, entry.first_pos, entry.first_pos + entry.num_tokens, scratch);
    if (!is_read(entry)) return;
    QueryTile tile = load_queries(entry, place.kv_head, scratch);
    for (; place.chunk < entry.end_chunk; ++place.chunk) {
        const bool is_first = place.chunk == entry.first_chunk, is_last = place.chunk + 1 == entry.end_chunk;
        const Place next = is_last ? place_of(item + 1) : Place{place.entry, place.kv_head, place.chunk + 1};
        attend_chunk(place, next, tile, scratch, is_first ? scratch.total : scratch.chunk);
        if (!is_first)
            frame_.kernels.attention->fold(scratch.total, scratch.chunk, tile.num_rows(), attend_.head_dim);
    }
    store(entry, place.kv_head, scratch.total, scratch);
}

// One chunk of an entry; the thread that ends the last one folds them all, first to last.
void AttentionGroup::run_split(int32_t item, const Scratch& scratch) const {
    const Place place = place_of(item);
    const AttendEntry& entry = plan_.entry(place.entry);
    write_entry(entry, place.kv_head, place.chunk * kChunk, (place.chunk + 1) * kChunk, scratch);
    QueryTile tile = load_queries(entry, place.kv_head, scratch);
    const int32_t index = item / attend_.num_kv_heads;
    attend_chunk(place, place_of(item + 1), tile, scratch, shared_partial(index, place.kv_head));

    const int32_t num_chunks = entry.end_chunk - entry.first_chunk;
    std::atomic<int32_t>& done = done_[place.entry * attend_.num_kv_heads + place.kv_head];
    if (done.fetch_add(1, std::memory_order_acq_rel) + 1 < num_chunks) return;
    done.store(0, std::memory_order_relaxed);
    const int32_t first = index - (place.chunk - entry.first_chunk);
    const Partial total = shared_partial(first, place.kv_head);
    for (int32_t i = 1; i < num_chunks; ++i)
        frame_.kernels.attention->fold(total, shared_partial(first + i, place.kv_head), tile.num_rows(),
                                       attend_.head_dim);
    store(entry, place.kv_head, total, scratch);
}

}  // namespace

std::unique_ptr<Group> make_attention_group(Frame& frame, std::span<const Instr> instrs) {
    return std::make_unique<AttentionGroup>(frame, instrs, *find_op(instrs, Op::attend),
                                            find_op(instrs, Op::kv_write));
}

}  // namespace twostroke
