#include "kernels/table.h"

#include "kernels/attention.h"
#include "kernels/linear.h"
#include "kernels/rows.h"
#include "kernels/sample.h"

namespace twostroke {

const KernelTable& avx512_kernels() {
    static const KernelTable table = [] {
        KernelTable filled = {};
        filled.isa = "avx512";
        avx512::fill_linear(filled);
        avx512::fill_rows(filled);
        avx512::fill_attention(filled);
        avx512::fill_sample(filled);
        return filled;
    }();
    return table;
}

}  // namespace twostroke
