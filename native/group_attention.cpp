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
            if (instr->op == Op::scale) rows.scale(x, head_dim, instr->factor, buffer);
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
// When every row fits one tile, the thread that attends a row's kv head writes its K and V first; otherwise
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
    void run(Worker& worker, ReadAhead& ahead) const override;

  private:
    struct Scratch {
        float* head;  // one head
        float* q;     // [tile rows][head_dim]
        PackedQueries packed;
        uint8_t* kernel;
        Partial total;
        Partial chunk;
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
    void attend_chunk(const AttendEntry& entry, const QueryTile& tile, int32_t kv_head, int32_t chunk,
                      const Scratch& scratch, const Partial& partial) const;
    void store(const AttendEntry& entry, int32_t kv_head, const Partial& total) const;
    void run_entry(const AttendEntry& entry, int32_t kv_head, const Scratch& scratch) const;
    void run_split(int32_t item, int32_t kv_head, const Scratch& scratch) const;

    const Frame& frame_;
    const Instr& attend_;
    const Instr* write_;
    const HeadChain q_, k_, v_;
    const int32_t heads_;
    const int32_t tile_rows_;
    const int32_t window_;
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
    const Scratch scratch = carve(carver);
    const int32_t kv_heads = attend_.num_kv_heads;
    if (write_ != nullptr && !plan_.writes_inline()) {
        worker.for_each(frame_.step.num_tokens, [&](int32_t token) {
            for (int32_t head = 0; head < kv_heads; ++head) write_token(token, head, scratch.head, scratch.q);
        });
        worker.barrier([&] { return ahead.pull(); });
    }
    if (plan_.is_split()) {
        worker.for_each(plan_.first_items().back() * kv_heads,
                        [&](int32_t index) { run_split(index / kv_heads, index % kv_heads, scratch); });
    } else {
        worker.for_each(static_cast<int32_t>(plan_.entries().size()) * kv_heads, [&](int32_t index) {
            run_entry(plan_.entries()[index / kv_heads], index % kv_heads, scratch);
        });
    }
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
            attend_.softcap};
}

void AttentionGroup::attend_chunk(const AttendEntry& entry, const QueryTile& tile, int32_t kv_head,
                                  int32_t chunk, const Scratch& scratch, const Partial& partial) const {
    const BlockTable& table = frame_.step.tables[attend_.group];
    const int32_t* blocks = table.blocks + static_cast<size_t>(entry.row) * table.max_blocks;
    const int32_t first_key = std::max(0, entry.first_pos - window_ + 1);
    const int32_t end_key = entry.first_pos + entry.num_tokens;
    const uint8_t* units[kChunkUnits] = {};
    for (int32_t i = 0; i < kChunkUnits; ++i) {
        const int32_t pos = chunk * kChunk + i * kUnitTokens;
        if (pos + kUnitTokens <= first_key || pos >= end_key) continue;
        units[i] = frame_.store.unit(attend_.group, blocks[pos / frame_.store.block_size()], attend_.layer,
                                     kv_head, pos);
    }
    frame_.kernels.attention->attend_chunk(frame_.store.precision(), tile, chunk * kChunk, units,
                                           scratch.kernel, partial);
}

void AttentionGroup::store(const AttendEntry& entry, int32_t kv_head, const Partial& total) const {
    for (int32_t row = 0; row < entry.num_tokens * heads_; ++row) {
        const int32_t head = kv_head * heads_ + row % heads_;
        float* out = frame_.place(attend_.outputs[0], entry.token + row / heads_) + head * attend_.head_dim;
        frame_.kernels.attention->finish(total, row, attend_.head_dim, out);
    }
}

void AttentionGroup::run_entry(const AttendEntry& entry, int32_t kv_head, const Scratch& scratch) const {
    write_entry(entry, kv_head, entry.first_pos, entry.first_pos + entry.num_tokens, scratch);
    const QueryTile tile = load_queries(entry, kv_head, scratch);
    attend_chunk(entry, tile, kv_head, entry.first_chunk, scratch, scratch.total);
    for (int32_t chunk = entry.first_chunk + 1; chunk < entry.end_chunk; ++chunk) {
        attend_chunk(entry, tile, kv_head, chunk, scratch, scratch.chunk);
        frame_.kernels.attention->fold(scratch.total, scratch.chunk, tile.num_rows(), attend_.head_dim);
    }
    store(entry, kv_head, scratch.total);
}

// One chunk of an entry; the thread that ends the last one folds them all, first to last.
void AttentionGroup::run_split(int32_t item, int32_t kv_head, const Scratch& scratch) const {
    const std::vector<int32_t>& first_items = plan_.first_items();
    size_t index = 0;
    while (item >= first_items[index + 1]) ++index;
    const AttendEntry& entry = plan_.entries()[index];
    const int32_t chunk = entry.first_chunk + item - first_items[index];
    write_entry(entry, kv_head, chunk * kChunk, (chunk + 1) * kChunk, scratch);
    const QueryTile tile = load_queries(entry, kv_head, scratch);
    attend_chunk(entry, tile, kv_head, chunk, scratch, shared_partial(item, kv_head));

    const int32_t num_chunks = entry.end_chunk - entry.first_chunk;
    std::atomic<int32_t>& done = done_[index * attend_.num_kv_heads + kv_head];
    if (done.fetch_add(1, std::memory_order_acq_rel) + 1 < num_chunks) return;
    done.store(0, std::memory_order_relaxed);
    const Partial total = shared_partial(first_items[index], kv_head);
    for (int32_t i = 1; i < num_chunks; ++i)
        frame_.kernels.attention->fold(total, shared_partial(first_items[index] + i, kv_head),
                                       tile.num_rows(), attend_.head_dim);
    store(entry, kv_head, total);
}

}  // namespace

std::unique_ptr<Group> make_attention_group(Frame& frame, std::span<const Instr> instrs) {
    return std::make_unique<AttentionGroup>(frame, instrs, *find_op(instrs, Op::attend),
                                            find_op(instrs, Op::kv_write));
}

}  // namespace twostroke
