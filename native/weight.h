// A packed weight matrix and the memory it lives in: its own, or a place in an arena it shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "pack.h"
#include "pages.h"

namespace twostroke {

class Weight {
  public:
    // Allocates; nothing is packed yet. `cols` is a multiple of the type's block, at most kMaxColumns.
    Weight(TensorType type, int32_t rows, int32_t cols);
    // Lives in `arena` from byte `offset` on, a multiple of 64; throws std::length_error where it does not
    // fit.
    Weight(TensorType type, int32_t rows, int32_t cols, std::shared_ptr<Pages> arena, size_t offset);

    // Packs panels [first, last) of `source`, the matrix as in the file. Threads take ranges of their own.
    void pack(const uint8_t* source, int32_t first, int32_t last) {
        pack_panels(type, source, rows, cols, first, last, data_);
    }

    const uint8_t* data() const { return data_; }
    const uint8_t* panel(int32_t index) const { return data() + static_cast<size_t>(index) * panel_bytes; }
    size_t num_bytes() const { return static_cast<size_t>(num_panels) * panel_bytes; }

    const TensorType type;
    const int32_t rows;
    const int32_t cols;
    const int32_t num_panels;
    const size_t panel_bytes;

  private:
    std::shared_ptr<Pages> pages_;
    uint8_t* data_;
};

}  // namespace twostroke
