// Which kernels this processor and this operating system can run.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/table.h"

namespace twostroke {

// Names of the usable ISAs, the fastest first; "portable" is always the last.
const std::vector<std::string_view>& usable_isas();
inline std::string_view best_isa() { return usable_isas().front(); }

// The kernels of a usable ISA; null for any other name.
const KernelTable* find_kernels(std::string_view isa);

}  // namespace twostroke
