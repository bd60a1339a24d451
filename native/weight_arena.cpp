#include "weight_arena.h"

#include <algorithm>

#include "checksum.h"

namespace twostroke {
std::span<uint8_t> WeightArena::piece(int32_t index) const {
    const size_t start = index * kPieceBytes;
    return {pages_->as<uint8_t>() + start, std::min(kPieceBytes, num_bytes() - start)};
}

std::vector<uint64_t> WeightArena::checksums(Pool& pool) const {
    std::vector<uint64_t> sums(num_pieces());
    pool.run([&](Worker& worker) {
        worker.for_each(num_pieces(), [&](int32_t index) {
            const std::span<const uint8_t> bytes = piece(index);
            sums[index] = checksum(bytes.data(), bytes.size());
        });
    });
    return sums;
}

}  // namespace twostroke
