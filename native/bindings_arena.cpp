// Memory for the packed matrices of a model, filled by the packer or from a file.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "bindings.h"
#include "checksum.h"
#include "weight.h"
#include "weight_arena.h"

namespace nb = nanobind;

namespace twostroke {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::ndarray<nb::numpy, uint64_t> checksums_of(const WeightArena& arena, Pool& pool) {
    auto* sums = new std::vector<uint64_t>;
    nb::capsule owner(sums,
                      [](void* memory) noexcept { delete static_cast<std::vector<uint64_t>*>(memory); });
    {
        nb::gil_scoped_release released;
        *sums = arena.checksums(pool);
    }
    return nb::ndarray<nb::numpy, uint64_t>(sums->data(), {sums->size()}, owner);
}

// OSError where the file cannot be mapped.
WeightArena* map_arena(int file, uint64_t offset, size_t num_bytes) {
    try {
        return new WeightArena(file, offset, num_bytes);
    } catch (const std::system_error& error) {
        errno = error.code().value();
        PyErr_SetFromErrno(PyExc_OSError);
        throw nb::python_error();
    }
}

// A matrix that is packed already in the arena.
Weight* weight_in(const WeightArena& arena, const std::string& type_name, int32_t rows, int32_t cols,
                  size_t offset) {
    TensorType type;
    if (!tensor_type_from_name(type_name.c_str(), &type))
        throw nb::value_error(("unknown tensor type " + type_name).c_str());
    if (rows < 1 || cols < 1 || cols % block_elements(type) != 0)
        throw nb::value_error(
            ("no matrix of " + type_name + " is " + std::to_string(rows) + " x " + std::to_string(cols))
                .c_str());
    return new Weight(type, rows, cols, arena.pages(), offset);
}

}  // namespace

void bind_arena(nb::module_& m) {
    nb::class_<WeightArena>(m, "WeightArena")
        .def(nb::init<size_t>(), nb::arg("num_bytes"))
        .def_static("map", &map_arena, nb::rv_policy::take_ownership, nb::arg("file"), nb::arg("offset"),
                    nb::arg("num_bytes"))
        .def_prop_ro("num_bytes", &WeightArena::num_bytes)
        .def_prop_ro("is_mapped", &WeightArena::is_mapped)
        .def_prop_ro("huge_bytes", [](const WeightArena& arena) { return arena.pages()->huge_bytes(); })
        .def_prop_ro("data",
                     [](nb::handle self) {
                         const auto& pages = nb::cast<const WeightArena&>(self).pages();
                         return nb::ndarray<nb::numpy, const uint8_t>(pages->as<uint8_t>(), {pages->size()},
                                                                      self);
                     })
        .def("checksums", &checksums_of, nb::arg("pool"))
        .def("weight", &weight_in, nb::rv_policy::take_ownership, nb::arg("tensor_type"), nb::arg("rows"),
             nb::arg("cols"), nb::arg("offset"));
    m.def("checksum", [](Bytes data) { return checksum(data.data(), data.size()); });
}

}  // namespace twostroke
