// Attention: stored bytes are those of portable, partials within a bound of it, a query the same alone as in
// a tile, and what a query does not see - NaN, or no memory at all - leaves no trace.
#include <cmath>
#include <cstdlib>
#include <limits>

#include "checks.h"
#include "kernels/attention.h"

namespace twostroke::checks {
namespace {

constexpr KVPrecision kPrecisions[] = {KVPrecision::f32, KVPrecision::f16, KVPrecision::bf16,
                                       KVPrecision::int8};
constexpr const char* kNames[] = {"f32", "f16", "bf16", "int8"};

struct Case {
    KVPrecision precision;
    int32_t num_tokens, heads, head_dim, first_pos, chunk_pos, window;
    float softcap;

    std::string name(const Isa& isa) const {
        return isa.name + " attention " + kNames[static_cast<int>(precision)] + " tokens " +
               std::to_string(num_tokens) + " heads " + std::to_string(heads) + " dim " +
               std::to_string(head_dim) + " at " + std::to_string(first_pos) + " window " +
               std::to_string(window);
    }
    int32_t num_rows() const { return num_tokens * heads; }
};

// The units of one chunk. Slots no query of the case sees are NaN, units without a seen key are null.
class Keys {
  public:
    Keys(const KernelTable& kernels, const Case& of, Random& random)
        : unit_bytes_(kv_unit_bytes(of.precision, of.head_dim)) {
        const int32_t begin = of.first_pos - of.window + 1 - of.chunk_pos;
        const int32_t end = of.first_pos + of.num_tokens - of.chunk_pos;
        std::vector<float> k(of.head_dim), v(of.head_dim);
        const std::vector<float> poison(of.head_dim, std::numeric_limits<float>::quiet_NaN());
        for (int32_t unit = 0; unit < kChunkUnits; ++unit) {
            const bool is_seen = begin < (unit + 1) * kUnitTokens && end > unit * kUnitTokens;
            at_[unit] = nullptr;
            for (int32_t slot = 0; slot < kUnitTokens; ++slot) {
                random.fill(k);
                random.fill(v);
                if (!is_seen) continue;
                if (at_[unit] == nullptr) at_[unit] = allocate();
                const int32_t key = unit * kUnitTokens + slot;
                const bool is_visible = key >= begin && key < end;
                kernels.attention->write_kv(of.precision, is_visible ? k.data() : poison.data(),
                                            is_visible ? v.data() : poison.data(), of.head_dim, slot,
                                            at_[unit]);
            }
        }
    }
    ~Keys() {
        for (uint8_t* unit : owned_) std::free(unit);
    }
    Keys(const Keys&) = delete;
    Keys& operator=(const Keys&) = delete;
    const uint8_t* const* units() const { return at_; }
    size_t unit_bytes() const { return unit_bytes_; }

  private:
    uint8_t* allocate() {
        const size_t size = (unit_bytes_ + 63) / 64 * 64;
        owned_.push_back(static_cast<uint8_t*>(std::aligned_alloc(64, size)));
        std::memset(owned_.back(), 0, size);  // heads that do not fill whole words leave gaps
        return owned_.back();
    }
    size_t unit_bytes_;
    uint8_t* at_[kChunkUnits];
    std::vector<uint8_t*> owned_;
};

struct alignas(64) Line {
    float lanes[16];
};

// Partials of some rows, aligned as kernels ask.
class Rows {
  public:
    Rows(int32_t num_rows, int32_t head_dim)
        : max_(num_rows),
          sum_(num_rows),
          out_(num_rows * static_cast<size_t>(partial_stride(head_dim)) / 16),
          stride_(partial_stride(head_dim)) {}
    Partial view(int32_t row = 0) { return {&max_[row], &sum_[row], out(row)}; }
    float* out(int32_t row) { return out_[0].lanes + static_cast<size_t>(row) * stride_; }
    float max(int32_t row) const { return max_[row]; }
    float sum(int32_t row) const { return sum_[row]; }

  private:
    std::vector<float> max_, sum_;
    std::vector<Line> out_;
    int32_t stride_;
};

// The queries of a case; those of a tile are packed when it is asked for.
class Queries {
  public:
    Queries(const KernelTable& kernels, const Case& of, Random& random)
        : kernels_(kernels), of_(of), q_(of.num_rows() * of.head_dim) {
        for (float& x : q_) x = 2 * random.symmetric();
    }
    QueryTile tile(int32_t token, int32_t num_tokens) {
        const int32_t token_size = of_.heads * of_.head_dim;
        const Guarded<float> from(
            {q_.begin() + token * token_size, q_.begin() + (token + num_tokens) * token_size});
        const int32_t num_rows = num_tokens * of_.heads;
        packed_.resize(num_rows * int8_stride(of_.head_dim));
        scale_.resize(num_rows);
        sum_.resize(num_rows);
        kernels_.attention->pack_queries(of_.precision, from.data(), num_rows, of_.head_dim,
                                         {packed_.data(), scale_.data(), sum_.data()});
        return {packed_.data(), scale_.data(),         sum_.data(), num_tokens, of_.heads,
                of_.head_dim,   of_.first_pos + token, of_.window,  0.3f,       of_.softcap};
    }

  private:
    const KernelTable& kernels_;
    const Case& of_;
    std::vector<float> q_, packed_, scale_;
    std::vector<int32_t> sum_;
};

void attend(const KernelTable& kernels, const Case& of, const QueryTile& tile, const Keys& keys,
            Partial partial) {
    std::vector<Line> scratch(attend_scratch_bytes(tile.num_rows()) / sizeof(Line));
    kernels.attention->attend_chunk(of.precision, tile, of.chunk_pos, keys.units(), scratch.data(), partial);
}

void test_stored(const Isa& isa, const Case& of, const Keys& got, const Keys& wanted) {
    if (of.precision == KVPrecision::f16) return;  // a NaN may keep its payload or not
    for (int32_t unit = 0; unit < kChunkUnits; ++unit)
        if (got.units()[unit] != nullptr)
            check(std::memcmp(got.units()[unit], wanted.units()[unit], got.unit_bytes()) == 0, "stored bytes",
                  of.name(isa));
}

void test_case(const Isa& isa, const Case& of) {
    Random random(of.head_dim + of.first_pos), same_keys(9), same_keys_again(9);
    const Keys keys(isa.kernels, of, same_keys), portable_keys(portable(), of, same_keys_again);
    test_stored(isa, of, keys, portable_keys);
    Random same_random = random;
    Queries queries(isa.kernels, of, random), portable_queries(portable(), of, same_random);
    Rows got(of.num_rows(), of.head_dim), wanted(of.num_rows(), of.head_dim),
        alone(of.num_rows(), of.head_dim);
    attend(isa.kernels, of, queries.tile(0, of.num_tokens), keys, got.view());
    attend(portable(), of, portable_queries.tile(0, of.num_tokens), portable_keys, wanted.view());
    for (int32_t token = 0; token < of.num_tokens; ++token)
        attend(isa.kernels, of, queries.tile(token, 1), keys, alone.view(token * of.heads));
    // P is rounded to 8 bits over bf16: where an exp differs in its last bit, P may by one of 256.
    // Over int8 it is a whole number of 2^-14.
    const float tolerance = of.precision == KVPrecision::bf16   ? 2e-3f
                            : of.precision == KVPrecision::int8 ? 2e-4f
                                                                : 1e-5f;
    for (int32_t row = 0; row < of.num_rows(); ++row) {
        const std::string where = of.name(isa);
        check(got.max(row) == wanted.max(row) || std::fabs(got.max(row) - wanted.max(row)) < 1e-5f, "maximum",
              where);
        check(std::fabs(got.sum(row) - wanted.sum(row)) <= tolerance * wanted.sum(row), "sum", where);
        for (int32_t d = 0; d < of.head_dim; ++d)
            check(std::fabs(got.out(row)[d] - wanted.out(row)[d]) <= tolerance * (wanted.sum(row) + 1),
                  "output", where);
        const float pairs[2][2] = {{got.max(row), got.sum(row)}, {alone.max(row), alone.sum(row)}};
        check(has_same_bits(pairs[0], pairs[1], 2), "a query differs alone", where);
        check(has_same_bits(got.out(row), alone.out(row), of.head_dim), "a query's output differs alone",
              where);
    }
}

// Partials folded left to right, a row without keys among them, and the quotient at the end.
void test_fold(const Isa& isa, int32_t head_dim) {
    Random random(head_dim);
    const int32_t num_rows = 4;
    Rows got(num_rows, head_dim), wanted(num_rows, head_dim), chunk(num_rows, head_dim);
    const auto fill = [&](Rows& rows, int32_t empty_row) {
        for (int32_t row = 0; row < num_rows; ++row) {
            const bool is_empty = row == empty_row;
            const Partial at = rows.view(row);
            *at.max = is_empty ? -HUGE_VALF : 5 * random.symmetric();
            *at.sum = is_empty ? 0.0f : 1 + random.uniform();
            for (int32_t d = 0; d < partial_stride(head_dim); ++d)
                at.out[d] = is_empty || d >= head_dim ? 0.0f : random.symmetric();
        }
    };
    fill(got, 1);
    wanted = got;
    for (int32_t step = 0; step < 5; ++step) {
        fill(chunk, step == 0 ? 1 : 2);
        isa.kernels.attention->fold(got.view(), chunk.view(), num_rows, head_dim);
        portable().attention->fold(wanted.view(), chunk.view(), num_rows, head_dim);
    }
    for (int32_t row = 0; row < num_rows; ++row) {
        const Guarded<float> quotient(head_dim), wanted_quotient(head_dim);
        isa.kernels.attention->finish(got.view(), row, head_dim, quotient.data());
        portable().attention->finish(wanted.view(), row, head_dim, wanted_quotient.data());
        for (int32_t d = 0; d < head_dim; ++d)
            check(std::fabs(quotient.data()[d] - wanted_quotient.data()[d]) < 1e-5f, "folded output",
                  isa.name + " fold " + std::to_string(head_dim));
    }
}

// A NaN a query does see reaches it, and no other.
void test_visible_nan(const Isa& isa, KVPrecision precision) {
    const Case of = {precision, 3, 1, 16, 20, 0, 1 << 20, 0};
    Random random(1);
    const Keys keys(isa.kernels, of, random);
    const std::vector<float> nan(16, std::numeric_limits<float>::quiet_NaN()), one(16, 1.0f);
    isa.kernels.attention->write_kv(precision, nan.data(), one.data(), 16, 22 % kUnitTokens,
                                    const_cast<uint8_t*>(keys.units()[1]));
    Queries queries(isa.kernels, of, random);
    Rows got(3, 16);
    attend(isa.kernels, of, queries.tile(0, 3), keys, got.view());
    check(!std::isnan(got.sum(0)) && !std::isnan(got.sum(1)), "a NaN reached a query before it",
          of.name(isa));
    check(std::isnan(got.sum(2)) || std::isnan(got.out(2)[0]), "a NaN was lost", of.name(isa));
}

}  // namespace

void test_attention() {
    for (const Isa& isa : usable()) {
        for (const KVPrecision precision : kPrecisions) {
            for (const int32_t head_dim : {2, 6, 16, 20, 64, 80}) {
                test_case(isa, {precision, 1, 3, head_dim, 0, 0, 1 << 20, 0});
                test_case(isa, {precision, 5, 4, head_dim, 37, 0, 1 << 20, 0});
                test_case(isa, {precision, 3, 1, head_dim, 254, 256, 1 << 20, 0});
                test_case(isa, {precision, 2, 7, head_dim, 300, 256, 9, 2.0f});
                test_case(isa, {precision, 19, 1, head_dim, 505, 256, 30, 0});
            }
            test_case(isa, {precision, 2, 3, 64, 600, 256, 1 << 20, 5.0f});  // all 256 keys
            test_visible_nan(isa, precision);
        }
        for (const int32_t head_dim : {2, 6, 16, 64}) test_fold(isa, head_dim);
    }
}

}  // namespace twostroke::checks
