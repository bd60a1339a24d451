#include "kernels/table.h"

#include "kernels/attention.h"
#include "kernels/linear.h"
#include "kernels/rows.h"
#include "kernels/sample.h"

namespace twostroke {

const KernelTable& portable_kernels() {
    static const KernelTable table = [] {
        KernelTable filled = {};
        filled.isa = "portable";
        portable_fill_linear(filled);
        portable_fill_rows(filled);
        portable_fill_attention(filled);
        portable_fill_sample(filled);
        return filled;
    }();
    return table;
}

}  // namespace twostroke
