#include "kernels/table.h"

#include "kernels/attention.h"
#include "kernels/linear.h"
#include "kernels/rows.h"
#include "kernels/sample.h"

namespace twostroke {

const KernelTable& neon_kernels() {
    static const KernelTable table = [] {
        KernelTable filled = {};
        filled.isa = "neon";
        neon::fill_linear(filled);
        neon::fill_rows(filled);
        neon::fill_attention(filled);
        portable_fill_sample(filled);
        return filled;
    }();
    return table;
}

}  // namespace twostroke
