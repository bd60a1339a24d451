#include "kernels/table.h"

#include "kernels/linear.h"

namespace twostroke {

const KernelTable& portable_kernels() {
    static const KernelTable table = [] {
        KernelTable filled = {};
        filled.isa = "portable";
        portable_fill_linear(filled);
        return filled;
    }();
    return table;
}

}  // namespace twostroke
