#include "pages.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace twostroke {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;  // smaller areas would gain nothing

}  // namespace

Pages::Pages(size_t num_bytes) : size_(num_bytes) {
    if (num_bytes == 0) return;
    void* data =
        mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    data_ = data;
#ifdef MADV_HUGEPAGE
    if (num_bytes >= 4 * kHugePage) madvise(data, num_bytes, MADV_HUGEPAGE);  // a wish: refusal is fine
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
