// What the kernel tests share: checks that are counted, numbers that are the same on every machine, and
// memory that faults when it is overrun.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/table.h"

namespace twostroke::checks {

// A kernel table by name. Every test goes over all this machine can run.
struct Isa {
    std::string name;
    const KernelTable& kernels;
};
const std::vector<Isa>& usable();
const KernelTable& portable();

// Counts; says what failed, the first few times.
void check(bool holds, const char* what, const std::string& where);
int64_t num_checks();
int64_t num_failures();

bool has_same_bits(const float* a, const float* b, size_t n);
// FNV-1a of bytes: what was computed once on one machine must be so on all.
uint64_t digest(const void* bytes, size_t n);

// xorshift64*: the same numbers everywhere.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15 + 1) {}
    uint32_t word();
    int32_t below(int32_t bound) { return static_cast<int32_t>(word() % static_cast<uint32_t>(bound)); }
    float uniform() { return static_cast<float>(word() >> 8) * 0x1p-24f; }
    float symmetric() { return 2.0f * uniform() - 1.0f; }  // [-1, 1)
    void fill(std::vector<float>& out) {
        for (float& x : out) x = symmetric();
    }

  private:
    uint64_t state_;
};

// `num_bytes` that end where an unreadable page begins.
class GuardedBytes {
  public:
    explicit GuardedBytes(size_t num_bytes);
    ~GuardedBytes();
    GuardedBytes(const GuardedBytes&) = delete;
    GuardedBytes& operator=(const GuardedBytes&) = delete;
    uint8_t* data() const { return end_ - num_bytes_; }

  private:
    size_t num_bytes_;
    size_t size_;
    uint8_t* begin_;
    uint8_t* end_;
};

template <class T>
class Guarded : GuardedBytes {
  public:
    explicit Guarded(size_t n) : GuardedBytes(n * sizeof(T)), size_(n) {}
    explicit Guarded(const std::vector<T>& from) : Guarded(from.size()) {
        std::memcpy(data(), from.data(), from.size() * sizeof(T));
    }
    T* data() const { return reinterpret_cast<T*>(GuardedBytes::data()); }
    size_t size() const { return size_; }

  private:
    size_t size_;
};

void test_machine(const std::vector<std::string>& expected);
void test_pack();
void test_activations();
void test_linear();
void test_rows();
void test_attention();
void test_sample();

}  // namespace twostroke::checks
