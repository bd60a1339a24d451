#include "weight.h"

#include <stdexcept>
#include <string>

namespace twostroke {

Weight::Weight(TensorType type, int32_t rows, int32_t cols)
    : type(type),
      rows(rows),
      cols(cols),
      num_panels(twostroke::num_panels(rows)),
      panel_bytes(twostroke::panel_bytes(type, cols)),
      pages_(num_bytes()) {
    if (cols > kMaxColumns) {
        throw std::length_error("a row of " + std::to_string(cols) +
                                " elements is longer than the limit of " + std::to_string(kMaxColumns));
    }
}

}  // namespace twostroke
