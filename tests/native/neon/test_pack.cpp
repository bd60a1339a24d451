// The packed layout is the same bytes on every machine.
#include "weights.h"

namespace twostroke::checks {
namespace {

// A finite half of at most 2 in size, subnormal ones among them.
void put_half(uint8_t* at, Random& random) {
    const auto bits = static_cast<uint16_t>(random.word() & 0xBFFF);
    std::memcpy(at, &bits, 2);
}

// Where the scales of a block lie, as halves.
std::vector<int32_t> scale_offsets(TensorType type) {
    switch (type) {
        case TensorType::Q4_1:
        case TensorType::Q5_1:
        case TensorType::Q4_K:
        case TensorType::Q5_K:
            return {0, 2};
        case TensorType::Q6_K:
            return {208};
        case TensorType::F32:
        case TensorType::BF16:
            return {};
        default:
            return {0};
    }
}

void put_block(TensorType type, uint8_t* block, Random& random) {
    for (int32_t i = 0; i < block_bytes(type); ++i) block[i] = static_cast<uint8_t>(random.word());
    for (const int32_t offset : scale_offsets(type)) put_half(block + offset, random);
    const float x = random.symmetric();
    if (type == TensorType::F32) std::memcpy(block, &x, 4);
    if (type == TensorType::BF16) std::memcpy(block, reinterpret_cast<const uint8_t*>(&x) + 2, 2);
}

uint64_t packed_digest(TensorType type) {
    Random random(7);
    const int32_t rows = 70, cols = 256;
    const std::vector<uint8_t> source = make_source(type, rows, cols, random);
    std::vector<uint8_t> packed(num_panels(rows) * panel_bytes(type, cols));
    pack_panels(type, source.data(), rows, cols, 0, num_panels(rows), packed.data());
    return digest(packed.data(), packed.size());
}

uint64_t unpacked_digest(TensorType type) {
    Random random(8);
    const int32_t cols = 256;
    const Guarded<uint8_t> panel(make_panel(type, 32, cols, random));
    std::vector<float> rows(32 * cols);
    for (int32_t row = 0; row < 32; ++row)
        unpack_row(type, panel.data(), row, cols, rows.data() + row * cols);
    return digest(rows.data(), rows.size() * sizeof(float));
}

struct Digests {
    TensorType type;
    uint64_t packed, unpacked;
};
constexpr Digests kDigests[] = {
    {TensorType::F32, 0xC4353FB27F29AD3A, 0x2A27CBCF6C104FA0},
    {TensorType::F16, 0x2229F706670F3854, 0xB298A8991AE41984},
    {TensorType::BF16, 0x8B204A04D3BB2919, 0x9F6BEE25487765A9},
    {TensorType::Q8_0, 0x772E70930AEE9E46, 0xED37E4DE0A55B82A},
    {TensorType::Q4_0, 0xB84BE654B6760570, 0xCD784587DD385B4A},
    {TensorType::Q4_1, 0x91B7B91589CC3827, 0x9F3A03FC5E740C29},
    {TensorType::Q5_0, 0xF8E17E00A3080C6E, 0x93DA9EA6C044C00D},
    {TensorType::Q5_1, 0xDDAACADAC82E997C, 0x9859DEE5CE3C3208},
    {TensorType::Q4_K, 0x04FB7BFCDB06ED68, 0xAA05C96116762D64},
    {TensorType::Q5_K, 0x397393FA5375ADC2, 0xCC08C0E5BF898F06},
    {TensorType::Q6_K, 0x404C4DD23C8FC77A, 0xD69516476F1DD366},
};

}  // namespace

std::vector<uint8_t> make_source(TensorType type, int32_t rows, int32_t cols, Random& random) {
    std::vector<uint8_t> source(rows * row_bytes(type, cols));
    for (size_t at = 0; at < source.size(); at += block_bytes(type))
        put_block(type, source.data() + at, random);
    return source;
}

std::vector<uint8_t> make_panel(TensorType type, int32_t rows, int32_t cols, Random& random) {
    const std::vector<uint8_t> source = make_source(type, rows, cols, random);
    std::vector<uint8_t> panel(panel_bytes(type, cols));
    pack_panels(type, source.data(), rows, cols, 0, 1, panel.data());
    return panel;
}

void test_pack() {
    for (const Digests& wanted : kDigests) {
        const std::string where = std::string("pack ") + tensor_type_name(wanted.type);
        check(packed_digest(wanted.type) == wanted.packed, "packed bytes are those of other machines", where);
        check(unpacked_digest(wanted.type) == wanted.unpacked, "rows are those of other machines", where);
    }
}

}  // namespace twostroke::checks
