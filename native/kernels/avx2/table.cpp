#include "kernels/table.h"

#include "kernels/attention.h"
#include "kernels/linear.h"
#include "kernels/rows.h"
#include "kernels/sample.h"

namespace twostroke {

const KernelTable& avx2_kernels() {
    static const KernelTable table = [] {
        KernelTable filled = {};
        filled.isa = "avx2";
        avx2::fill_linear(filled);
        avx2::fill_rows(filled);
        avx2::fill_attention(filled);
        portable_fill_sample(filled);
        return filled;
    }();
    return table;
}

}  // namespace twostroke
