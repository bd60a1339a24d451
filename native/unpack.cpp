#include "kernels/portable/unpack.h"

#include "pack.h"

namespace twostroke {

void unpack_row(TensorType type, const uint8_t* packed, int32_t row, int32_t K, float* out) {
    const uint8_t* panel = packed + static_cast<size_t>(row / kPanelRows) * panel_bytes(type, K);
    portable::unpack_columns<1>(type, panel, 0, K, row % kPanelRows, out);
}

}  // namespace twostroke
