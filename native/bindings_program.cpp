// The program reader, its threads and its KV store; row ops one at a time for their tests.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "candidates.h"
#include "cpu.h"
#include "program.h"
#include "weight_arena.h"

namespace nb = nanobind;

namespace twostroke {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Words = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Blocks = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Row = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Logits = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
    throw nb::value_error((std::string() + ... + parts).c_str());
}

const KernelTable& kernels_named(const std::string& isa) {
    const KernelTable* kernels = find_kernels(isa);
    if (kernels == nullptr) fail("this machine has no kernels for ISA '", isa, "'");
    return *kernels;
}

KVPrecision precision_named(const std::string& name) {
    if (name == "f32") return KVPrecision::f32;
    if (name == "f16") return KVPrecision::f16;
    if (name == "bf16") return KVPrecision::bf16;
    if (name == "int8") return KVPrecision::int8;
    fail("unknown KV precision '", name, "'");
}

// Packs a matrix on all threads of the pool, into the arena or memory of its own.
Weight* pack_weight(Pool& pool, const std::string& type_name, Bytes data, int32_t rows, int32_t cols,
                    const WeightArena* arena, size_t offset) {
    TensorType type;
    if (!tensor_type_from_name(type_name.c_str(), &type)) fail("unknown tensor type ", type_name);
    if (rows < 1 || cols < 1 || cols % block_elements(type) != 0)
        fail("cannot pack ", std::to_string(rows), " x ", std::to_string(cols), " ", type_name);
    const size_t wanted = rows * row_bytes(type, cols);
    if (data.size() != wanted)
        fail("needs ", std::to_string(wanted), " bytes, got ", std::to_string(data.size()));
    if (arena != nullptr && arena->is_mapped()) fail("an arena that maps a file cannot be packed into");
    auto weight = arena == nullptr ? std::make_unique<Weight>(type, rows, cols)
                                   : std::make_unique<Weight>(type, rows, cols, arena->pages(), offset);
    nb::gil_scoped_release released;
    constexpr int32_t kPanelsPerItem = 16;
    const int32_t num_panels = weight->num_panels;
    pool.run([&](Worker& worker) {
        worker.for_each((num_panels + kPanelsPerItem - 1) / kPanelsPerItem, [&](int32_t item) {
            const int32_t first = item * kPanelsPerItem;
            weight->pack(data.data(), first, std::min(num_panels, first + kPanelsPerItem));
        });
    });
    return weight.release();
}

// Barriers and shares of a pool, counted: for its tests. Returns how often each item was done.
std::vector<int32_t> count_shares(Pool& pool, int32_t num_items, int32_t num_rounds, int32_t throwing_worker,
                                  int32_t num_workers) {
    std::vector<std::atomic<int32_t>> done(num_items);
    nb::gil_scoped_release released;
    pool.run(
        [&](Worker& worker) {
            for (int32_t round = 0; round < num_rounds; ++round) {
                worker.for_each(num_items,
                                [&](int32_t item) { done[item].fetch_add(1, std::memory_order_relaxed); });
                if (round == num_rounds / 2 && worker.index() == throwing_worker)
                    throw std::runtime_error("as asked");
                worker.barrier();
            }
        },
        num_workers);
    return {done.begin(), done.end()};
}

// Which threads of a pool a run has: for its tests.
std::vector<int32_t> find_workers(Pool& pool, int32_t num_workers) {
    std::vector<std::atomic<int32_t>> counts(pool.num_threads());
    pool.run([&](Worker& worker) { counts[worker.index()] = worker.count(); }, num_workers);
    return {counts.begin(), counts.end()};
}

KVStore* make_store(const std::string& precision, int32_t block_size,
                    const std::vector<std::tuple<int32_t, int32_t, int32_t, int32_t>>& groups) {
    std::vector<KVGroupSpec> specs;
    for (const auto& [layers, heads, head_dim, blocks] : groups)
        specs.push_back({layers, heads, head_dim, blocks});
    return new KVStore(precision_named(precision), block_size, std::move(specs));
}

// The program and the Python objects whose memory it uses.
class BoundProgram {
  public:
    using ValueTuple = std::tuple<int32_t, int32_t, int64_t, int32_t>;  // width, axis, offset, stride
    using TableTuple = std::pair<std::vector<double>, double>;          // inv_freq, magnitude

    BoundProgram(Pool& pool, KVStore& store, const std::string& isa,
                 const std::tuple<int32_t, int32_t, int32_t, int32_t>& limits,
                 const std::vector<ValueTuple>& values, const std::vector<TableTuple>& rope_tables,
                 int32_t output_width)
        : program_(pool, store, kernels_named(isa),
                   {std::get<0>(limits), std::get<1>(limits), std::get<2>(limits), std::get<3>(limits),
                    output_width > 0 ? output_width : std::get<3>(limits)},
                   to_values(values), to_tables(rope_tables)) {}

    void add(const std::string& op, const std::string& name, const std::vector<int32_t>& inputs,
             const std::vector<int32_t>& outputs, const nb::list& weights, const std::vector<Vector>& vectors,
             const std::vector<int64_t>& ints, const std::vector<double>& floats) {
        InstrSpec spec{op, name, inputs, outputs, {}, {}, ints, floats};
        for (nb::handle weight : weights) {
            spec.weights.push_back(nb::cast<const Weight*>(weight));
            kept_.push_back(nb::borrow(weight));
        }
        for (const Vector& vector : vectors)
            spec.vectors.emplace_back(vector.data(), vector.data() + vector.size());
        program_.add(spec);
    }

    void finish(const std::vector<std::pair<int32_t, int32_t>>& groups) { program_.finish(groups); }

    std::string step(Ids token_ids, Ids row_starts, Ids row_positions, const std::vector<Blocks>& tables,
                     Ids selected, Logits logits, const std::optional<Words>& wanted, int32_t num_workers,
                     Candidates* candidates) {
        const size_t num_rows = row_positions.size();
        if (row_starts.size() != num_rows + 1)
            return "row_starts must have one entry more than row_positions";
        const bool are_written = candidates == nullptr || !candidates->whole_rows().empty();
        if ((are_written && logits.shape(0) < selected.size()) ||
            logits.shape(1) != static_cast<size_t>(program_.limits().output_width))
            return "the logits buffer is too small";
        StepInput input;
        input.token_ids = token_ids.data();
        input.num_tokens = static_cast<int32_t>(token_ids.size());
        input.row_starts = row_starts.data();
        input.row_positions = row_positions.data();
        input.num_rows = static_cast<int32_t>(num_rows);
        for (const Blocks& table : tables) {
            if (table.shape(0) < num_rows) return "a block table has fewer rows than the step";
            input.tables.push_back({table.data(), static_cast<int32_t>(table.shape(1))});
        }
        input.selected = selected.data();
        input.num_selected = static_cast<int32_t>(selected.size());
        input.logits = logits.data();
        if (wanted) {
            input.wanted = wanted->data();
            input.num_wanted_words = static_cast<int32_t>(wanted->size());
        }
        input.candidates = candidates;
        nb::gil_scoped_release released;
        return program_.step(input, num_workers);
    }

    // Address and bytes of each stretch, phase by phase.
    std::vector<std::vector<std::pair<uintptr_t, size_t>>> first_reads(int32_t worker) const {
        if (worker < 0 || worker >= program_.num_read_plans()) fail("no such worker in a finished program");
        std::vector<std::vector<std::pair<uintptr_t, size_t>>> phases;
        for (const std::vector<Stretch>& stretches : program_.first_reads(worker)) {
            phases.emplace_back();
            for (const Stretch& stretch : stretches)
                phases.back().emplace_back(reinterpret_cast<uintptr_t>(stretch.data), stretch.num_bytes);
        }
        return phases;
    }

    size_t memory_bytes() const { return program_.memory_bytes(); }
    int32_t num_handovers() const { return program_.num_handovers(); }
    bool brings_candidates() const { return program_.brings_candidates(); }

  private:
    static std::vector<Value> to_values(const std::vector<ValueTuple>& values) {
        std::vector<Value> out;
        for (const auto& [width, axis, offset, stride] : values)
            out.push_back({width, axis == 0 ? Axis::tokens : Axis::selected, offset, stride});
        return out;
    }
    static std::vector<RopeTable> to_tables(const std::vector<TableTuple>& tables) {
        std::vector<RopeTable> out;
        for (const auto& [inv_freq, magnitude] : tables) out.push_back({inv_freq, magnitude});
        return out;
    }

    std::vector<nb::object> kept_;
    Program program_;
};

const RowKernels& rows_named(const std::string& isa) { return *kernels_named(isa).rows; }

void expect_size(const Row& out, size_t size) {
    if (out.size() != size) fail("arrays differ in size");
}

void bind_rows(nb::module_& m) {
    m.def("row_rmsnorm", [](const std::string& isa, Vector x, Vector weight, float eps, Row out) {
        expect_size(out, x.size());
        expect_size(out, weight.size());
        rows_named(isa).rmsnorm(x.data(), weight.data(), static_cast<int32_t>(x.size()), eps, out.data());
    });
    m.def("row_rope", [](const std::string& isa, Vector x, Vector cos, Vector sin, bool pairs, Row out) {
        expect_size(out, x.size());
        if (cos.size() != sin.size() || 2 * cos.size() > x.size()) fail("angles do not fit the head");
        rows_named(isa).rope(x.data(), cos.data(), sin.data(), static_cast<int32_t>(x.size()),
                             2 * static_cast<int32_t>(cos.size()),
                             pairs ? RopeStyle::pairs : RopeStyle::halves, out.data());
    });
    m.def("row_glu", [](const std::string& isa, bool gelu, Vector gate, Vector up, Row out) {
        expect_size(out, gate.size());
        expect_size(out, up.size());
        rows_named(isa).glu(gelu ? Activation::gelu_tanh : Activation::silu, gate.data(), up.data(),
                            static_cast<int32_t>(out.size()), out.data(), {});
    });
    m.def("row_add", [](const std::string& isa, Vector a, Vector b, Row out) {
        expect_size(out, a.size());
        expect_size(out, b.size());
        rows_named(isa).add(a.data(), b.data(), static_cast<int32_t>(out.size()), out.data(), {});
    });
    m.def("row_scale", [](const std::string& isa, Vector x, float factor, Row out) {
        expect_size(out, x.size());
        rows_named(isa).scale(x.data(), static_cast<int32_t>(out.size()), factor, out.data(), {});
    });
    m.def("row_softcap", [](const std::string& isa, Vector x, float cap, Row out) {
        expect_size(out, x.size());
        rows_named(isa).softcap(x.data(), static_cast<int32_t>(out.size()), cap, out.data(), {});
    });
}

}  // namespace

void bind_program(nb::module_& m) {
    nb::class_<Pool>(m, "Pool")
        .def(nb::init<int, uint64_t>(), nb::arg("num_threads"), nb::arg("num_past_runs") = 0)
        .def_prop_ro("num_threads", &Pool::num_threads)
        .def("pack_weight", &pack_weight, nb::rv_policy::take_ownership, nb::arg("tensor_type"),
             nb::arg("data"), nb::arg("rows"), nb::arg("cols"), nb::arg("arena") = nb::none(),
             nb::arg("offset") = 0)
        .def("count_shares", &count_shares, nb::arg("num_items"), nb::arg("num_rounds"),
             nb::arg("throwing_worker"), nb::arg("num_workers") = 0)
        .def("find_workers", &find_workers, nb::arg("num_workers"));
    nb::class_<KVStore>(m, "KVStore")
        .def(nb::new_(&make_store), nb::arg("precision"), nb::arg("block_size"), nb::arg("groups"))
        .def("block_bytes", &KVStore::block_bytes)
        .def("copy_block", &KVStore::copy_block);
    nb::class_<BoundProgram>(m, "Program")
        .def(nb::init<Pool&, KVStore&, const std::string&,
                      const std::tuple<int32_t, int32_t, int32_t, int32_t>&,
                      const std::vector<BoundProgram::ValueTuple>&,
                      const std::vector<BoundProgram::TableTuple>&, int32_t>(),
             nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::arg("pool"), nb::arg("store"),
             nb::arg("isa"), nb::arg("limits"), nb::arg("values"), nb::arg("rope_tables"),
             nb::arg("output_width") = 0)
        .def("add", &BoundProgram::add, nb::kw_only(), nb::arg("op"), nb::arg("name"), nb::arg("inputs"),
             nb::arg("outputs"), nb::arg("weights"), nb::arg("vectors"), nb::arg("ints"), nb::arg("floats"))
        .def("finish", &BoundProgram::finish)
        .def("step", &BoundProgram::step, nb::arg("token_ids"), nb::arg("row_starts"),
             nb::arg("row_positions"), nb::arg("block_tables"), nb::arg("selected"), nb::arg("logits"),
             nb::arg("wanted") = nb::none(), nb::arg("num_workers") = 0, nb::arg("candidates") = nb::none())
        .def_prop_ro("brings_candidates", &BoundProgram::brings_candidates)
        .def("first_reads", &BoundProgram::first_reads, nb::arg("worker"))
        .def_prop_ro("memory_bytes", &BoundProgram::memory_bytes)
        .def_prop_ro("num_handovers", &BoundProgram::num_handovers);
    bind_rows(m);
}

}  // namespace twostroke
