#include "kv_store.h"

#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

namespace twostroke {
namespace {

constexpr double kMostBytes = 1e15;  // no machine has them; beyond, sizes would wrap around

}  // namespace

KVStore::KVStore(KVPrecision precision, int32_t block_size, std::vector<KVGroupSpec> groups)
    : precision_(precision), block_size_(block_size), units_per_block_(block_size / kUnitTokens) {
    if (block_size != 16 && block_size != 32)
        throw std::invalid_argument("KV block size is " + std::to_string(block_size) + ", must be 16 or 32");
    for (const KVGroupSpec& spec : groups) {
        if (spec.num_layers < 1 || spec.num_kv_heads < 1 || spec.num_blocks < 1)
            throw std::invalid_argument("a KV group needs at least one layer, head and block");
        if (spec.head_dim < 2 || spec.head_dim % 2 != 0)
            throw std::invalid_argument("head_dim is " + std::to_string(spec.head_dim) + ", must be even");
        if (precision == KVPrecision::int8 && spec.head_dim > kMostInt8Dims)
            throw std::invalid_argument("head_dim is " + std::to_string(spec.head_dim) +
                                        ", int8 KV takes at most " + std::to_string(kMostInt8Dims) +
                                        ": use bf16");
        const size_t unit_bytes = kv_unit_bytes(precision, spec.head_dim);
        const size_t block_bytes = unit_bytes * units_per_block_ * spec.num_layers * spec.num_kv_heads;
        const double wanted = static_cast<double>(unit_bytes) * units_per_block_ * spec.num_layers *
                              spec.num_kv_heads * spec.num_blocks;
        if (wanted > kMostBytes) throw std::bad_alloc();
        groups_.push_back({spec, unit_bytes, block_bytes, Pages(block_bytes * spec.num_blocks)});
    }
}

void KVStore::copy_block(int32_t group, int32_t source, int32_t target) {
    const auto check = [](const char* what, int32_t value, int32_t limit) {
        if (value < 0 || value >= limit)
            throw std::out_of_range(std::string(what) + " " + std::to_string(value) + " is not in [0, " +
                                    std::to_string(limit) + ")");
    };
    check("KV group", group, num_groups());
    const Group& g = groups_[group];
    check("block", source, g.spec.num_blocks);
    check("block", target, g.spec.num_blocks);
    if (source == target) return;
    uint8_t* base = g.pages.as<uint8_t>();
    std::memcpy(base + target * g.block_bytes, base + source * g.block_bytes, g.block_bytes);
}

}  // namespace twostroke
