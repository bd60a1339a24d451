#include "gguf_scan.h"

#include <cstring>

namespace twostroke {

std::optional<std::string_view> StringCursor::next() {
    uint64_t length;
    if (size_ - position_ < sizeof(length)) return std::nullopt;
    std::memcpy(&length, data_ + position_,
                sizeof(length));  // the platforms are little-endian, as the format is
    if (length > size_ - position_ - sizeof(length)) return std::nullopt;
    const char* text = reinterpret_cast<const char*>(data_ + position_ + sizeof(length));
    position_ += sizeof(length) + length;
    return std::string_view(text, length);
}

}  // namespace twostroke
