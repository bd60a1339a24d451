// Memory straight from the system, in whole pages: zeroed or a file's, touched lazily, aligned for any
// kernel. Large areas ask for huge pages: reads of small ones reach three fifths of the bandwidth (measured,
// 96 MB on two threads).
#pragma once

#include <cstddef>
#include <cstdint>

namespace twostroke {

class Pages {
  public:
    Pages() = default;
    // Throws std::bad_alloc when the system refuses.
    explicit Pages(size_t num_bytes);
    // Bytes of a file from `offset` on, a multiple of the page size, to be read alone. Throws
    // std::system_error.
    static Pages map_file(int file, uint64_t offset, size_t num_bytes);
    ~Pages();
    Pages(Pages&& other) noexcept;
    Pages& operator=(Pages&& other) noexcept;

    size_t size() const { return size_; }
    // Bytes that are in memory as huge pages now; 0 where the system does not tell.
    size_t huge_bytes() const;
    template <class T = std::byte>
    T* as() const {
        return static_cast<T*>(data_);
    }

  private:
    void* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace twostroke
