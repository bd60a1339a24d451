#include "bindings.h"

namespace twostroke {

void bind_weights(nanobind::module_&) {}

}  // namespace twostroke
