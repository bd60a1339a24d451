// Pieces of text to token ids.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.h"
#include "bpe.h"

namespace nb = nanobind;

namespace twostroke {
namespace {

using MergeRules = nb::ndarray<const int32_t, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;

// Strings of a list as UTF-8 behind one another, out of Python's reach.
struct Texts {
    std::string bytes;
    std::vector<size_t> ends;
};

void append_utf8(PyObject* text, std::string& bytes) {
    if (!PyUnicode_Check(text)) throw nb::type_error("a piece must be a str");
    if (PyUnicode_IS_ASCII(text)) {  // is its own UTF-8, so no bytes object is made
        bytes.append(static_cast<const char*>(PyUnicode_DATA(text)), PyUnicode_GET_LENGTH(text));
        return;
    }
    const nb::object encoded = nb::steal(PyUnicode_AsUTF8String(text));
    if (!encoded) throw nb::python_error();
    bytes.append(PyBytes_AS_STRING(encoded.ptr()), PyBytes_GET_SIZE(encoded.ptr()));
}

Texts read_texts(const nb::list& list) {
    Texts texts;
    texts.ends.reserve(list.size());
    for (const nb::handle text : list) {
        append_utf8(text.ptr(), texts.bytes);
        texts.ends.push_back(texts.bytes.size());
    }
    return texts;
}

void make_bpe(BPE* place, const nb::list& pieces, const MergeRules& rules,
              const std::vector<nb::bytes>& spelling, std::string prefix, std::optional<int32_t> unk_id,
              bool byte_fallback, bool fuse_unk, bool ignore_merges) {
    Texts texts = read_texts(pieces);
    const std::span<const int32_t> ids(rules.data(), rules.size());
    std::vector<std::string> letters;
    for (const nb::bytes& letter : spelling) letters.emplace_back(letter.c_str(), letter.size());
    nb::gil_scoped_release without_gil;
    new (place) BPE(PieceIndex(std::move(texts.bytes), std::move(texts.ends)), ids,
                    {std::move(letters), std::move(prefix), unk_id, byte_fallback, fuse_unk, ignore_merges});
}

nb::list encode(const BPE& bpe, const nb::list& pieces) {
    const Texts texts = read_texts(pieces);
    std::vector<int32_t> ids;
    {
        nb::gil_scoped_release without_gil;
        std::vector<std::string_view> views;
        views.reserve(texts.ends.size());
        size_t start = 0;
        for (const size_t end : texts.ends) {
            views.push_back(std::string_view(texts.bytes).substr(start, end - start));
            start = end;
        }
        bpe.encode(views, ids);
    }
    nb::list result = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(ids.size())));
    if (!result) throw nb::python_error();
    for (size_t index = 0; index < ids.size(); ++index)
        PyList_SET_ITEM(result.ptr(), static_cast<Py_ssize_t>(index), PyLong_FromLong(ids[index]));
    return result;
}

int32_t id_of(const BPE& bpe, const nb::str& piece) {
    std::string bytes;
    append_utf8(piece.ptr(), bytes);
    const auto id = bpe.pieces().find(bytes);
    if (!id) throw nb::key_error(("no token is '" + bytes + "'").c_str());
    return *id;
}

}  // namespace

void bind_text(nb::module_& m) {
    nb::class_<BPE>(m, "BPE", "A byte-pair model; safe to share between threads.")
        .def("__init__", &make_bpe, nb::arg("pieces"), nb::arg("rules").noconvert(), nb::kw_only(),
             nb::arg("spelling") = nb::make_tuple(), nb::arg("prefix") = "",
             nb::arg("unk_id").none() = nb::none(), nb::arg("byte_fallback") = false,
             nb::arg("fuse_unk") = false, nb::arg("ignore_merges") = false,
             "`pieces` by id, of equal ones the lowest id counts; `rules` [num_rules, 3] holds the ids "
             "of left, right and joint piece, best rule first.")
        .def("encode", &encode, nb::arg("pieces"), "Ids of all pieces in order; merges without the GIL.")
        .def("id_of", &id_of, nb::arg("piece"), "The id of this very piece; KeyError for none.");
}

}  // namespace twostroke
