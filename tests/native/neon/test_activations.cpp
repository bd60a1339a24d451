// Inputs of a linear: the same integers, scales and bf16 on every ISA.
#include <bit>
#include <cmath>

#include "checks.h"

namespace twostroke::checks {
namespace {

struct Quantised {
    explicit Quantised(int32_t K) : q(K), scale(K / 32), sum(K / 32), half_sum(K / 16) {}
    Guarded<int8_t> q;
    Guarded<float> scale;
    Guarded<int32_t> sum, half_sum;
};

void quantise(const KernelTable& kernels, const Guarded<float>& x, Quantised& out) {
    kernels.quantise_a8(x.data(), static_cast<int32_t>(x.size()), out.q.data(), out.scale.data(),
                        out.sum.data(), out.half_sum.data());
}

void test_quantise(const Isa& isa, const std::vector<float>& values, const char* what) {
    const auto K = static_cast<int32_t>(values.size());
    const Guarded<float> x(values);
    Quantised got(K), wanted(K);
    quantise(isa.kernels, x, got);
    quantise(portable(), x, wanted);
    const std::string where = isa.name + " quantise_a8, " + what;
    check(std::memcmp(got.q.data(), wanted.q.data(), K) == 0, "integers", where);
    check(std::memcmp(got.sum.data(), wanted.sum.data(), K / 32 * 4) == 0, "sums", where);
    check(std::memcmp(got.half_sum.data(), wanted.half_sum.data(), K / 16 * 4) == 0, "half sums", where);
    for (int32_t i = 0; i < K / 32; ++i) {
        const float a = got.scale.data()[i], b = wanted.scale.data()[i];
        check(std::isnan(a) ? std::isnan(b) : has_same_bits(&a, &b, 1), "scales", where);
    }
    isa.kernels.quantise_a8(x.data(), K, got.q.data(), got.scale.data(), got.sum.data(), nullptr);
    check(std::memcmp(got.sum.data(), wanted.sum.data(), K / 32 * 4) == 0, "sums without half sums", where);
}

void test_bf16(const Isa& isa) {
    Random random(3);
    for (int32_t n = 0; n < 40; ++n) {
        std::vector<float> values(n);
        for (float& x : values) x = std::bit_cast<float>(random.word() | 0x00800000);  // no denormals
        if (n > 2) values[1] = NAN;
        if (n > 3) values[2] = INFINITY;
        const Guarded<float> x(values);
        const Guarded<uint16_t> got(n), wanted(n);
        isa.kernels.to_bf16(x.data(), n, got.data());
        portable().to_bf16(x.data(), n, wanted.data());
        check(std::memcmp(got.data(), wanted.data(), 2 * n) == 0, "to_bf16",
              isa.name + " " + std::to_string(n));
    }
}

}  // namespace

void test_activations() {
    for (const Isa& isa : usable()) {
        Random random(2);
        std::vector<float> x(96);
        for (int round = 0; round < 50; ++round) {
            for (float& value : x) value = std::ldexp(random.symmetric(), random.below(40) - 20);
            test_quantise(isa, x, "random");
        }
        for (const float odd : {0.0f, -0.0f, 1e-40f, 1e-31f, 3e38f, INFINITY, -INFINITY, NAN}) {
            random.fill(x);
            x[40] = odd;
            test_quantise(isa, x, "one odd value");
            test_quantise(isa, std::vector<float>(32, odd), "odd values");
        }
        for (int32_t i = 0; i < 32; ++i) x[i] = static_cast<float>(i) - 15.5f;  // ties
        x[31] = 127.0f;
        test_quantise(isa, x, "ties");
        test_bf16(isa);
    }
}

}  // namespace twostroke::checks
