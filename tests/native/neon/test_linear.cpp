// Linear of every type: within a bound of float64, whole numbers as the portable kernels add them, a token
// the same alone as among others, rows the same on any thread, and no byte touched beyond what was passed in.
#include <cmath>

#include "pool.h"
#include "prepared.h"
#include "weights.h"

namespace twostroke::checks {
namespace {

constexpr float kUntouched = 12345.0f;

// Tokens in the arithmetic of a type, strides wider than rows; the last token ends at an unreadable page.
class Tokens {
  public:
    Tokens(TensorType type, int32_t num_tokens, int32_t K, Random& random)
        : arithmetic_(arithmetic_of(type)),
          num_tokens_(num_tokens),
          K_(K),
          stride_(K + 64),
          block_stride_(K / 32 + 2),
          values_(reach(stride_, K)),
          a8_(arithmetic_ == Arithmetic::int8 ? reach(stride_, K) : 0),
          scale_(reach(block_stride_, K / 32)),
          sum_(reach(block_stride_, K / 32)),
          scaled_sum_(reach(block_stride_, K / 32)),
          half_sum_(reach(2 * block_stride_, K / 16)),
          bf16_(reach(stride_, K + K % 2)) {
        for (int32_t t = 0; t < num_tokens; ++t) prepare(t, random);
    }
    Activations from(int32_t token) const {
        Activations in;
        if (arithmetic_ == Arithmetic::fp32)
            in.f32 = values_.data() + token * stride_, in.f32_stride = stride_;
        if (arithmetic_ == Arithmetic::bf16)
            in.bf16 = bf16_.data() + token * stride_, in.bf16_stride = stride_;
        if (arithmetic_ != Arithmetic::int8) return in;
        in.a8 = a8_.data() + token * stride_;
        in.a8_stride = stride_;
        in.a8_scale = scale_.data() + token * block_stride_;
        in.a8_sum = sum_.data() + token * block_stride_;
        in.a8_scaled_sum = scaled_sum_.data() + token * block_stride_;
        in.a8_block_stride = block_stride_;
        in.a8_half_sum = half_sum_.data() + 2 * token * block_stride_;
        return in;
    }
    // Element k of a token as the kernels see it.
    double at(int32_t token, int32_t k) const {
        if (arithmetic_ == Arithmetic::fp32) return values_.data()[token * stride_ + k];
        if (arithmetic_ == Arithmetic::int8)
            return static_cast<double>(a8_.data()[token * stride_ + k]) *
                   scale_.data()[token * block_stride_ + k / 32];
        const uint32_t bits = static_cast<uint32_t>(bf16_.data()[token * stride_ + k]) << 16;
        float widened;
        std::memcpy(&widened, &bits, 4);
        return widened;
    }

  private:
    size_t reach(size_t stride, size_t n) const { return (num_tokens_ - 1) * stride + n; }
    void prepare(int32_t t, Random& random) {
        float* x = values_.data() + t * stride_;
        for (int32_t k = 0; k < K_; ++k) x[k] = random.symmetric();
        uint16_t* halves = bf16_.data() + t * stride_;
        if (K_ % 2 != 0) halves[K_] = 0;
        portable().to_bf16(x, K_, halves);
        if (arithmetic_ != Arithmetic::int8) return;
        const size_t at = t * block_stride_;
        portable().quantise_a8(x, K_, a8_.data() + t * stride_, scale_.data() + at, sum_.data() + at,
                               half_sum_.data() + 2 * at);
        scale_sums(scale_.data() + at, sum_.data() + at, K_ / 32, scaled_sum_.data() + at);
    }

    Arithmetic arithmetic_;
    int32_t num_tokens_, K_;
    size_t stride_, block_stride_;
    Guarded<float> values_;
    Guarded<int8_t> a8_;
    Guarded<float> scale_;
    Guarded<int32_t> sum_;
    Guarded<float> scaled_sum_;
    Guarded<int32_t> half_sum_;
    Guarded<uint16_t> bf16_;
};

struct Case {
    TensorType type;
    int32_t rows, K, num_tokens;

    std::string name(const Isa& isa) const {
        return isa.name + " " + tensor_type_name(type) + " rows " + std::to_string(rows) + " K " +
               std::to_string(K) + " tokens " + std::to_string(num_tokens);
    }
};

// [tokens][rows + 3]; what lies between rows is left alone.
std::vector<float> multiply(const KernelTable& kernels, const Case& of, const uint8_t* panel,
                            const Tokens& tokens, int32_t first, int32_t count) {
    alignas(64) static uint8_t scratch[kLinearScratchBytes];
    const size_t stride = of.rows + 3;
    const Guarded<float> out((count - 1) * stride + of.rows);
    for (size_t i = 0; i < out.size(); ++i) out.data()[i] = kUntouched;
    kernels.linear[static_cast<int32_t>(of.type)](panel, of.K, tokens.from(first), count, out.data(), stride,
                                                  of.rows, scratch);
    return {out.data(), out.data() + out.size()};
}

void test_gaps(const Case& of, const std::vector<float>& out, const std::string& where) {
    bool is_untouched = true;
    for (size_t i = 0; i < out.size(); ++i)
        is_untouched &= i % (of.rows + 3) < static_cast<size_t>(of.rows) || out[i] == kUntouched;
    check(is_untouched, "wrote beside the rows", where);
}

// The sum and the sum of sizes, in float64, of every output; an int8 type rounds once a block, others once an
// element.
void test_bound(const Case& of, const uint8_t* panel, const Tokens& tokens, const std::vector<float>& out,
                const std::string& where) {
    const double num_roundings = arithmetic_of(of.type) == Arithmetic::int8 ? of.K / 8 + 8 : of.K + 8;
    std::vector<float> row(of.K);
    for (int32_t r = 0; r < of.rows; ++r) {
        unpack_row(of.type, panel, r, of.K, row.data());
        for (int32_t t = 0; t < of.num_tokens; ++t) {
            double sum = 0, size = 0;
            for (int32_t k = 0; k < of.K; ++k) {
                sum += row[k] * tokens.at(t, k);
                size += std::fabs(row[k] * tokens.at(t, k));
            }
            const double error = std::fabs(out[t * (of.rows + 3) + r] - sum);
            check(error <= num_roundings * 0x1p-23 * size, "differs from float64", where);
        }
    }
}

void test_case(const Isa& isa, const Case& of) {
    Random random(of.K * 100 + of.num_tokens);
    const Guarded<uint8_t> panel(make_panel(of.type, of.rows, of.K, random));
    const Tokens tokens(of.type, of.num_tokens, of.K, random);
    const std::string where = of.name(isa);
    const std::vector<float> all = multiply(isa.kernels, of, panel.data(), tokens, 0, of.num_tokens);
    test_gaps(of, all, where);
    test_bound(of, panel.data(), tokens, all, where);
    if (arithmetic_of(of.type) == Arithmetic::int8) {
        const std::vector<float> wanted = multiply(portable(), of, panel.data(), tokens, 0, of.num_tokens);
        check(has_same_bits(all.data(), wanted.data(), all.size()), "differs from portable", where);
    }
    for (int32_t t = 0; t < of.num_tokens; ++t) {
        const std::vector<float> alone = multiply(isa.kernels, of, panel.data(), tokens, t, 1);
        check(has_same_bits(alone.data(), all.data() + t * (of.rows + 3), of.rows), "a token differs alone",
              where);
    }
}

std::vector<int32_t> columns(TensorType type) {
    if (block_elements(type) == 256) return {256, 768};
    if (block_elements(type) == 32) return {32, 96, 576};  // 576: more blocks than a piece
    return {1, 2, 31, 64, 129};
}

// Every activation and every weight at its end: sums of bytes are at their largest.
void test_extremes(const Isa& isa, TensorType type) {
    if (type == TensorType::Q6_K || block_elements(type) == 1) return;
    for (const uint8_t fill : {0x00, 0xFF, 0x80, 0x7F}) {
        const Case of = {type, 32, 256, 3};
        std::vector<uint8_t> source(32 * row_bytes(type, of.K), fill);
        const uint16_t one = 0x3C00;
        for (size_t at = 0; at < source.size(); at += block_bytes(type)) {
            std::memcpy(source.data() + at, &one, 2);
            if (type != TensorType::Q8_0 && type != TensorType::Q4_0 && type != TensorType::Q5_0)
                std::memcpy(source.data() + at + 2, &one, 2);
        }
        const Guarded<uint8_t> panel(panel_bytes(type, of.K));
        pack_panels(type, source.data(), 32, of.K, 0, 1, panel.data());
        std::vector<int8_t> a8(3 * of.K);
        for (int32_t i = 0; i < 3 * of.K; ++i)
            a8[i] = static_cast<int8_t>(i < of.K || (i < 2 * of.K && i % 2) ? 127 : -127);
        std::vector<float> scale(3 * 8, 1.0f);
        std::vector<int32_t> sum(3 * 8), half_sum(3 * 16);
        for (int32_t i = 0; i < 3 * of.K; ++i) sum[i / 32] += a8[i], half_sum[i / 16] += a8[i];
        std::vector<float> scaled_sum(3 * 8);
        scale_sums(scale.data(), sum.data(), 3 * 8, scaled_sum.data());
        Activations in;
        in.a8_scaled_sum = scaled_sum.data();
        in.a8 = a8.data(), in.a8_stride = of.K, in.a8_scale = scale.data(), in.a8_sum = sum.data();
        in.a8_half_sum = half_sum.data(), in.a8_block_stride = 8;
        alignas(64) static uint8_t scratch[kLinearScratchBytes];
        float got[3 * 32], wanted[3 * 32];
        isa.kernels.linear[static_cast<int32_t>(type)](panel.data(), of.K, in, 3, got, 32, 32, scratch);
        portable().linear[static_cast<int32_t>(type)](panel.data(), of.K, in, 3, wanted, 32, 32, scratch);
        check(has_same_bits(got, wanted, 3 * 32), "extremes differ from portable", of.name(isa));
    }
}

// Panels of a wider matrix taken by the threads of a pool.
void test_threads(const Isa& isa) {
    const int32_t num_panels = 7, K = 96, num_tokens = 5;
    Random random(11);
    const std::vector<uint8_t> source = make_source(TensorType::Q4_0, 32 * num_panels, K, random);
    const size_t bytes = panel_bytes(TensorType::Q4_0, K);
    const Guarded<uint8_t> packed(num_panels * bytes);
    pack_panels(TensorType::Q4_0, source.data(), 32 * num_panels, K, 0, num_panels, packed.data());
    const Tokens tokens(TensorType::Q4_0, num_tokens, K, random);
    std::vector<float> first;
    for (const int num_threads : {1, 2, 3}) {
        Pool pool(num_threads);
        std::vector<float> out(num_tokens * 32 * num_panels);
        for (int run = 0; run < 20; ++run) {
            pool.run([&](Worker& worker) {
                alignas(64) thread_local uint8_t scratch[kLinearScratchBytes];
                worker.for_each(num_panels, [&](int32_t panel) {
                    isa.kernels.linear[static_cast<int32_t>(TensorType::Q4_0)](
                        packed.data() + panel * bytes, K, tokens.from(0), num_tokens, out.data() + 32 * panel,
                        32 * num_panels, 32, scratch);
                });
                worker.barrier();
            });
            if (first.empty()) first = out;
            check(has_same_bits(out.data(), first.data(), out.size()), "threads change bits", isa.name);
        }
    }
}

}  // namespace

void test_linear() {
    for (const Isa& isa : usable()) {
        for (const TensorType type : kTypes) {
            for (const int32_t K : columns(type)) {
                for (int32_t num_tokens = 1; num_tokens <= 20; ++num_tokens)
                    test_case(isa, {type, num_tokens % 3 == 0 ? 1 + num_tokens : 32, K, num_tokens});
                for (const int32_t rows : {1, 4, 17, 31}) test_case(isa, {type, rows, K, 2});
            }
            test_extremes(isa, type);
        }
        test_threads(isa);
    }
}

}  // namespace twostroke::checks
