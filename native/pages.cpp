#include "pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>
#include <utility>

namespace twostroke {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;
constexpr size_t kLarge = 4 * kHugePage;  // smaller areas would gain nothing

uint8_t* map(size_t num_bytes) {
    void* data =
        mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    return static_cast<uint8_t*>(data);
}

// An area that starts where a huge page does: one more is reserved, and what lies around the area given back.
uint8_t* map_aligned(size_t num_bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t whole = (num_bytes + page - 1) / page * page;
    uint8_t* reserved = map(whole + kHugePage);
    const size_t before = -reinterpret_cast<uintptr_t>(reserved) % kHugePage;
    uint8_t* data = reserved + before;
    if (before != 0) munmap(reserved, before);
    munmap(data + whole, kHugePage - before);
    return data;
}

}  // namespace

Pages::Pages(size_t num_bytes) : size_(num_bytes) {
    if (num_bytes == 0) return;
    if (num_bytes < kLarge) {
        data_ = map(num_bytes);
        return;
    }
    data_ = map_aligned(num_bytes);
#ifdef MADV_HUGEPAGE
    madvise(data_, num_bytes, MADV_HUGEPAGE);  // a wish: refusal is fine
#endif
}

Pages::~Pages() {
    if (data_ != nullptr) munmap(data_, size_);
}

Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

}  // namespace twostroke
