"""Packing keeps every bit: a packed row unpacks to the file's own values."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.native.weight_builders import make_bytes, make_weight
from twostroke import _native
from twostroke.program.quant import TENSOR_TYPES, dequantise

TYPES = list(TENSOR_TYPES)


def unpack(weight: _native.Weight) -> np.ndarray:
    return np.stack([weight.unpack_row(row) for row in range(weight.rows)])


@pytest.mark.parametrize("rows", [1, 31, 32, 33, 48, 100])
@pytest.mark.parametrize("num_blocks", [1, 2, 5])
@pytest.mark.parametrize("tensor_type", TYPES)
def test_a_packed_row_unpacks_to_the_bits_of_the_file(tensor_type: str, num_blocks: int, rows: int) -> None:
    weight, values = make_weight(tensor_type, rows, num_blocks * TENSOR_TYPES[tensor_type].block_size, seed=rows)
    np.testing.assert_array_equal(unpack(weight).view(np.uint32), values.view(np.uint32))


@given(st.sampled_from(["F32", "F16", "BF16"]), st.integers(1, 70), st.integers(1, 70))
def test_float_types_take_any_shape(tensor_type: str, rows: int, cols: int) -> None:
    weight, values = make_weight(tensor_type, rows, cols)
    np.testing.assert_array_equal(unpack(weight), values)


@pytest.mark.oracle
@pytest.mark.parametrize("tensor_type", TYPES)
def test_values_are_those_of_the_formats_own_package(tensor_type: str) -> None:
    gguf = pytest.importorskip("gguf")
    rows, cols = 40, 512
    data = make_bytes(tensor_type, rows, cols)
    expected = gguf.quants.dequantize(data.reshape(rows, -1), gguf.GGMLQuantizationType[tensor_type]).reshape(
        rows, cols
    )
    weight = _native.pack_weight(tensor_type, data, rows, cols)
    np.testing.assert_array_equal(unpack(weight), expected)


@pytest.mark.parametrize("shift", [1, 2, 3, 7, 33])
@pytest.mark.parametrize("tensor_type", TYPES)
def test_source_bytes_may_start_anywhere(tensor_type: str, shift: int) -> None:
    data = make_bytes(tensor_type, 33, 256)
    moved = np.empty(len(data) + shift, np.uint8)[shift:]
    moved[:] = data
    weight = _native.pack_weight(tensor_type, moved, 33, 256)
    np.testing.assert_array_equal(unpack(weight), dequantise(tensor_type, data, (33, 256)))


@pytest.mark.parametrize("tensor_type", TYPES)
def test_packing_adds_no_bytes(tensor_type: str) -> None:
    data = make_bytes(tensor_type, 64, 512)
    assert _native.pack_weight(tensor_type, data, 64, 512).num_bytes == len(data)


def test_an_odd_number_of_half_precision_columns_is_padded_by_one() -> None:
    assert _native.pack_weight("F16", make_bytes("F16", 32, 7), 32, 7).num_bytes == 32 * 8 * 2


@pytest.mark.parametrize(
    ("bits", "value"),
    [(0x0001, 2.0**-24), (0x83FF, -1023 * 2.0**-24), (0x0400, 2.0**-14), (0x7BFF, 65504.0), (0x8000, -0.0)],
)
def test_half_precision_numbers_of_every_kind_survive(bits: int, value: float) -> None:
    data = np.full(32, bits, np.uint16).view(np.uint8)
    row = _native.pack_weight("F16", data, 1, 32).unpack_row(0)
    np.testing.assert_array_equal(row.view(np.uint32), np.full(32, value, np.float32).view(np.uint32))


def test_infinite_and_undefined_halves_stay_so() -> None:
    data = np.array([0x7C00, 0xFC00, 0x7E00], np.uint16).view(np.uint8)
    np.testing.assert_array_equal(_native.pack_weight("F16", data, 1, 3).unpack_row(0), [np.inf, -np.inf, np.nan])


def test_a_wrong_number_of_bytes_is_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match=r"2 x 64 Q4_0 is 72 bytes, got 71"):
        _native.pack_weight("Q4_0", np.zeros(71, np.uint8), 2, 64)


def test_rows_that_are_not_whole_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Q4_K needs rows of a multiple of 256 elements, got 128"):
        _native.pack_weight("Q4_K", np.zeros(72, np.uint8), 1, 128)


def test_a_row_longer_than_the_kernels_scratch_allows_is_refused() -> None:
    cols = 2**18 + 32
    with pytest.raises(ValueError, match=r"262176 elements is longer than the limit of 262144"):
        _native.pack_weight("Q8_0", make_bytes("Q8_0", 1, cols), 1, cols)


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown tensor type Q9_9"):
        _native.pack_weight("Q9_9", np.zeros(0, np.uint8), 0, 0)


def test_a_row_outside_the_weight_is_refused() -> None:
    weight, _ = make_weight("F32", 3, 4)
    for row in (-1, 3):
        with pytest.raises(IndexError):
            weight.unpack_row(row)
