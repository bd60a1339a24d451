#include "weight.h"

#include <cstdlib>
#include <new>

namespace twostroke {

Weight::Weight(TensorType type, int32_t rows, int32_t cols)
    : type(type),
      rows(rows),
      cols(cols),
      num_panels(twostroke::num_panels(rows)),
      panel_bytes(twostroke::panel_bytes(type, cols)) {
    const size_t size = num_bytes() > 0 ? num_bytes() : 64;
    data_.reset(static_cast<uint8_t*>(std::aligned_alloc(64, size)));
    if (!data_) throw std::bad_alloc();
}

void Weight::Free::operator()(uint8_t* data) const { std::free(data); }

}  // namespace twostroke
