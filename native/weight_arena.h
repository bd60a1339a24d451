// The packed matrices of a model, one after another in one piece of memory, so that huge pages hold them all.
//
// It is packed into, or maps a file of the same bytes: nothing is copied then, and processes share it. Where
// the system's cache holds the file in huge pages it is read as fast as memory of our own, else it is two
// fifths slower (measured): `huge_bytes` tells. A file that somebody cuts while it is mapped ends the process
// with SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pages.h"
#include "pool.h"

namespace twostroke {

class WeightArena {
  public:
    // Bytes under one checksum: few enough to be summed from the cache they were read into.
    static constexpr size_t kPieceBytes = size_t{1} << 19;

    explicit WeightArena(size_t num_bytes) : pages_(std::make_shared<Pages>(num_bytes)), is_mapped_(false) {}
    WeightArena(int file, uint64_t offset, size_t num_bytes)
        : pages_(std::make_shared<Pages>(Pages::map_file(file, offset, num_bytes))), is_mapped_(true) {}

    // A mapped one cannot be packed into.
    bool is_mapped() const { return is_mapped_; }
    size_t num_bytes() const { return pages_->size(); }
    // What a weight shares: it outlives the arena where a weight does.
    const std::shared_ptr<Pages>& pages() const { return pages_; }

    // Of every piece, in order; touches every page. All threads of the pool share the work.
    std::vector<uint64_t> checksums(Pool& pool) const;

  private:
    int32_t num_pieces() const { return static_cast<int32_t>((num_bytes() + kPieceBytes - 1) / kPieceBytes); }
    std::span<uint8_t> piece(int32_t index) const;

    std::shared_ptr<Pages> pages_;
    bool is_mapped_;
};

}  // namespace twostroke
