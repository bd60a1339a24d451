// What the numeric contract costs a product: the kernels of AVX-512, whose sums along K are one fp32 chain
// per output for every number of tokens, beside the same loops free to split that chain and to choose, for
// every shape, whatever is fastest. One core, weights in L2, alternating; needs AVX-512 with VNNI.
//
//   cmake -S . -B build/dev -DTWOSTROKE_BENCH=ON && cmake --build build/dev -t bench_contract &&
//   build/dev/bench_contract
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <random>
#include <vector>

#include "cpu.h"
#include "kernels/avx512/int8_dots.h"
#include "weight.h"

using namespace twostroke;
using namespace twostroke::avx512;

namespace {

constexpr int kRepeats = 31;
constexpr int32_t kRows = 512;
constexpr int32_t kTokens = 24;  // a multiple of every tile

// CPU time of this thread: what others run meanwhile does not count.
double now_s() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class T>
T* aligned(size_t count) {
    return static_cast<T*>(std::aligned_alloc(64, (count * sizeof(T) + 63) / 64 * 64));
}

// Activations of kTokens, and what a block adds beside its dot (the kernel's own preparation, done once
// here).
struct Input {
    explicit Input(int32_t K, const KernelTable& kernels)
        : stride(K + 64),
          block_stride(K / kBlock),
          a8(aligned<int8_t>(kTokens * stride)),
          scale(aligned<float>(kTokens * block_stride)),
          sum(aligned<int32_t>(kTokens * block_stride)),
          start(aligned<int32_t>(kTokens * block_stride)) {
        std::minstd_rand random(1);
        std::vector<float> x(K);
        for (int32_t t = 0; t < kTokens; t++) {
            for (float& value : x) value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
            kernels.quantise_a8(x.data(), K, a8 + t * stride, scale + t * block_stride,
                                sum + t * block_stride, nullptr);
            for (size_t b = 0; b < block_stride; b++)
                start[t * block_stride + b] = -8 * sum[t * block_stride + b];
        }
        all.a8 = a8, all.a8_stride = stride;
        all.a8_scale = scale, all.a8_sum = sum, all.a8_block_stride = block_stride;
    }
    const size_t stride, block_stride;
    int8_t* const a8;
    float* const scale;
    int32_t *const sum, *const start;
    Activations all;
};

// Q4_0 as the kernel does it, block b into fp32 chain b % kChains. One chain is the contract's order.
template <int T, int kChains>
void panel_of(const uint8_t* w, int32_t num_blocks, const Input& in, int32_t first, float* out) {
    const int8_t* a = in.a8 + first * in.stride;
    const float* scales = in.scale + first * in.block_stride;
    const int32_t* starts = in.start + first * in.block_stride;
    __m512 sum[kChains][T][2] = {};
    const auto add_block = [&](__m512(&chain)[T][2]) __attribute__((always_inline)) {
        __m512i dot[T][2];
        UNROLL
        for (int t = 0; t < T; t++) dot[t][0] = dot[t][1] = _mm512_set1_epi32(starts[t * in.block_stride]);
        UNROLL
        for (int j = 0; j < 4; j++) {
            add_nibble_group<false, false, T>(dot, w + 128 * j, w, a + 4 * j, in.stride);
            add_nibble_group<true, false, T>(dot, w + 128 * j, w, a + 16 + 4 * j, in.stride);
        }
        add_scaled<T>(chain, dot, load_halves(w + 512), load_halves(w + 544), scales, in.block_stride);
        w += 576, a += kBlock, scales++, starts++;
    };
    int32_t b = 0;
    for (; b + kChains <= num_blocks; b += kChains) {
        UNROLL
        for (int c = 0; c < kChains; c++) add_block(sum[c]);
    }
    for (; b < num_blocks; b++) add_block(sum[0]);
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int r = 0; r < 2; r++) {
            __m512 total = sum[0][t][r];
            UNROLL
            for (int c = 1; c < kChains; c++) total = _mm512_add_ps(total, sum[c][t][r]);
            _mm512_storeu_ps(out + (first + t) * kRows + 16 * r, total);
        }
    }
}

template <class Work>
double time_s(Work work) {
    const double start = now_s();
    work();
    return now_s() - start;
}

double median(std::vector<double>& values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

// Every way in turn, kRepeats times; the last row of a way is its median.
template <int T>
void report(int32_t K, const Weight& weight, const KernelTable& kernels) {
    const Input in(K, kernels);
    std::vector<float> out(static_cast<size_t>(kTokens) * kRows);
    void* scratch = aligned<uint8_t>(kLinearScratchBytes);
    const int repeats = std::max(1, 4'000'000 / (K * kTokens));  // long enough for the clock
    const auto tiles = [&](auto panel) {
        for (int i = 0; i < repeats; i++)
            for (int32_t p = 0; p < weight.num_panels; p++)
                for (int32_t first = 0; first < kTokens; first += T)
                    panel(weight.panel(p), first, out.data() + p * kPanelRows);
    };
    const auto kernel = [&](const uint8_t* w, int32_t first, float* to) {
        Activations from = in.all;
        from.a8 += first * in.stride;
        from.a8_scale += first * in.block_stride, from.a8_sum += first * in.block_stride;
        kernels.linear[static_cast<int32_t>(TensorType::Q4_0)](w, K, from, T, to + first * kRows, kRows,
                                                               kPanelRows, scratch);
    };
    const auto chains = [&](auto count) {
        return [&, count](const uint8_t* w, int32_t first, float* to) {
            panel_of<T, decltype(count)::value>(w, K / kBlock, in, first, to);
        };
    };
    std::vector<double> times[4];
    for (int i = 0; i < kRepeats; i++) {
        times[0].push_back(time_s([&] { tiles(kernel); }));
        times[1].push_back(time_s([&] { tiles(chains(std::integral_constant<int, 1>())); }));
        times[2].push_back(time_s([&] { tiles(chains(std::integral_constant<int, 2>())); }));
        times[3].push_back(time_s([&] { tiles(chains(std::integral_constant<int, 4>())); }));
    }
    const double ours = median(times[0]), one = median(times[1]), two = median(times[2]),
                 four = median(times[3]);
    const double macs = 1.0 * repeats * kRows * K * kTokens;
    std::printf(
        "K %5d  tokens %d  GMAC/s: kernel %6.1f | one chain %6.1f, two %6.1f, four %6.1f | order costs %5.1f "
        "%%\n",
        K, T, macs / ours / 1e9, macs / one / 1e9, macs / two / 1e9, macs / four / 1e9,
        100 * (one / std::min({one, two, four}) - 1));
    std::free(scratch);
}

}  // namespace

int main() {
    const KernelTable* kernels = find_kernels("avx512");
    if (!kernels) {
        std::fprintf(stderr, "this machine has no AVX-512 with VNNI\n");
        return 1;
    }
    for (const int32_t K : {576, 1536, 2048, 8192}) {
        Weight weight(TensorType::Q4_0, kRows, K);
        std::vector<uint8_t> source(kRows * row_bytes(TensorType::Q4_0, K));
        std::minstd_rand random(2);
        for (uint8_t& byte : source) byte = static_cast<uint8_t>(random() >> 8) & 0x3b;  // scales stay finite
        weight.pack(source.data(), 0, weight.num_panels);
        report<1>(K, weight, *kernels);
        report<2>(K, weight, *kernels);
        report<6>(K, weight, *kernels);
    }
}
