// The packed matrices of a model, one after another in one piece of memory, so that huge pages hold them all.
#pragma once

#include <cstddef>
#include <memory>

#include "pages.h"

namespace twostroke {

class WeightArena {
  public:
    explicit WeightArena(size_t num_bytes) : pages_(std::make_shared<Pages>(num_bytes)) {}

    size_t num_bytes() const { return pages_->size(); }
    // What a weight shares: it outlives the arena where a weight does.
    const std::shared_ptr<Pages>& pages() const { return pages_; }

  private:
    std::shared_ptr<Pages> pages_;
};

}  // namespace twostroke
