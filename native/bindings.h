// The parts of the extension module.
#pragma once

#include <nanobind/nanobind.h>

namespace twostroke {

void bind_arena(nanobind::module_& m);    // memory for packed weights, files of it
void bind_weights(nanobind::module_& m);  // packed weights, one linear at a time
void bind_program(nanobind::module_& m);  // the program reader
void bind_sample(nanobind::module_& m);   // the sampler
void bind_probe(nanobind::module_& m);    // peaks of the machine
void bind_files(nanobind::module_& m);    // string arrays of model files
void bind_text(nanobind::module_& m);     // text to token ids
void bind_pattern(nanobind::module_& m);  // patterns that answers follow

}  // namespace twostroke
