#include "bindings.h"

namespace twostroke {

void bind_program(nanobind::module_&) {}

}  // namespace twostroke
