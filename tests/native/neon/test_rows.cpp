// Row ops: within a few units in the last place of portable, an element the same wherever it stands in a row,
// NaN and infinity where they belong, nothing read or written beyond the end.
#include <cmath>
#include <functional>

#include "checks.h"
#include "kernels/rows.h"

namespace twostroke::checks {
namespace {

constexpr int32_t kLongest = 70;

// out from two inputs of n floats each
using Op = std::function<void(const RowKernels&, const float* a, const float* b, int32_t n, float* out)>;
// The same run by run.
using RunsOp = std::function<void(const RowKernels&, const float* a, const float* b, int32_t n, float* out,
                                  const Runs& runs)>;

struct NamedOp {
    const char* name;
    RunsOp run;
};

const std::vector<NamedOp>& element_ops() {
    static const std::vector<NamedOp> ops = {
        {"silu", [](const RowKernels& k, const float* a, const float* b, int32_t n, float* out,
                    const Runs& runs) { k.glu(Activation::silu, a, b, n, out, runs); }},
        {"gelu_tanh", [](const RowKernels& k, const float* a, const float* b, int32_t n, float* out,
                         const Runs& runs) { k.glu(Activation::gelu_tanh, a, b, n, out, runs); }},
        {"add", [](const RowKernels& k, const float* a, const float* b, int32_t n, float* out,
                   const Runs& runs) { k.add(a, b, n, out, runs); }},
        {"scale", [](const RowKernels& k, const float* a, const float*, int32_t n, float* out,
                     const Runs& runs) { k.scale(a, n, 1.7f, out, runs); }},
        {"softcap", [](const RowKernels& k, const float* a, const float*, int32_t n, float* out,
                       const Runs& runs) { k.softcap(a, n, 3.0f, out, runs); }},
    };
    return ops;
}

bool is_near(float a, float b, float size) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b || std::fabs(a - b) <= 2e-6f * (std::fabs(b) + size);
}

// `size`: of the terms an element is the sum of.
void check_near(const float* got, const float* wanted, int32_t n, float size, const std::string& where) {
    for (int32_t i = 0; i < n; ++i) check(is_near(got[i], wanted[i], size), "differs from portable", where);
}

std::vector<float> run(const Op& op, const KernelTable& kernels, const std::vector<float>& a,
                       const std::vector<float>& b) {
    const auto n = static_cast<int32_t>(a.size());
    const Guarded<float> first(a), second(b), out(n);
    op(*kernels.rows, first.data(), second.data(), n, out.data());
    return {out.data(), out.data() + n};
}

void test_elements(const Isa& isa, const NamedOp& op, Random& random) {
    std::vector<float> a(kLongest), b(kLongest);
    for (float& x : a) x = 12 * random.symmetric();
    random.fill(b);
    const float odd[] = {0.0f,     -0.0f,     88.5f, -88.5f, 200.0f, -200.0f,
                         INFINITY, -INFINITY, NAN,   0.3f,   -0.3f,  0.2999f};
    std::copy(std::begin(odd), std::end(odd), a.begin() + 20);
    const std::string where = isa.name + " " + op.name;
    const Op once = [&](const RowKernels& k, const float* x, const float* y, int32_t n, float* out) {
        op.run(k, x, y, n, out, {});
    };
    const std::vector<float> whole = run(once, isa.kernels, a, b);
    check_near(whole.data(), run(once, portable(), a, b).data(), kLongest, 1e-6f, where);
    for (int32_t n = 0; n <= kLongest; ++n) {
        const std::vector<float> part =
            run(once, isa.kernels, {a.begin(), a.begin() + n}, {b.begin(), b.begin() + n});
        check(has_same_bits(part.data(), whole.data(), n), "an element depends on its row", where);
    }
    std::vector<float> in_place = a;
    once(*isa.kernels.rows, in_place.data(), b.data(), kLongest, in_place.data());
    check(has_same_bits(in_place.data(), whole.data(), kLongest), "in place", where);

    // The second input stays where it is: 3 runs of 20 elements, each of its own first input and output.
    constexpr int32_t kRun = 20;
    std::vector<float> apart(3 * kRun), again(kRun);
    op.run(*isa.kernels.rows, a.data(), b.data(), kRun, apart.data(), {3, 25, 0, kRun});
    for (int32_t i = 0; i < 3; ++i) {
        once(*isa.kernels.rows, a.data() + 25 * i, b.data(), kRun, again.data());
        check(has_same_bits(apart.data() + kRun * i, again.data(), kRun), "a run differs from it alone",
              where);
    }
}

void test_rmsnorm(const Isa& isa, Random& random) {
    for (int32_t n = 1; n <= kLongest; ++n) {
        std::vector<float> x(n), weight(n);
        random.fill(x);
        random.fill(weight);
        const Op op = [](const RowKernels& k, const float* a, const float* w, int32_t size, float* out) {
            k.rmsnorm(a, w, size, 1e-5f, out);
        };
        const std::string where = isa.name + " rmsnorm " + std::to_string(n);
        const std::vector<float> got = run(op, isa.kernels, x, weight);
        check_near(got.data(), run(op, portable(), x, weight).data(), n, 1e-6f, where);
        double squares = 0;
        for (const float v : x) squares += static_cast<double>(v) * v;
        for (int32_t i = 0; i < n; ++i) {
            const double wanted = x[i] / std::sqrt(squares / n + 1e-5) * weight[i];
            check(std::fabs(got[i] - wanted) <= 4e-7 * std::fabs(wanted) + 1e-9, "differs from float64",
                  where);
        }
    }
}

void test_rope(const Isa& isa, RopeStyle style, Random& random) {
    for (int32_t rotary = 2; rotary <= 40; rotary += 2) {
        const int32_t head_dim = rotary + rotary % 3;
        std::vector<float> x(head_dim), cos(rotary / 2), sin(rotary / 2);
        random.fill(x);
        for (int32_t i = 0; i < rotary / 2; ++i) {
            const float angle = 10 * random.symmetric();
            cos[i] = std::cos(angle), sin[i] = std::sin(angle);
        }
        const Guarded<float> from(x), cosines(cos), sines(sin), got(head_dim), wanted(head_dim);
        const auto turn = [&](const KernelTable& kernels, const float* in, float* out) {
            kernels.rows->rope(in, cosines.data(), sines.data(), head_dim, rotary, style, out);
        };
        const std::string where = isa.name + " rope " + std::to_string(rotary);
        turn(isa.kernels, from.data(), got.data());
        turn(portable(), from.data(), wanted.data());
        check_near(got.data(), wanted.data(), head_dim, 1.0f, where);
        turn(isa.kernels, from.data(), from.data());
        check(has_same_bits(from.data(), got.data(), head_dim), "in place", where);
    }
}

}  // namespace

void test_rows() {
    for (const Isa& isa : usable()) {
        Random random(4);
        for (const NamedOp& op : element_ops()) test_elements(isa, op, random);
        test_rmsnorm(isa, random);
        test_rope(isa, RopeStyle::halves, random);
        test_rope(isa, RopeStyle::pairs, random);
    }
}

}  // namespace twostroke::checks
