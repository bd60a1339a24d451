#include "kernels/table.h"

#include "kernels/linear.h"

namespace twostroke {

const KernelTable& avx512_kernels() {
    static const KernelTable table = [] {
        KernelTable filled = {};
        filled.isa = "avx512";
        avx512_fill_linear(filled);
        return filled;
    }();
    return table;
}

}  // namespace twostroke
