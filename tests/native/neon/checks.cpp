#include "checks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "cpu.h"

namespace twostroke::checks {
namespace {

struct Counts {
    int64_t checks = 0, failures = 0;
};
Counts counts;
constexpr int64_t kShown = 20;

size_t page_size() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

const std::vector<Isa>& usable() {
    static const std::vector<Isa> isas = [] {
        std::vector<Isa> found;
        for (std::string_view name : usable_isas()) found.push_back({std::string(name), *find_kernels(name)});
        return found;
    }();
    return isas;
}

const KernelTable& portable() { return portable_kernels(); }

void check(bool holds, const char* what, const std::string& where) {
    ++counts.checks;
    if (holds) return;
    if (++counts.failures <= kShown) std::printf("FAILED %s: %s\n", where.c_str(), what);
}
int64_t num_checks() { return counts.checks; }
int64_t num_failures() { return counts.failures; }

bool has_same_bits(const float* a, const float* b, size_t n) {
    return std::memcmp(a, b, n * sizeof(float)) == 0;
}

uint64_t digest(const void* bytes, size_t n) {
    uint64_t hash = 0xCBF29CE484222325;
    for (size_t i = 0; i < n; ++i) hash = (hash ^ static_cast<const uint8_t*>(bytes)[i]) * 0x100000001B3;
    return hash;
}

uint32_t Random::word() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<uint32_t>(state_ * 0x2545F4914F6CDD1D >> 32);
}

GuardedBytes::GuardedBytes(size_t num_bytes) : num_bytes_(num_bytes) {
    const size_t page = page_size();
    size_ = (num_bytes + page - 1) / page * page + page;
    void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) std::abort();
    begin_ = static_cast<uint8_t*>(at);
    end_ = begin_ + size_ - page;
    if (mprotect(end_, page, PROT_NONE) != 0) std::abort();
}

GuardedBytes::~GuardedBytes() { munmap(begin_, size_); }

}  // namespace twostroke::checks
