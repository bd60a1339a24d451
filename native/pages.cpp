#include "pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>
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

Pages Pages::map_file(int file, uint64_t offset, size_t num_bytes) {
    Pages pages;
    pages.size_ = num_bytes;
    if (num_bytes == 0) return pages;
    pages.data_ = map_aligned(num_bytes);
    if (mmap(pages.data_, num_bytes, PROT_READ, MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset)) ==
        MAP_FAILED)
        throw std::system_error(errno, std::generic_category(), "mmap");
#ifdef MADV_HUGEPAGE
    madvise(pages.data_, num_bytes, MADV_HUGEPAGE);  // has it read from disk into huge pages
#endif
    madvise(pages.data_, num_bytes, MADV_WILLNEED);
    return pages;
}

size_t Pages::huge_bytes() const {
    std::FILE* areas = std::fopen("/proc/self/smaps", "r");
    if (areas == nullptr) return 0;
    const auto first = reinterpret_cast<unsigned long>(data_), last = first + size_;
    unsigned long start, end, kb, total_kb = 0;
    bool is_ours = false;
    char line[512];
    while (std::fgets(line, sizeof line, areas) != nullptr) {
        if (std::sscanf(line, "%lx-%lx ", &start, &end) ==
            2) {  // an area begins; what follows are facts of it
            is_ours = first <= start && start < last;
        } else if (is_ours && (std::sscanf(line, "AnonHugePages: %lu", &kb) == 1 ||
                               std::sscanf(line, "FilePmdMapped: %lu", &kb) == 1)) {
            total_kb += kb;
        }
    }
    std::fclose(areas);
    return size_t{1024} * total_kb;
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
