#include "piece_index.h"

#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

namespace twostroke {
namespace {

// Eight bytes at a time through a multiplication, whose high bits depend on all of them.
uint32_t hash_of(std::string_view text) {
    constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
    uint64_t hash = text.size();
    while (!text.empty()) {
        uint64_t word = 0;
        const size_t num_bytes = std::min(text.size(), sizeof(word));
        std::memcpy(&word, text.data(), num_bytes);
        hash = (hash ^ word) * kGoldenRatio;
        hash ^= hash >> 32;
        text.remove_prefix(num_bytes);
    }
    return static_cast<uint32_t>(hash);
}

}  // namespace

PieceIndex::PieceIndex(std::string texts, std::vector<size_t> ends)
    : texts_(std::move(texts)), ends_(std::move(ends)) {
    if (ends_.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
        throw std::length_error(std::to_string(ends_.size()) + " pieces: ids are 32-bit numbers");
    slots_.assign(std::bit_ceil(2 * ends_.size() + 1), {0, -1});
    for (int32_t id = 0; id < size(); ++id) {
        const uint32_t hash = hash_of(text(id));
        Slot& slot = slots_[slot_of(text(id), hash)];
        if (slot.id < 0) slot = {hash, id};
    }
}

std::string_view PieceIndex::text(int32_t id) const {
    const size_t start = id == 0 ? 0 : ends_[id - 1];
    return std::string_view(texts_).substr(start, ends_[id] - start);
}

std::optional<int32_t> PieceIndex::find(std::string_view text) const {
    const int32_t id = slots_[slot_of(text, hash_of(text))].id;
    return id < 0 ? std::nullopt : std::optional(id);
}

size_t PieceIndex::slot_of(std::string_view wanted, uint32_t hash) const {
    const size_t mask = slots_.size() - 1;
    size_t at = hash & mask;
    while (slots_[at].id >= 0 && (slots_[at].hash != hash || text(slots_[at].id) != wanted))
        at = (at + 1) & mask;
    return at;
}

}  // namespace twostroke
