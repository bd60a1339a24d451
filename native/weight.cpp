#include "weight.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace twostroke {

Weight::Weight(TensorType type, int32_t rows, int32_t cols)
    : Weight(type, rows, cols, std::make_shared<Pages>(packed_bytes(type, rows, cols)), 0) {}

Weight::Weight(TensorType type, int32_t rows, int32_t cols, std::shared_ptr<Pages> arena, size_t offset)
    : type(type),
      rows(rows),
      cols(cols),
      num_panels(twostroke::num_panels(rows)),
      panel_bytes(twostroke::panel_bytes(type, cols)),
      pages_(std::move(arena)),
      data_(pages_->as<uint8_t>() + offset) {
    if (cols > kMaxColumns) {
        throw std::length_error("a row of " + std::to_string(cols) +
                                " elements is longer than the limit of " + std::to_string(kMaxColumns));
    }
    if (offset % 64 != 0 || offset > pages_->size() || num_bytes() > pages_->size() - offset) {
        throw std::length_error(std::to_string(num_bytes()) + " bytes at " + std::to_string(offset) +
                                " do not fit an arena of " + std::to_string(pages_->size()));
    }
}

}  // namespace twostroke
