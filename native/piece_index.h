// The texts of a vocabulary, found by id and by text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace twostroke {

// Texts behind one another in memory. Of equal texts the lowest id is found.
class PieceIndex {
  public:
    // `ends` holds where each text ends, in the order of ids.
    PieceIndex(std::string texts, std::vector<size_t> ends);

    int32_t size() const { return static_cast<int32_t>(ends_.size()); }
    bool has(int32_t id) const { return id >= 0 && id < size(); }
    std::string_view text(int32_t id) const;
    std::optional<int32_t> find(std::string_view text) const;

  private:
    struct Slot {
        uint32_t hash;
        int32_t id;  // negative: free
    };

    // The slot of this text, or the free one where it would be.
    size_t slot_of(std::string_view text, uint32_t hash) const;

    std::string texts_;
    std::vector<size_t> ends_;
    std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
};

}  // namespace twostroke
