// Regular expressions that an answer follows. Answers share patterns: calls for masks hold the GIL, by which
// they come one after the other.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "pattern_place.h"

namespace nb = nanobind;

namespace twostroke {
namespace {

using Rows = nb::ndarray<const int32_t, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;
using Labels = nb::ndarray<const bool, nb::shape<-1, 256>, nb::c_contig, nb::device::cpu>;

void make_vocabulary(PatternVocabulary* made, const std::vector<nb::bytes>& tokens,
                     const std::vector<int32_t>& end_ids) {
    std::string texts;
    std::vector<size_t> ends;
    ends.reserve(tokens.size());
    for (const nb::bytes& token : tokens) {
        texts.append(token.c_str(), token.size());
        ends.push_back(texts.size());
    }
    nb::gil_scoped_release without_gil;
    new (made) PatternVocabulary(std::move(texts), std::move(ends), end_ids);
}

template <class Row>
std::vector<Row> rows_of(const Rows& rows) {
    std::vector<Row> read;
    for (size_t index = 0; index < rows.shape(0); ++index)
        read.push_back({rows(index, 0), rows(index, 1), rows(index, 2)});
    return read;
}

std::shared_ptr<Pattern> make_pattern(std::shared_ptr<PatternVocabulary> vocabulary, const Rows& positions,
                                      std::vector<int32_t> first_stages, const Rows& steps,
                                      const Labels& labels, uint32_t few_nodes) {
    std::vector<Label> bytes(labels.shape(0));
    for (size_t label = 0; label < bytes.size(); ++label)
        for (size_t byte = 0; byte < 256; ++byte) bytes[label][byte] = labels(label, byte);
    std::vector<PatternPosition> read_positions = rows_of<PatternPosition>(positions);
    const std::vector<PatternStep> read_steps = rows_of<PatternStep>(steps);
    nb::gil_scoped_release without_gil;
    return std::make_shared<Pattern>(
        std::move(vocabulary),
        PatternProgram(std::move(read_positions), std::move(first_stages), read_steps, bytes), few_nodes);
}

nb::bytes mask_of(PatternPlace& place) {
    const MaskWords& words = place.mask();
    return nb::bytes(words.data(), words.size() * sizeof(uint32_t));
}

}  // namespace

void bind_pattern(nb::module_& m) {
    nb::class_<PatternVocabulary>(m, "PatternVocabulary",
                                  "A vocabulary for patterns; read once, shared by all.")
        .def("__init__", &make_vocabulary, nb::arg("tokens"), nb::kw_only(), nb::arg("end_ids"),
             "The bytes of each token by id, empty where text is not made of it.");
    nb::class_<Pattern>(m, "Pattern", "A pattern over a vocabulary; answers that follow it share its masks.")
        .def(nb::new_(&make_pattern), nb::arg("vocabulary"), nb::kw_only(), nb::arg("positions").noconvert(),
             nb::arg("first_stages"), nb::arg("steps").noconvert(), nb::arg("labels").noconvert(),
             nb::arg("few_nodes"),
             "`positions` [num_positions, 3]: kind, next, other; kind -1 forks, -2 is the end. The first "
             "stage "
             "of each kind. `steps` [num_steps, 3]: stage, label, next stage or -1. `labels` [num_labels, "
             "256]. "
             "So many nodes of a vocabulary's trie are walked over before tokens are grouped.")
        .def_prop_ro("memory_bytes", &Pattern::memory_bytes, "Of states and masks that are remembered.")
        .def_prop_ro("num_walked", &Pattern::num_walked, "Nodes of tries walked over for masks so far.");
    nb::class_<PatternPlace>(m, "PatternPlace", "Where one answer is in a pattern.")
        .def(nb::init<std::shared_ptr<Pattern>>(), nb::arg("pattern"))
        .def("mask", &mask_of,
             "A bit per token id, id i in bit i % 32 of little-endian word i // 32. ValueError where nothing "
             "may come, and where it is too much to find out.")
        .def_prop_ro("is_forced", &PatternPlace::is_forced, "Whether one byte alone may come.")
        .def("advance", &PatternPlace::advance, nb::arg("token_id"), "The answer grew by this token.")
        .def(
            "copy", [](const PatternPlace& place) { return PatternPlace(place); },
            "The same place for another.");
}

}  // namespace twostroke
