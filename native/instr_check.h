// From what Python hands over to an Instr that kernels can trust.
#pragma once

#include "frame.h"
#include "program.h"

namespace twostroke {

// Reads the spec and checks ids, shapes and attributes. Throws std::invalid_argument, naming the instr.
Instr make_instr(const Frame& frame, const InstrSpec& spec);

}  // namespace twostroke
