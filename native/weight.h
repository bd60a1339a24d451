// A packed weight matrix and the memory it lives in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "pack.h"

namespace twostroke {

class Weight {
  public:
    // Allocates; nothing is packed yet. `cols` must be a multiple of the type's block.
    Weight(TensorType type, int32_t rows, int32_t cols);

    // Packs panels [first, last) of `source`, the matrix as in the file. Threads take ranges of their own.
    void pack(const uint8_t* source, int32_t first, int32_t last) {
        pack_panels(type, source, rows, cols, first, last, data_.get());
    }

    const uint8_t* data() const { return data_.get(); }
    const uint8_t* panel(int32_t index) const {
        return data_.get() + static_cast<size_t>(index) * panel_bytes;
    }
    size_t num_bytes() const { return static_cast<size_t>(num_panels) * panel_bytes; }

    const TensorType type;
    const int32_t rows;
    const int32_t cols;
    const int32_t num_panels;
    const size_t panel_bytes;

  private:
    struct Free {
        void operator()(uint8_t* data) const;
    };
    std::unique_ptr<uint8_t[], Free> data_;  // 64-byte aligned
};

}  // namespace twostroke
