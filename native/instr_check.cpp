#include "instr_check.h"

#include <cmath>
#include <stdexcept>

namespace twostroke {
namespace {

// Counts an op's spec must have; -1: as many as there are outputs.
struct Counts {
    int32_t inputs, outputs, weights, vectors, ints, floats;
};

constexpr Counts kCounts[kNumOps] = {
    {0, 1, 1, 0, 0, 0},     // embed
    {1, 1, 0, 1, 1, 1},     // rmsnorm
    {1, -1, -1, -1, 0, 0},  // linear
    {1, 1, 0, 0, 5, 0},     // rope
    {2, 0, 0, 0, 4, 0},     // kv_write
    {1, 1, 0, 0, 6, 2},     // attend
    {2, 1, 0, 0, 1, 0},     // glu
    {2, 1, 0, 0, 0, 0},     // add
    {1, 1, 0, 0, 0, 1},     // scale
    {1, 1, 0, 0, 0, 1},     // softcap
    {1, 1, 0, 0, 0, 0},     // select
    {1, 1, 1, 0, 0, 0},     // logits
};

class Check {
  public:
    Check(const Frame& frame, const InstrSpec& spec) : frame_(frame), spec_(spec) {}

    Instr run() {
        if (!op_from_name(spec_.op, &instr_.op)) fail("unknown op " + spec_.op);
        check_counts();
        instr_.name = spec_.name;
        instr_.inputs = spec_.inputs;
        instr_.outputs = spec_.outputs;
        instr_.weights = spec_.weights;
        instr_.vectors = spec_.vectors;
        read_attributes();
        check_values();
        return std::move(instr_);
    }

  private:
    [[noreturn]] void fail(const std::string& why) const {
        throw std::invalid_argument(spec_.name + ": " + why);
    }

    void expect(bool is_right, const char* what, int64_t got, int64_t wanted) const {
        if (!is_right)
            fail(std::string(what) + " is " + std::to_string(got) + ", must be " + std::to_string(wanted));
    }
    void expect_equal(const char* what, int64_t got, int64_t wanted) const {
        expect(got == wanted, what, got, wanted);
    }
    void expect_in(const char* what, int64_t got, int64_t low, int64_t high) const {
        if (got < low || got > high)
            fail(std::string(what) + " is " + std::to_string(got) + ", must be in [" + std::to_string(low) +
                 ", " + std::to_string(high) + "]");
    }

    void check_counts() const {
        const Counts& counts = kCounts[static_cast<int32_t>(instr_.op)];
        const auto one = [&](const char* what, size_t got, int32_t wanted) {
            expect_equal(what, static_cast<int64_t>(got),
                         wanted >= 0 ? wanted : static_cast<int64_t>(spec_.outputs.size()));
        };
        one("number of inputs", spec_.inputs.size(), counts.inputs);
        one("number of outputs", spec_.outputs.size(), counts.outputs);
        one("number of weights", spec_.weights.size(), counts.weights);
        one("number of vectors", spec_.vectors.size(), counts.vectors);
        one("number of ints", spec_.ints.size(), counts.ints);
        one("number of floats", spec_.floats.size(), counts.floats);
        if (instr_.op == Op::linear)
            expect_in("number of weights", static_cast<int64_t>(spec_.weights.size()), 1, 64);
        const auto last = static_cast<int64_t>(frame_.values.size()) - 1;
        for (int32_t value : spec_.inputs) expect_in("input id", value, 0, last);
        for (int32_t value : spec_.outputs) expect_in("output id", value, 0, last);
    }

    int32_t whole(size_t index, const char* what, int64_t low, int64_t high) const {
        expect_in(what, spec_.ints[index], low, high);
        return static_cast<int32_t>(spec_.ints[index]);
    }
    float real(size_t index, const char* what) const {
        if (!std::isfinite(spec_.floats[index])) fail(std::string(what) + " is not finite");
        return static_cast<float>(spec_.floats[index]);
    }

    void read_attributes() {
        constexpr int64_t kMany = 1 << 20;
        switch (instr_.op) {
            case Op::rmsnorm:
                instr_.norm_group = whole(0, "group", 1, kMany);
                instr_.eps = real(0, "eps");
                break;
            case Op::rope:
                instr_.num_heads = whole(0, "num_heads", 1, kMany);
                instr_.head_dim = whole(1, "head_dim", 2, kMany);
                instr_.rotary_dim = whole(2, "rotary_dim", 2, instr_.head_dim);
                instr_.style = static_cast<RopeStyle>(whole(3, "style", 0, 1));
                instr_.table = whole(4, "table", 0, static_cast<int64_t>(frame_.rope_tables.size()) - 1);
                break;
            case Op::kv_write:
                read_kv_place();
                instr_.num_kv_heads = whole(2, "num_kv_heads", 1, kMany);
                instr_.head_dim = whole(3, "head_dim", 2, kMany);
                break;
            case Op::attend:
                read_kv_place();
                instr_.num_heads = whole(2, "num_heads", 1, kMany);
                instr_.num_kv_heads = whole(3, "num_kv_heads", 1, kMany);
                instr_.head_dim = whole(4, "head_dim", 2, kMany);
                instr_.window = whole(5, "window", 0, INT32_MAX);
                instr_.scale = real(0, "scale");
                instr_.softcap = real(1, "softcap");
                break;
            case Op::glu:
                instr_.activation = static_cast<Activation>(whole(0, "activation", 0, 1));
                break;
            case Op::scale:
                instr_.factor = real(0, "factor");
                break;
            case Op::softcap:
                instr_.cap = real(0, "cap");
                if (instr_.cap <= 0) fail("cap must be positive");
                break;
            default:
                break;
        }
    }

    void read_kv_place() {
        instr_.group = whole(0, "KV group", 0, frame_.store.num_groups() - 1);
        instr_.layer = whole(1, "layer", 0, frame_.store.group(instr_.group).num_layers - 1);
    }

    int32_t width(int32_t value) const { return frame_.values[value].width; }
    Axis axis(int32_t value) const { return frame_.values[value].axis; }

    void expect_same_shape(int32_t a, int32_t b) const {
        expect_equal("width", width(b), width(a));
        if (axis(a) != axis(b)) fail("its values are on different axes");
    }

    void expect_matrix(const Weight* weight, int32_t in, int32_t out) const {
        if (weight == nullptr) fail("a weight is missing");
        expect_equal("weight rows", weight->rows, out);
        expect_equal("weight columns", weight->cols, in);
        if (arithmetic_of(weight->type) == Arithmetic::int8 && in % kBlock != 0)
            fail("columns are no multiple of 32");
        if (frame_.kernels.linear[static_cast<int32_t>(weight->type)] == nullptr)
            fail(std::string("no kernel for ") + tensor_type_name(weight->type));
    }

    void check_kv_shape(int32_t value, int32_t heads) const {
        const KVGroupSpec& group = frame_.store.group(instr_.group);
        expect_equal("head_dim", instr_.head_dim, group.head_dim);
        expect_equal("num_kv_heads", instr_.num_kv_heads, group.num_kv_heads);
        expect_equal("width", width(value), static_cast<int64_t>(heads) * instr_.head_dim);
        if (axis(value) != Axis::tokens) fail("works on tokens");
    }

    void check_values() const {
        const std::vector<int32_t>& in = instr_.inputs;
        const std::vector<int32_t>& out = instr_.outputs;
        switch (instr_.op) {
            case Op::embed:
                expect_matrix(instr_.weights[0], width(out[0]), frame_.limits.vocab_size);
                if (axis(out[0]) != Axis::tokens) fail("works on tokens");
                break;
            case Op::rmsnorm:
                expect_same_shape(in[0], out[0]);
                expect_equal("width modulo group", width(in[0]) % instr_.norm_group, 0);
                expect_equal("norm weight", static_cast<int64_t>(instr_.vectors[0].size()),
                             instr_.norm_group);
                break;
            case Op::linear:
                check_linear();
                break;
            case Op::rope:
                check_rope();
                break;
            case Op::kv_write:
                check_kv_shape(in[0], instr_.num_kv_heads);
                check_kv_shape(in[1], instr_.num_kv_heads);
                break;
            case Op::attend:
                check_kv_shape(in[0], instr_.num_heads);
                check_kv_shape(out[0], instr_.num_heads);
                expect_equal("num_heads modulo num_kv_heads", instr_.num_heads % instr_.num_kv_heads, 0);
                break;
            case Op::glu:
            case Op::add:
                expect_same_shape(in[0], in[1]);
                expect_same_shape(in[0], out[0]);
                break;
            case Op::scale:
            case Op::softcap:
                expect_same_shape(in[0], out[0]);
                break;
            case Op::select:
                expect_equal("width", width(out[0]), width(in[0]));
                if (axis(in[0]) != Axis::tokens || axis(out[0]) != Axis::selected)
                    fail("goes from tokens to selected");
                break;
            case Op::logits:
                expect_matrix(instr_.weights[0], width(in[0]), width(out[0]));
                expect_equal("width", width(out[0]), frame_.limits.vocab_size);
                if (axis(in[0]) != axis(out[0])) fail("its values are on different axes");
                break;
        }
    }

    void check_linear() const {
        for (size_t i = 0; i < instr_.outputs.size(); ++i) {
            expect_matrix(instr_.weights[i], width(instr_.inputs[0]), width(instr_.outputs[i]));
            if (axis(instr_.inputs[0]) != axis(instr_.outputs[i])) fail("its values are on different axes");
            const auto bias = static_cast<int64_t>(instr_.vectors[i].size());
            expect(bias == 0 || bias == width(instr_.outputs[i]), "bias", bias, width(instr_.outputs[i]));
        }
    }

    void check_rope() const {
        expect_same_shape(instr_.inputs[0], instr_.outputs[0]);
        expect_equal("width", width(instr_.inputs[0]),
                     static_cast<int64_t>(instr_.num_heads) * instr_.head_dim);
        const auto angles = static_cast<int64_t>(frame_.rope_tables[instr_.table].inv_freq.size());
        expect_equal("rotary_dim", instr_.rotary_dim, 2 * angles);
        if (axis(instr_.inputs[0]) != Axis::tokens) fail("works on tokens");
    }

    const Frame& frame_;
    const InstrSpec& spec_;
    Instr instr_{};
};

}  // namespace

Instr make_instr(const Frame& frame, const InstrSpec& spec) { return Check(frame, spec).run(); }

}  // namespace twostroke
