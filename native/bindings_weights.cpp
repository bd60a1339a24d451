// Packed weights and single linears: what the tests of the kernels hold on to.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "cpu.h"
#include "pool.h"
#include "prepared.h"
#include "weight.h"

namespace nb = nanobind;

namespace twostroke {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;

// A new array of the given shape that owns its memory.
template <class Element>
nb::ndarray<nb::numpy, Element> make_array(std::initializer_list<size_t> shape, Element** data) {
    size_t size = 1;
    for (size_t extent : shape) size *= extent;
    *data = new Element[size];
    nb::capsule owner(*data, [](void* memory) noexcept { delete[] static_cast<Element*>(memory); });
    return nb::ndarray<nb::numpy, Element>(*data, shape, owner);
}

TensorType type_of(const std::string& name) {
    TensorType type;
    if (!tensor_type_from_name(name.c_str(), &type))
        throw nb::value_error(("unknown tensor type " + name).c_str());
    return type;
}

// Array `index` of a tuple: [tokens][cols], contiguous.
template <class Element>
const Element* operand(const nb::tuple& arrays, size_t index, size_t tokens, size_t cols) {
    using Array = nb::ndarray<const Element, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
    const Array array = nb::cast<Array>(arrays[index]);
    if (array.shape(0) != tokens || array.shape(1) != cols)
        throw nb::value_error("an operand has the wrong shape");
    return array.data();
}

const KernelTable& kernels_of(const std::string& isa) {
    const KernelTable* kernels = find_kernels(isa);
    if (!kernels) throw nb::value_error(("this machine has no kernels for ISA '" + isa + "'").c_str());
    return *kernels;
}

Weight* pack_weight(const std::string& type_name, Bytes data, int32_t rows, int32_t cols) {
    const TensorType type = type_of(type_name);
    if (rows < 0 || cols < 0 || cols % block_elements(type) != 0) {
        throw nb::value_error((type_name + " needs rows of a multiple of " +
                               std::to_string(block_elements(type)) + " elements, got " +
                               std::to_string(cols))
                                  .c_str());
    }
    const size_t wanted = rows * row_bytes(type, cols);
    if (data.size() != wanted) {
        throw nb::value_error((std::to_string(rows) + " x " + std::to_string(cols) + " " + type_name +
                               " is " + std::to_string(wanted) + " bytes, got " + std::to_string(data.size()))
                                  .c_str());
    }
    Weight* weight = new Weight(type, rows, cols);
    nb::gil_scoped_release released;
    weight->pack(data.data(), 0, weight->num_panels);
    return weight;
}

size_t packed_bytes_of(const std::string& type_name, int32_t rows, int32_t cols) {
    const TensorType type = type_of(type_name);
    if (rows < 0 || cols < 0 || cols % block_elements(type) != 0)
        throw nb::value_error(("no matrix of " + type_name + " has this shape").c_str());
    return packed_bytes(type, rows, cols);
}

nb::ndarray<nb::numpy, float> unpack_weight_row(const Weight& weight, int32_t row) {
    if (row < 0 || row >= weight.rows) throw nb::index_error("row is outside the weight");
    float* out;
    auto array = make_array<float>({static_cast<size_t>(weight.cols)}, &out);
    unpack_row(weight.type, weight.data(), row, weight.cols, out);
    return array;
}

// The input of a linear in every arithmetic it may be asked for, as the groups of a program prepare it.
class PreparedInput {
  public:
    PreparedInput(const KernelTable& kernels, Arithmetic arithmetic, const Matrix& x) {
        const size_t tokens = x.shape(0), K = x.shape(1);
        activations.f32 = x.data();
        activations.f32_stride = K;
        if (arithmetic == Arithmetic::bf16) {
            activations.bf16_stride = K + K % 2;
            bf16_.assign(tokens * activations.bf16_stride, 0);
            for (size_t t = 0; t < tokens; t++) {
                kernels.to_bf16(x.data() + t * K, static_cast<int32_t>(K),
                                bf16_.data() + t * activations.bf16_stride);
            }
            activations.bf16 = bf16_.data();
        } else if (arithmetic == Arithmetic::int8) {
            a8_.resize(tokens * K);
            scale_.resize(tokens * (K / kBlock));
            sum_.resize(tokens * (K / kBlock));
            scaled_sum_.resize(sum_.size());
            half_sum_.resize(2 * sum_.size());
            for (size_t t = 0; t < tokens; t++) {
                kernels.quantise_a8(x.data() + t * K, static_cast<int32_t>(K), a8_.data() + t * K,
                                    scale_.data() + t * (K / kBlock), sum_.data() + t * (K / kBlock),
                                    half_sum_.data() + 2 * t * (K / kBlock));
            }
            scale_sums(scale_.data(), sum_.data(), static_cast<int32_t>(sum_.size()), scaled_sum_.data());
            activations.a8 = a8_.data();
            activations.a8_stride = K;
            activations.a8_scale = scale_.data();
            activations.a8_sum = sum_.data();
            activations.a8_scaled_sum = scaled_sum_.data();
            activations.a8_half_sum = half_sum_.data();
            activations.a8_block_stride = K / kBlock;
        }
    }

    Activations activations;

  private:
    std::vector<uint16_t> bf16_;
    std::vector<int8_t> a8_;
    std::vector<float> scale_, scaled_sum_;
    std::vector<int32_t> sum_, half_sum_;
};

struct alignas(64) Scratch {
    uint8_t bytes[kLinearScratchBytes];
};

nb::ndarray<nb::numpy, float> linear(const Weight& weight, Matrix x, const std::string& isa) {
    const KernelTable& kernels = kernels_of(isa);
    if (x.shape(1) != static_cast<size_t>(weight.cols))
        throw nb::value_error("x must have one column per column of the weight");
    float* out;
    const size_t rows = weight.rows, tokens = x.shape(0);
    auto array = make_array<float>({tokens, rows}, &out);
    nb::gil_scoped_release released;
    const PreparedInput input(kernels, arithmetic_of(weight.type), x);
    const auto scratch = std::make_unique<Scratch>();
    for (int32_t panel = 0; panel < weight.num_panels; panel++) {
        const int32_t first = panel * kPanelRows;
        const int32_t num_rows = weight.rows - first < kPanelRows ? weight.rows - first : kPanelRows;
        kernels.linear[static_cast<int32_t>(weight.type)](weight.panel(panel), weight.cols, input.activations,
                                                          static_cast<int32_t>(tokens), out + first, rows,
                                                          num_rows, scratch->bytes);
    }
    return array;
}

// A linear as a step runs it, over and over: input prepared once, panels shared by the threads of a pool of
// its own; Python does the timing. The caller keeps weight and x alive.
class LinearProbe {
  public:
    LinearProbe(const std::string& isa, int num_threads, const Weight& weight, Matrix x)
        : kernels_(kernels_of(isa)),
          weight_(weight),
          x_(checked(std::move(x), weight)),
          input_(kernels_, arithmetic_of(weight.type), x_),
          out_(x_.shape(0) * weight.num_panels * kPanelRows),
          scratch_(std::make_unique<Scratch[]>(num_threads)),
          pool_(num_threads) {}

    int64_t run() {
        const auto tokens = static_cast<int32_t>(x_.shape(0));
        const size_t stride = static_cast<size_t>(weight_.num_panels) * kPanelRows;
        nb::gil_scoped_release released;
        pool_.run([&](Worker& worker) {
            worker.for_each(weight_.num_panels, [&](int32_t panel) {
                kernels_.linear[static_cast<int32_t>(weight_.type)](
                    weight_.panel(panel), weight_.cols, input_.activations, tokens,
                    out_.data() + static_cast<size_t>(panel) * kPanelRows, stride, kPanelRows,
                    scratch_[worker.index()].bytes);
            });
        });
        return static_cast<int64_t>(weight_.rows) * weight_.cols * tokens;
    }

  private:
    static Matrix checked(Matrix x, const Weight& weight) {
        if (x.shape(1) != static_cast<size_t>(weight.cols))
            throw nb::value_error("x must have one column per column of the weight");
        return x;
    }

    const KernelTable& kernels_;
    const Weight& weight_;
    const Matrix x_;
    const PreparedInput input_;
    std::vector<float> out_;
    const std::unique_ptr<Scratch[]> scratch_;
    Pool pool_;
};

nb::ndarray<nb::numpy, uint8_t> packed_panel(const Weight& weight, int32_t panel) {
    if (panel < 0 || panel >= weight.num_panels) throw nb::index_error("panel is outside the weight");
    uint8_t* out;
    auto array = make_array<uint8_t>({weight.panel_bytes}, &out);
    std::copy_n(weight.panel(panel), weight.panel_bytes, out);
    return array;
}

// One panel on memory the caller chose, so that a test can put forbidden pages around every operand.
void linear_panel(const std::string& type_name, Bytes panel, int32_t cols, nb::tuple input, Output out,
                  int32_t num_rows, const std::string& isa) {
    const TensorType type = type_of(type_name);
    if (panel.size() != panel_bytes(type, cols) || reinterpret_cast<uintptr_t>(panel.data()) % 64 != 0) {
        throw nb::value_error("the panel must be packed and 64-byte aligned");
    }
    if (num_rows > kPanelRows || static_cast<size_t>(num_rows) > out.shape(1))
        throw nb::value_error("too many rows");
    Activations activations;
    std::vector<float> scaled_sums;
    const size_t K = cols;
    switch (arithmetic_of(type)) {
        case Arithmetic::fp32:
            activations.f32 = operand<float>(input, 0, out.shape(0), K);
            activations.f32_stride = K;
            break;
        case Arithmetic::bf16:
            activations.bf16 = operand<uint16_t>(input, 0, out.shape(0), K + K % 2);
            activations.bf16_stride = K + K % 2;
            break;
        case Arithmetic::int8:
            activations.a8 = operand<int8_t>(input, 0, out.shape(0), K);
            activations.a8_stride = K;
            activations.a8_scale = operand<float>(input, 1, out.shape(0), K / kBlock);
            activations.a8_sum = operand<int32_t>(input, 2, out.shape(0), K / kBlock);
            activations.a8_half_sum = operand<int32_t>(input, 3, out.shape(0), 2 * (K / kBlock));
            scaled_sums.resize(out.shape(0) * (K / kBlock));
            scale_sums(activations.a8_scale, activations.a8_sum, static_cast<int32_t>(scaled_sums.size()),
                       scaled_sums.data());
            activations.a8_scaled_sum = scaled_sums.data();
            activations.a8_block_stride = K / kBlock;
            break;
    }
    const auto scratch = std::make_unique<Scratch>();
    kernels_of(isa).linear[static_cast<int32_t>(type)](panel.data(), cols, activations,
                                                       static_cast<int32_t>(out.shape(0)), out.data(),
                                                       out.stride(0), num_rows, scratch->bytes);
}

nb::tuple quantise_a8(Vector x, const std::string& isa) {
    const KernelTable& kernels = kernels_of(isa);
    const size_t K = x.size();
    if (K % kBlock != 0) throw nb::value_error("the length must be a multiple of 32");
    int8_t* q;
    float* scale;
    int32_t *sum, *half_sum;
    auto q_array = make_array<int8_t>({K}, &q);
    auto scale_array = make_array<float>({K / kBlock}, &scale);
    auto sum_array = make_array<int32_t>({K / kBlock}, &sum);
    auto half_sum_array = make_array<int32_t>({2 * (K / kBlock)}, &half_sum);
    kernels.quantise_a8(x.data(), static_cast<int32_t>(K), q, scale, sum, half_sum);
    return nb::make_tuple(q_array, scale_array, sum_array, half_sum_array);
}

nb::ndarray<nb::numpy, uint16_t> to_bf16(Vector x, const std::string& isa) {
    const KernelTable& kernels = kernels_of(isa);
    uint16_t* out;
    auto array = make_array<uint16_t>({x.size()}, &out);
    kernels.to_bf16(x.data(), static_cast<int32_t>(x.size()), out);
    return array;
}

std::vector<std::string> isas() {
    std::vector<std::string> names;
    for (std::string_view isa : usable_isas()) names.emplace_back(isa);
    return names;
}

}  // namespace

void bind_weights(nb::module_& m) {
    nb::class_<Weight>(m, "Weight")
        .def_prop_ro("rows", [](const Weight& weight) { return weight.rows; })
        .def_prop_ro("cols", [](const Weight& weight) { return weight.cols; })
        .def_prop_ro("num_bytes", &Weight::num_bytes)
        .def_prop_ro("address",
                     [](const Weight& weight) { return reinterpret_cast<uintptr_t>(weight.data()); })
        .def("packed_panel", &packed_panel, nb::arg("panel"))
        .def("unpack_row", &unpack_weight_row, nb::arg("row"));
    m.def("packed_bytes", &packed_bytes_of, nb::arg("tensor_type"), nb::arg("rows"), nb::arg("cols"),
          "Bytes of a packed matrix, a multiple of 64");
    m.def("pack_weight", &pack_weight, nb::arg("tensor_type"), nb::arg("data"), nb::arg("rows"),
          nb::arg("cols"));
    m.def("linear", &linear, nb::arg("weight"), nb::arg("x"), nb::arg("isa"),
          "x [tokens, cols] -> [tokens, rows]");
    m.def("linear_panel", &linear_panel, nb::arg("tensor_type"), nb::arg("panel"), nb::arg("cols"),
          nb::arg("input"), nb::arg("out"), nb::arg("num_rows"), nb::arg("isa"),
          "One panel into out; input is (f32,), (bf16,) or (a8, scale, sum, half sum)");
    nb::class_<LinearProbe>(m, "LinearProbe")
        .def(nb::init<const std::string&, int, const Weight&, Matrix>(), nb::arg("isa"),
             nb::arg("num_threads"), nb::arg("weight"), nb::arg("x"), nb::keep_alive<1, 4>(),
             nb::keep_alive<1, 5>())
        .def("run", &LinearProbe::run, "Multiply-adds done by all threads.");
    m.def("quantise_a8", &quantise_a8, nb::arg("x"), nb::arg("isa"),
          "x [K] -> (q [K], scale [K/32], sum [K/32], half sum [K/16])");
    m.def("to_bf16", &to_bf16, nb::arg("x"), nb::arg("isa"), "float32 [n] -> the bits of bf16 [n]");
    m.def("usable_isas", &isas, "The ISAs this machine can run, the fastest first.");
}

}  // namespace twostroke
