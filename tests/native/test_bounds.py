"""Kernels touch their operands and nothing else: every array lies against a page that may not be touched."""

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.native.weight_builders import ISAS, make_bytes, make_input
from twostroke import _native
from twostroke.program.quant import TENSOR_TYPES, Arithmetic

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="protects pages with mprotect")

TYPES = list(TENSOR_TYPES)
PAGE = mmap.PAGESIZE
CANARY = np.float32(-12345.0)

Array = npt.NDArray[Any]


class GuardedMemory:
    """Copies of arrays that end where a forbidden page begins, or begin where one ends. Kept mapped for good."""

    def __init__(self, *, at_end: bool) -> None:
        self.at_end = at_end
        self.maps: list[mmap.mmap] = []

    def copy(self, array: Array) -> Array:
        size = array.nbytes
        inner = (size + PAGE - 1) // PAGE * PAGE
        memory = mmap.mmap(-1, inner + 2 * PAGE)
        self.maps.append(memory)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for page in (start, start + PAGE + inner):
            assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0) == 0
        offset = PAGE + (inner - size if self.at_end else 0)
        placed = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
        placed[...] = array
        return placed


def prepared(tensor_type: str, x: npt.NDArray[np.float32], isa: str) -> tuple[Array, ...]:
    """The operands a linear of this type reads, [tokens, ...] each."""
    arithmetic = TENSOR_TYPES[tensor_type].arithmetic
    if arithmetic is Arithmetic.FP32:
        return (x,)
    if arithmetic is Arithmetic.BF16:
        padded = np.pad(x, ((0, 0), (0, x.shape[1] % 2)))
        return (np.stack([_native.to_bf16(token, isa) for token in padded]),)
    rows = [_native.quantise_a8(token, isa) for token in x]
    return tuple(np.stack(part) for part in zip(*rows, strict=True))


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("tokens", [1, 2, 5, 6, 7, 9, 17])
@pytest.mark.parametrize("tensor_type", TYPES)
def test_linear_stays_within_its_operands(tensor_type: str, tokens: int, isa: str, at_end: bool) -> None:
    block = TENSOR_TYPES[tensor_type].block_size
    cols = 37 if block == 1 else 3 * block
    rows = 1 + tokens % 32
    data = make_bytes(tensor_type, rows, cols)
    x = make_input(tokens, cols)
    weight = _native.pack_weight(tensor_type, data, rows, cols)
    guarded = GuardedMemory(at_end=at_end)
    panel = guarded.copy(weight.packed_panel(0))
    operands = tuple(guarded.copy(operand) for operand in prepared(tensor_type, x, isa))
    out = guarded.copy(np.full((tokens, rows), CANARY))
    _native.linear_panel(tensor_type, panel, cols, operands, out, rows, isa)
    np.testing.assert_array_equal(out, _native.linear(weight, x, isa))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("num_rows", [0, 1, 15, 16, 17, 31, 32])
@pytest.mark.parametrize("tensor_type", TYPES)
def test_rows_beyond_the_panel_and_the_gap_between_tokens_are_left_alone(
    tensor_type: str, num_rows: int, isa: str
) -> None:
    cols = TENSOR_TYPES[tensor_type].block_size * 2
    weight = _native.pack_weight(tensor_type, make_bytes(tensor_type, 32, cols), 32, cols)
    x = make_input(11, cols)
    panel = GuardedMemory(at_end=False).copy(weight.packed_panel(0))
    out = np.full((11, 40), CANARY)
    _native.linear_panel(tensor_type, panel, cols, prepared(tensor_type, x, isa), out, num_rows, isa)
    np.testing.assert_array_equal(out[:, num_rows:], CANARY)
    np.testing.assert_array_equal(out[:, :num_rows], _native.linear(weight, x, isa)[:, :num_rows])


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("isa", ISAS)
def test_preparing_activations_stays_within_the_input(isa: str, at_end: bool) -> None:
    guarded = GuardedMemory(at_end=at_end)
    for length in range(1, 50):
        _native.to_bf16(guarded.copy(make_input(1, length)[0]), isa)
    for length in (32, 64, 96):
        _native.quantise_a8(guarded.copy(make_input(1, length)[0]), isa)


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("tensor_type", TYPES)
def test_packing_stays_within_the_source(tensor_type: str, at_end: bool) -> None:
    cols = TENSOR_TYPES[tensor_type].block_size * 3
    for rows in (1, 32, 33):
        data = make_bytes(tensor_type, rows, cols)
        guarded = GuardedMemory(at_end=at_end).copy(data)
        packed = _native.pack_weight(tensor_type, guarded, rows, cols)
        np.testing.assert_array_equal(
            packed.packed_panel(0), _native.pack_weight(tensor_type, data, rows, cols).packed_panel(0)
        )


def test_a_panel_that_is_not_aligned_is_refused() -> None:
    weight = _native.pack_weight("F32", make_bytes("F32", 32, 4), 32, 4)
    panel = np.empty(weight.num_bytes + 65, np.uint8)
    start = -panel.ctypes.data % 64 + 1
    with pytest.raises(ValueError, match="64-byte aligned"):
        _native.linear_panel(
            "F32", panel[start:][: weight.num_bytes], 4, (), np.empty((1, 32), np.float32), 32, ISAS[0]
        )
