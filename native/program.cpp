#include "program.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <stdexcept>

#include "instr_check.h"

namespace twostroke {
namespace {

constexpr int32_t kMostTokens = 1 << 18;  // of one step; threads count their items in 20 bits

std::string text(int64_t number) { return std::to_string(number); }

void check_place(const Value& value, size_t id) {
    const auto fail = [&](const char* why) { throw std::invalid_argument("value " + text(id) + ": " + why); };
    if (value.width < 1) fail("width must be positive");
    if (value.offset == kLocal || value.offset == kInLogits) return;
    if (value.offset < 0 || value.offset % 16 != 0) fail("offset must be a multiple of 16");
    if (value.stride < value.width || value.stride % 16 != 0)
        fail("stride must be a multiple of 16 that holds it");
}

}  // namespace

Program::Program(Pool& pool, KVStore& store, const KernelTable& kernels, const Limits& limits,
                 std::vector<Value> values, std::vector<RopeTable> rope_tables)
    : pool_(pool), frame_(kernels, store, limits, pool.num_threads()) {
    frame_.values = std::move(values);
    frame_.rope_tables = std::move(rope_tables);
    if (limits.max_tokens < 1 || limits.max_rows < 1 || limits.context_length < 1 || limits.vocab_size < 1 ||
        limits.output_width < 1)
        throw std::invalid_argument("limits of a program must be positive");
    if (limits.max_tokens > kMostTokens)
        throw std::invalid_argument("max_tokens is " + text(limits.max_tokens) + ", at most " +
                                    text(kMostTokens));
    for (size_t id = 0; id < frame_.values.size(); ++id) {
        Value& value = frame_.values[id];
        check_place(value, id);
        if (value.offset != kInLogits) continue;
        if (value.width != limits.output_width || value.axis != Axis::selected)
            throw std::invalid_argument("value " + text(id) + " cannot live in the logits buffer");
        value.stride = value.width;
    }
}

void Program::add(const InstrSpec& spec) {
    if (!groups_.empty()) throw std::invalid_argument("the program is finished");
    instrs_.push_back(make_instr(frame_, spec));
}

void Program::finish(const std::vector<std::pair<int32_t, int32_t>>& groups) {
    if (!groups_.empty()) throw std::invalid_argument("the program is finished");
    find_selected();
    int32_t next = 0;
    std::vector<std::unique_ptr<Group>> made;
    for (const auto& [first, last] : groups) {
        if (first != next || last <= first || last > static_cast<int32_t>(instrs_.size()))
            throw std::invalid_argument("groups must cover all instrs in order");
        check_reads(first, last);
        made.push_back(make_group(frame_, std::span(instrs_).subspan(first, last - first), made.size()));
        next = last;
        const auto is_head = [](const Instr& instr) { return instr.op == Op::logits; };
        brings_candidates_ = std::any_of(instrs_.begin() + first, instrs_.begin() + last, is_head);
    }
    if (next != static_cast<int32_t>(instrs_.size()) || made.empty())
        throw std::invalid_argument("groups must cover all instrs in order");
    // Angles are computed while the first group runs.
    for (int32_t i = 0; i < groups[0].second; ++i)
        if (instrs_[i].op == Op::rope)
            throw std::invalid_argument(instrs_[i].name + ": rope in the first group");
    groups_ = std::move(made);
    hand_over();
    allocate();
    plan_reads();
}

void Program::find_selected() {
    for (Value& value : frame_.values) value.is_only_selected = true;
    for (const Instr& instr : instrs_)
        for (int32_t value : instr.inputs) frame_.values[value].is_only_selected &= instr.op == Op::select;
}

// A value that one linear alone reads, with nothing in between, needs no place as floats.
void Program::hand_over() {
    for (size_t i = 1; i < groups_.size(); ++i) {
        const std::optional<Handover> handover = groups_[i]->wants();
        if (!handover) continue;
        int num_readers = 0;
        for (const Instr& instr : instrs_)
            num_readers +=
                static_cast<int>(std::count(instr.inputs.begin(), instr.inputs.end(), handover->value));
        if (num_readers != 1 || !groups_[i - 1]->gives(*handover)) continue;
        groups_[i]->takes();
        ++num_handovers_;
    }
}

// What a group reads was written before, and lives outside it or was written in it; values are written once.
void Program::check_reads(int32_t first, int32_t last) const {
    const auto writer_of = [&](int32_t value, int32_t end) {
        int32_t writer = -1;
        for (int32_t i = 0; i < end; ++i)
            for (int32_t output : instrs_[i].outputs)
                if (output == value) writer = i;
        return writer;
    };
    for (int32_t i = first; i < last; ++i) {
        const Instr& instr = instrs_[i];
        for (int32_t value : instr.inputs) {
            const int32_t writer = writer_of(value, i);
            if (writer < 0)
                throw std::invalid_argument(instr.name + ": reads value " + text(value) + " too early");
            if (writer < first && frame_.values[value].offset == kLocal)
                throw std::invalid_argument(instr.name + ": value " + text(value) +
                                            " is local to another group");
        }
        for (int32_t value : instr.outputs) {
            if (writer_of(value, i) >= 0)
                throw std::invalid_argument(instr.name + ": writes value " + text(value) + " a second time");
            if (instr.op == Op::attend && frame_.values[value].offset == kLocal)
                throw std::invalid_argument(instr.name + ": its output needs a place in memory");
        }
    }
}

void Program::allocate() {
    const Limits& limits = frame_.limits;
    size_t floats = 0, partials = 0, scratch = 0;
    size_t shared[2] = {0, 0};
    for (const Value& value : frame_.values)
        if (value.offset >= 0) floats = std::max(floats, static_cast<size_t>(value.offset) + value.stride);
    for (size_t i = 0; i < groups_.size(); ++i) {
        const auto& group = groups_[i];
        shared[i % 2] = std::max(shared[i % 2], group->shared_bytes());
        partials = std::max(partials, group->partial_bytes());
        scratch = std::max(scratch, group->scratch_bytes());
    }
    frame_.arena = Pages(floats * limits.max_tokens * sizeof(float));
    for (int slot = 0; slot < 2; ++slot) frame_.shared[slot] = Pages(shared[slot]);
    frame_.partials = Pages(partials);
    for (int32_t i = 0; i < frame_.num_threads; ++i) frame_.scratch.emplace_back(scratch + 64);

    Carver size(nullptr);
    for (const RopeTable& table : frame_.rope_tables)
        size.take<float>(2 * table.inv_freq.size() * limits.max_tokens);
    frame_.angle_pages = Pages(size.used());
    Carver carver(frame_.angle_pages.as<uint8_t>());
    for (const RopeTable& table : frame_.rope_tables) {
        const size_t count = table.inv_freq.size() * limits.max_tokens;
        float* cos = carver.take<float>(2 * count);
        frame_.angles.push_back({cos, cos + count, static_cast<int32_t>(table.inv_freq.size())});
    }
    frame_.token_pos.resize(limits.max_tokens);
    frame_.token_row.resize(limits.max_tokens);
    windows_.assign(frame_.store.num_groups(), 1);
    for (const Instr& instr : instrs_)
        if (instr.op == Op::attend)
            windows_[instr.group] =
                std::max(windows_[instr.group], instr.window > 0 ? instr.window : INT_MAX);
}

void Program::plan_reads() {
    read_plans_.resize(frame_.num_threads);
    for (int32_t worker = 0; worker < frame_.num_threads; ++worker)
        for (const auto& group : groups_)
            if (auto stretches = group->first_reads(worker); !stretches.empty())
                read_plans_[worker].push_back(std::move(stretches));
}

size_t Program::memory_bytes() const {
    size_t total = frame_.arena.size() + frame_.partials.size() + frame_.angle_pages.size();
    for (const Pages& pages : frame_.shared) total += pages.size();
    for (const Pages& pages : frame_.scratch) total += pages.size();
    return total;
}

std::string Program::step(const StepInput& input, int num_workers) {
    if (groups_.empty()) return "the program is not finished";
    if (std::string problem = check(input); !problem.empty()) return problem;
    begin_step(input);
    pool_.run(
        [this](Worker& worker) {
            fill_angles(worker);
            ReadAhead ahead(read_plans_[worker.index()]);
            for (const auto& group : groups_) group->run(worker, ahead);
        },
        num_workers);
    return {};
}

std::string Program::check(const StepInput& input) const {
    const Limits& limits = frame_.limits;
    if (input.num_tokens < 1 || input.num_tokens > limits.max_tokens)
        return "step has " + text(input.num_tokens) + " tokens, must have 1 to " + text(limits.max_tokens);
    if (input.num_rows < 1 || input.num_rows > limits.max_rows)
        return "step has " + text(input.num_rows) + " rows, must have 1 to " + text(limits.max_rows);
    if (static_cast<int32_t>(input.tables.size()) != frame_.store.num_groups())
        return "step has " + text(input.tables.size()) + " block tables, must have " +
               text(frame_.store.num_groups());
    for (int32_t i = 0; i < input.num_tokens; ++i)
        if (input.token_ids[i] < 0 || input.token_ids[i] >= limits.vocab_size)
            return "token " + text(i) + " has id " + text(input.token_ids[i]) + ", the vocabulary has " +
                   text(limits.vocab_size);
    if (input.row_starts[0] != 0 || input.row_starts[input.num_rows] != input.num_tokens)
        return "row_starts must go from 0 to " + text(input.num_tokens);
    for (int32_t row = 0; row < input.num_rows; ++row)
        if (std::string problem = check_row(input, row); !problem.empty()) return problem;
    for (int32_t i = 0; i < input.num_selected; ++i) {
        const int32_t previous = i > 0 ? input.selected[i - 1] : -1;
        if (input.selected[i] <= previous || input.selected[i] >= input.num_tokens)
            return "selected must be ascending token indices below " + text(input.num_tokens) + ", entry " +
                   text(i) + " is " + text(input.selected[i]);
    }
    return input.candidates == nullptr ? std::string() : check_candidates(input);
}

std::string Program::check_candidates(const StepInput& input) const {
    const Candidates& candidates = *input.candidates;
    if (!brings_candidates_)
        return "this program brings no candidates: its head's logits are changed after it";
    if (candidates.num_rows() != input.num_selected)
        return "candidates are of " + text(candidates.num_rows()) + " rows, the step selects " +
               text(input.num_selected);
    if (candidates.vocab_size() > frame_.limits.output_width)
        return "candidates are of " + text(candidates.vocab_size()) + " tokens, the head has " +
               text(frame_.limits.output_width);
    if (candidates.num_threads() < frame_.num_threads)
        return "candidates are for " + text(candidates.num_threads()) + " threads, the program has " +
               text(frame_.num_threads);
    return {};
}

std::string Program::check_row(const StepInput& input, int32_t row) const {
    const int64_t pos = input.row_positions[row];
    const int64_t num_tokens = int64_t{input.row_starts[row + 1]} - input.row_starts[row];
    if (num_tokens < 1 || input.row_starts[row + 1] > input.num_tokens)
        return "row " + text(row) + " has " + text(num_tokens) + " tokens, must have at least 1";
    if (pos < 0 || pos + num_tokens > frame_.limits.context_length)
        return "row " + text(row) + " holds positions " + text(pos) + " to " + text(pos + num_tokens - 1) +
               ", the context has " + text(frame_.limits.context_length);
    for (int32_t group = 0; group < frame_.store.num_groups(); ++group)
        if (std::string problem = check_blocks(input, row, group); !problem.empty()) return problem;
    return {};
}

// Every block a query of the row can see must exist.
std::string Program::check_blocks(const StepInput& input, int32_t row, int32_t group) const {
    const BlockTable& table = input.tables[group];
    const int32_t block_size = frame_.store.block_size();
    const int32_t pos = input.row_positions[row];
    const int32_t end_pos = pos + input.row_starts[row + 1] - input.row_starts[row];
    const int32_t first = std::max(0, pos - windows_[group] + 1) / block_size;
    const int32_t end = (end_pos + block_size - 1) / block_size;
    const auto where = [&] { return "row " + text(row) + ", KV group " + text(group); };
    if (end > table.max_blocks)
        return where() + " needs " + text(end) + " blocks, its table has " + text(table.max_blocks);
    for (int32_t i = first; i < end; ++i) {
        const int32_t block = table.blocks[static_cast<size_t>(row) * table.max_blocks + i];
        if (block < 0 || block >= frame_.store.group(group).num_blocks)
            return where() + ": block " + text(i) + " of its table is " + text(block) + ", the store has " +
                   text(frame_.store.group(group).num_blocks);
    }
    return {};
}

void Program::begin_step(const StepInput& input) {
    frame_.step = input;
    for (int32_t row = 0; row < input.num_rows; ++row)
        for (int32_t i = input.row_starts[row]; i < input.row_starts[row + 1]; ++i) {
            frame_.token_pos[i] = input.row_positions[row] + i - input.row_starts[row];
            frame_.token_row[i] = row;
        }
    for (const auto& group : groups_) group->begin_step();
}

// A worker's angles are seen by all after the first group's barrier.
void Program::fill_angles(const Worker& worker) {
    const int64_t num_tokens = frame_.step.num_tokens;
    const auto first = static_cast<int32_t>(num_tokens * worker.index() / worker.count());
    const auto last = static_cast<int32_t>(num_tokens * (worker.index() + 1) / worker.count());
    for (size_t table = 0; table < frame_.angles.size(); ++table) {
        const Angles& angles = frame_.angles[table];
        const RopeTable& rope = frame_.rope_tables[table];
        for (int32_t token = first; token < last; ++token)
            for (int32_t i = 0; i < angles.half; ++i) {
                const double angle = frame_.token_pos[token] * rope.inv_freq[i];
                const size_t index = static_cast<size_t>(token) * angles.half + i;
                angles.cos[index] = static_cast<float>(std::cos(angle) * rope.magnitude);
                angles.sin[index] = static_cast<float>(std::sin(angle) * rope.magnitude);
            }
    }
}

}  // namespace twostroke
