// Runs of GGUF strings, each a 64-bit length and that many bytes, inside a file that is not to be trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace twostroke {

// A position in the bytes that takes one string after the other and never passes the end.
class StringCursor {
  public:
    StringCursor(const uint8_t* data, size_t size, size_t position)
        : data_(data), size_(size), position_(position) {}

    // The next string, or nothing where it does not fit in what is left; the position then stays.
    std::optional<std::string_view> next();

    size_t position() const { return position_; }

  private:
    const uint8_t* data_;
    size_t size_;
    size_t position_;  // at most size_
};

}  // namespace twostroke
