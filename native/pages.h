// Zeroed memory straight from the system, in whole pages: touched lazily, aligned for any kernel. Large areas
// ask for huge pages: reads of small ones reach three fifths of the bandwidth (measured, 96 MB on two
// threads).
#pragma once

#include <cstddef>

namespace twostroke {

class Pages {
  public:
    Pages() = default;
    // Throws std::bad_alloc when the system refuses.
    explicit Pages(size_t num_bytes);
    ~Pages();
    Pages(Pages&& other) noexcept;
    Pages& operator=(Pages&& other) noexcept;

    size_t size() const { return size_; }
    template <class T = std::byte>
    T* as() const {
        return static_cast<T*>(data_);
    }

  private:
    void* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace twostroke
