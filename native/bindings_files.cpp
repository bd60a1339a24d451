// Walks over the string arrays of model files: a vocabulary has a quarter of a million entries.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>

#include "bindings.h"
#include "gguf_scan.h"

namespace nb = nanobind;

namespace twostroke {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

StringCursor cursor_at(const Bytes& data, size_t start) {
    if (start > data.size()) throw nb::value_error("start is past the end of the data");
    return StringCursor(data.data(), data.size(), start);
}

std::pair<size_t, size_t> end_of_strings(const Bytes& data, size_t start, size_t length) {
    StringCursor cursor = cursor_at(data, start);
    size_t num_read = 0;
    while (num_read < length && cursor.next()) ++num_read;
    return {num_read, cursor.position()};
}

nb::list read_strings(const Bytes& data, size_t start, size_t length) {
    StringCursor cursor = cursor_at(data, start);
    nb::list texts;
    for (size_t index = 0; index < length; ++index) {
        const auto text = cursor.next();
        if (!text) throw nb::value_error("a string runs past the end of the data");
        PyObject* decoded =
            PyUnicode_DecodeUTF8(text->data(), static_cast<Py_ssize_t>(text->size()), "replace");
        if (decoded == nullptr) throw nb::python_error();
        texts.append(nb::steal(decoded));
    }
    return texts;
}

}  // namespace

void bind_files(nb::module_& m) {
    m.def("end_of_strings", &end_of_strings, nb::arg("data"), nb::arg("start"), nb::arg("length"),
          "How many of `length` strings fit in the data, and where the last one ends.");
    m.def("read_strings", &read_strings, nb::arg("data"), nb::arg("start"), nb::arg("length"),
          "The strings decoded; invalid UTF-8 becomes U+FFFD.");
}

}  // namespace twostroke
