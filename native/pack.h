// The packed layout of weights ("P32"), one for both phases and as many bytes as the file.
//
// 32 rows form a panel; panels follow each other, and inside a panel the blocks of K follow each other, so a
// linear streams through memory once. Every block is a multiple of 64 bytes. Rows beyond the last are zero.
// A unit is 64 bytes, [16 rows][4 bytes of one row]; r is the half of the panel, j a group of 4 file bytes.
//
//   F32          [K][32 rows] f32
//   F16, BF16    [K/2][32 rows][2] 16 bit; an odd K gets one more column of zeros
//   Q8_0         units [j 0..7][r] of q ^ 0x80 (q + 128 unsigned) | d [32] f16
//   Q4_0         units [j 0..3][r]: low nibbles are k = 4j.., high ones k = 16 + 4j.. | d
//   Q4_1         as Q4_0 | d | m
//   Q5_0, Q5_1   5th bits: u64 [group of 4 k][r], bit 4 * row + i is k = 4 * group + i | as Q4_0 | d | m
//   Q4_K         scale bytes as u32 [3][32] | d | dmin | units [pair of 32-wide sub-blocks][j 0..7][r]
//   Q5_K         as Q4_K, and before the units of a pair its 5th bits: u64 [2][group of 4 k][r]
//   Q6_K         scales i8 [16][32] | d | per half, j 0..7 and r a unit each of nibble bytes j, of nibble
//                bytes 8 + j and of bytes j of the 2-bit planes
//
// The layout does not depend on the ISA. Files keep packed bytes: a change raises LAYOUT_VERSION in
// program/packed.py.
//
// A kernel reads a block from its first byte to its last: hardware prefetchers follow nothing else (measured:
// a third of the bandwidth when scales come last and are wanted first).
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor_type.h"

namespace twostroke {

// Longer rows are refused: sizes inside a panel are counted in 32 bits.
inline constexpr int32_t kMaxColumns = 1 << 18;

int32_t num_panels(int32_t rows);
// Bytes of one row of `cols` elements in a file, and of one packed panel.
size_t row_bytes(TensorType type, int32_t cols);
size_t panel_bytes(TensorType type, int32_t cols);
// Bytes of a whole packed matrix, a multiple of 64.
size_t packed_bytes(TensorType type, int32_t rows, int32_t cols);

// Packs panels [first_panel, last_panel) of a matrix [rows][cols] that starts at `source` (any alignment)
// into `packed`, where the whole matrix starts (64-byte aligned). Ranges may be packed on several threads at
// once.
void pack_panels(TensorType type, const uint8_t* source, int32_t rows, int32_t cols, int32_t first_panel,
                 int32_t last_panel, uint8_t* packed);

// Row `row` of a packed matrix with K columns as float32 [K]: the embedding look-up of every ISA.
void unpack_row(TensorType type, const uint8_t* packed, int32_t row, int32_t K, float* out);

}  // namespace twostroke
