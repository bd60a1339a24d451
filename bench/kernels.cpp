// Speed of linear on one core, for every tensor type: GMAC/s and MAC/cycle of a prompt-sized matrix product,
// GB/s of weights for 1..8 tokens, beside the plain read bandwidth of the same buffer.
//
//   cmake -S . -B build/dev -DTWOSTROKE_BENCH=ON && cmake --build build/dev -t bench_kernels &&
//   build/dev/bench_kernels [ISA]
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cpu.h"
#include "weight.h"

using namespace twostroke;

namespace {

constexpr int kRepeats = 7;  // best of: the machine may be shared

// CPU time of this thread: what others run meanwhile does not count.
double now_s() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Work>
double best_s(Work work) {
    double best = 1e30;
    for (int i = 0; i < kRepeats; i++) {
        const double start = now_s();
        work();
        best = std::min(best, now_s() - start);
    }
    return best;
}

// Cycles per second from a chain of dependent additions, unrolled so that the loop itself is hidden.
double clock_hz() {
    uint64_t x = 0;
    const double time = best_s([&x] {
        for (int i = 0; i < 200'000; i++) {
#pragma GCC unroll 16
            for (int j = 0; j < 16; j++) __asm__ volatile("" : "+r"(++x));
        }
    });
    return 16 * 200e3 / time;
}

// Input in every arithmetic at once.
struct Input {
    Input(const KernelTable& kernels, int32_t tokens, int32_t K)
        : x(static_cast<size_t>(tokens) * K),
          bf16(x.size()),
          a8(x.size()),
          scale(x.size() / 32),
          sum(x.size() / 32),
          half_sum(x.size() / 16) {
        std::minstd_rand random(1);
        for (float& value : x) value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
        kernels.quantise_a8(x.data(), static_cast<int32_t>(x.size()), a8.data(), scale.data(), sum.data(),
                            half_sum.data());
        kernels.to_bf16(x.data(), static_cast<int32_t>(x.size()), bf16.data());
        const size_t stride = K;
        activations = {x.data(),   stride,      a8.data(),       stride,      scale.data(),
                       sum.data(), stride / 32, half_sum.data(), bf16.data(), stride};
    }
    std::vector<float> x;
    std::vector<uint16_t> bf16;
    std::vector<int8_t> a8;
    std::vector<float> scale;
    std::vector<int32_t> sum, half_sum;
    Activations activations;
};

// Random bits with every exponent field cleared of infinities: timing only.
std::vector<uint8_t> random_matrix(TensorType type, int32_t rows, int32_t cols) {
    std::vector<uint8_t> bytes(rows * row_bytes(type, cols));
    std::minstd_rand random(2);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() >> 8) & 0x3b;
    return bytes;
}

double linear_s(const KernelTable& kernels, const Weight& weight, const Input& input, int32_t tokens) {
    std::vector<float> out(static_cast<size_t>(tokens) * weight.num_panels * kPanelRows);
    std::unique_ptr<void, void (*)(void*)> scratch(std::aligned_alloc(64, kLinearScratchBytes), std::free);
    const size_t stride = weight.num_panels * kPanelRows;
    return best_s([&] {
        for (int32_t panel = 0; panel < weight.num_panels; panel++) {
            kernels.linear[static_cast<int32_t>(weight.type)](
                weight.panel(panel), weight.cols, input.activations, tokens, out.data() + panel * kPanelRows,
                stride, kPanelRows, scratch.get());
        }
    });
}

double read_s(const uint8_t* data, size_t size) {
    return best_s([&] {
        uint64_t sum[8] = {};
        for (size_t at = 0; at + 64 <= size; at += 64) {
            uint64_t line[8];
            std::memcpy(line, data + at, 64);
            for (int i = 0; i < 8; i++) sum[i] += line[i];
        }
        __asm__ volatile("" : : "r"(sum) : "memory");
    });
}

void report(const KernelTable& kernels, TensorType type, double hz) {
    const int32_t K = 1536, prompt = 192;
    const int32_t wide = static_cast<int32_t>((48u << 20) / row_bytes(type, K)) / kPanelRows * kPanelRows;
    const std::vector<uint8_t> source = random_matrix(type, wide, K);
    Weight large(type, wide, K);
    const double pack = best_s([&] { large.pack(source.data(), 0, large.num_panels); });
    Weight small(type, 1024, K);
    small.pack(source.data(), 0, small.num_panels);
    const Input input(kernels, prompt, K);
    const double gemm = linear_s(kernels, small, input, prompt);
    const double macs = 1024.0 * K * prompt;
    std::printf("%-5s pack %5.2f GB/s | %d tokens: %6.1f GMAC/s %5.1f MAC/cycle | read %5.1f GB/s, weights",
                tensor_type_name(type), source.size() / pack / 1e9, prompt, macs / gemm / 1e9,
                macs / gemm / hz, large.num_bytes() / read_s(large.data(), large.num_bytes()) / 1e9);
    for (int32_t tokens : {1, 2, 4, 8}) {
        std::printf(" T=%d %5.1f", tokens, large.num_bytes() / linear_s(kernels, large, input, tokens) / 1e9);
    }
    std::printf("\n");
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string isa(argc > 1 ? argv[1] : best_isa());
    const KernelTable* kernels = find_kernels(isa);
    if (!kernels) {
        std::fprintf(stderr, "this machine has no kernels for ISA '%s'\n", isa.c_str());
        return 1;
    }
    const double hz = clock_hz();
    std::printf("%s, %.2f GHz, one core\n", isa.c_str(), hz / 1e9);
    for (int32_t type = 0; type < kNumTensorTypes; type++)
        report(*kernels, static_cast<TensorType>(type), hz);
}
