#include "pack.h"

#include <bit>
#include <cstring>
#include <vector>

#include "kernels/table.h"

namespace twostroke {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian and copied as they are");

// Where the 32 rows of a panel lie in the file. Rows beyond the matrix point at zeros.
struct SourceRows {
    const uint8_t* row[kPanelRows];
};

uint32_t load_u32(const uint8_t* bytes) {
    uint32_t value;
    std::memcpy(&value, bytes, 4);
    return value;
}

// A unit: 4 bytes at `offset` of the 16 rows of one half of the panel.
template <uint32_t kFlip>
uint8_t* pack_unit(const SourceRows& rows, int32_t half, size_t offset, uint8_t* out) {
    for (int32_t r = 0; r < 16; r++) {
        const uint32_t value = load_u32(rows.row[16 * half + r] + offset) ^ kFlip;
        std::memcpy(out + 4 * r, &value, 4);
    }
    return out + 64;
}

// Units of both halves: `num_groups` groups of 4 bytes, from `offset` on in every row.
template <uint32_t kFlip>
uint8_t* pack_units(const SourceRows& rows, size_t offset, int32_t num_groups, uint8_t* out) {
    for (int32_t j = 0; j < num_groups; j++) {
        out = pack_unit<kFlip>(rows, 0, offset + 4 * j, out);
        out = pack_unit<kFlip>(rows, 1, offset + 4 * j, out);
    }
    return out;
}

// One field of N bytes of every row, [32 rows].
template <int N>
uint8_t* pack_field(const SourceRows& rows, size_t offset, uint8_t* out) {
    for (int32_t r = 0; r < kPanelRows; r++) std::memcpy(out + N * r, rows.row[r] + offset, N);
    return out + N * kPanelRows;
}

// 5th bits of 32 elements, bit k of a u32 per row -> u64 [group of 4 k][16 rows][4].
uint8_t* pack_fifth_bits_32(const SourceRows& rows, size_t offset, uint8_t* out) {
    uint64_t masks[8][2] = {};
    for (int32_t r = 0; r < kPanelRows; r++) {
        const uint32_t bits = load_u32(rows.row[r] + offset);
        for (int32_t group = 0; group < 8; group++) {
            masks[group][r / 16] |= static_cast<uint64_t>(bits >> 4 * group & 15) << 4 * (r % 16);
        }
    }
    std::memcpy(out, masks, sizeof masks);
    return out + sizeof masks;
}

// 5th bits of two sub-blocks of Q5_K, bit s of byte l is element l of sub-block s -> u64 [2][group of 4
// k][r].
uint8_t* pack_fifth_bits_64(const SourceRows& rows, size_t offset, int32_t first_sub, uint8_t* out) {
    constexpr uint32_t kGather = 0x01020408;  // moves bits 0, 8, 16, 24 to 24..27
    uint64_t masks[2][8][2] = {};
    for (int32_t r = 0; r < kPanelRows; r++) {
        for (int32_t group = 0; group < 8; group++) {
            const uint32_t four = load_u32(rows.row[r] + offset + 4 * group) >> first_sub;
            for (int32_t sub = 0; sub < 2; sub++) {
                const uint32_t bits = ((four >> sub & 0x01010101) * kGather) >> 24;
                masks[sub][group][r / 16] |= static_cast<uint64_t>(bits) << 4 * (r % 16);
            }
        }
    }
    std::memcpy(out, masks, sizeof masks);
    return out + sizeof masks;
}

// 12 scale bytes, d and dmin of Q4_K and Q5_K.
uint8_t* pack_scales_k4(const SourceRows& rows, size_t at, uint8_t* out) {
    out = pack_units<0>(rows, at + 4, 3, out);
    out = pack_field<2>(rows, at, out);
    return pack_field<2>(rows, at + 2, out);
}

uint8_t* pack_block_k5(const SourceRows& rows, size_t at, uint8_t* out) {
    out = pack_scales_k4(rows, at, out);
    for (int32_t pair = 0; pair < 4; pair++) {
        out = pack_fifth_bits_64(rows, at + 16, 2 * pair, out);
        out = pack_units<0>(rows, at + 48 + 32 * pair, 8, out);
    }
    return out;
}

uint8_t* pack_block_k6(const SourceRows& rows, size_t at, uint8_t* out) {
    for (int32_t sub = 0; sub < 16; sub++) out = pack_field<1>(rows, at + 192 + sub, out);
    out = pack_field<2>(rows, at + 208, out);
    for (int32_t half = 0; half < 2; half++) {
        for (int32_t j = 0; j < 8; j++) {
            for (int32_t r = 0; r < 2; r++) {
                out = pack_unit<0>(rows, r, at + 64 * half + 4 * j, out);
                out = pack_unit<0>(rows, r, at + 64 * half + 32 + 4 * j, out);
                out = pack_unit<0>(rows, r, at + 128 + 32 * half + 4 * j, out);
            }
        }
    }
    return out;
}

uint8_t* pack_block(TensorType type, const SourceRows& rows, size_t at, uint8_t* out) {
    switch (type) {
        case TensorType::F32:
            return pack_field<4>(rows, at, out);
        case TensorType::F16:
        case TensorType::BF16:
            return out;  // by pairs: pack_pairs
        case TensorType::Q8_0:
            out = pack_units<0x80808080>(rows, at + 2, 8, out);
            return pack_field<2>(rows, at, out);
        case TensorType::Q4_0:
            out = pack_units<0>(rows, at + 2, 4, out);
            return pack_field<2>(rows, at, out);
        case TensorType::Q4_1:
            out = pack_units<0>(rows, at + 4, 4, out);
            out = pack_field<2>(rows, at, out);
            return pack_field<2>(rows, at + 2, out);
        case TensorType::Q5_0:
            out = pack_fifth_bits_32(rows, at + 2, out);
            out = pack_units<0>(rows, at + 6, 4, out);
            return pack_field<2>(rows, at, out);
        case TensorType::Q5_1:
            out = pack_fifth_bits_32(rows, at + 4, out);
            out = pack_units<0>(rows, at + 8, 4, out);
            out = pack_field<2>(rows, at, out);
            return pack_field<2>(rows, at + 2, out);
        case TensorType::Q4_K:
            out = pack_scales_k4(rows, at, out);
            return pack_units<0>(rows, at + 16, 32, out);
        case TensorType::Q5_K:
            return pack_block_k5(rows, at, out);
        case TensorType::Q6_K:
            return pack_block_k6(rows, at, out);
    }
    return out;
}

// Two columns of 16-bit elements at a time; the partner of a last odd column is zero.
void pack_pairs(const SourceRows& rows, int32_t cols, uint8_t* out) {
    for (int32_t k = 0; k + 2 <= cols; k += 2) out = pack_field<4>(rows, 2 * static_cast<size_t>(k), out);
    if (cols % 2 == 0) return;
    std::memset(out, 0, 4 * kPanelRows);
    for (int32_t r = 0; r < kPanelRows; r++)
        std::memcpy(out + 4 * r, rows.row[r] + 2 * (static_cast<size_t>(cols) - 1), 2);
}

// One panel, block by block along K.
void pack_panel(TensorType type, const SourceRows& rows, int32_t cols, uint8_t* out) {
    if (type == TensorType::F16 || type == TensorType::BF16) return pack_pairs(rows, cols, out);
    const int32_t num_blocks = cols / block_elements(type);
    const size_t bytes = block_bytes(type);
    for (int32_t block = 0; block < num_blocks; block++) out = pack_block(type, rows, block * bytes, out);
}

}  // namespace

int32_t num_panels(int32_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }

size_t row_bytes(TensorType type, int32_t cols) {
    return static_cast<size_t>(cols / block_elements(type)) * block_bytes(type);
}

size_t panel_bytes(TensorType type, int32_t cols) {
    const bool pairs = type == TensorType::F16 || type == TensorType::BF16;
    return row_bytes(type, pairs ? cols + cols % 2 : cols) * kPanelRows;
}

size_t packed_bytes(TensorType type, int32_t rows, int32_t cols) {
    return static_cast<size_t>(num_panels(rows)) * panel_bytes(type, cols);
}

void pack_panels(TensorType type, const uint8_t* source, int32_t rows, int32_t cols, int32_t first_panel,
                 int32_t last_panel, uint8_t* packed) {
    const size_t stride = row_bytes(type, cols);
    std::vector<uint8_t> zeros;
    if (last_panel * kPanelRows > rows) zeros.resize(stride);
    for (int32_t panel = first_panel; panel < last_panel; panel++) {
        SourceRows from;
        for (int32_t r = 0; r < kPanelRows; r++) {
            const int32_t row = panel * kPanelRows + r;
            from.row[r] = row < rows ? source + row * stride : zeros.data();
        }
        pack_panel(type, from, cols, packed + panel * panel_bytes(type, cols));
    }
}

}  // namespace twostroke
