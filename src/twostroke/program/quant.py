"""Tensor types as stored in files: block sizes, the arithmetic each is computed in, and float32 values in NumPy.

The one table of types for readers, verifier and cost. `dequantise` is the definition of every type's values
(bit for bit those of the format's own Python package); speed is the native packer's business.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
ByteArray = npt.NDArray[np.uint8]


class Arithmetic(StrEnum):
    """Unit that computes a linear: one per tensor type, the same in every phase."""

    INT8 = "int8"
    BF16 = "bf16"
    FP32 = "fp32"


@dataclass(frozen=True, slots=True)
class TensorType:
    """`block_size` elements of a row take `block_bytes` bytes."""

    name: str
    block_size: int
    block_bytes: int
    arithmetic: Arithmetic

    def num_bytes(self, shape: tuple[int, ...]) -> int:
        """Stored bytes of a tensor; its rows must be whole blocks."""
        row = shape[-1]
        assert row % self.block_size == 0, f"row of {row} is not a multiple of {self.name}'s block of {self.block_size}"
        num_elements = 1
        for size in shape:
            num_elements *= size
        return num_elements // self.block_size * self.block_bytes


TENSOR_TYPES = {
    row.name: row
    for row in (
        TensorType("F32", 1, 4, Arithmetic.FP32),
        TensorType("F16", 1, 2, Arithmetic.FP32),
        TensorType("BF16", 1, 2, Arithmetic.BF16),
        TensorType("Q8_0", 32, 34, Arithmetic.INT8),
        TensorType("Q4_0", 32, 18, Arithmetic.INT8),
        TensorType("Q4_1", 32, 20, Arithmetic.INT8),
        TensorType("Q5_0", 32, 22, Arithmetic.INT8),
        TensorType("Q5_1", 32, 24, Arithmetic.INT8),
        TensorType("Q4_K", 256, 144, Arithmetic.INT8),
        TensorType("Q5_K", 256, 176, Arithmetic.INT8),
        TensorType("Q6_K", 256, 210, Arithmetic.INT8),
    )
}


class StoredTensor(Protocol):
    """A tensor as a model file holds it: `data` is exactly its bytes, 1-D uint8."""

    @property
    def tensor_type(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def data(self) -> npt.NDArray[Any]: ...


def dequantise(tensor_type: str, data: ByteArray, shape: tuple[int, ...]) -> FloatArray:
    """The tensor's values as float32 [*shape]. `data` holds exactly its bytes."""
    row = TENSOR_TYPES[tensor_type]
    wanted = row.num_bytes(shape)
    assert data.dtype == np.uint8, f"{tensor_type} {shape}: data is {data.dtype}, wants bytes"
    assert data.size == wanted, f"{tensor_type} {shape}: {data.size} bytes, wants {wanted}"
    blocks = np.ascontiguousarray(data).reshape(-1, row.block_bytes)
    with np.errstate(invalid="ignore", over="ignore"):  # a damaged scale is inf or NaN, and so are its values
        return _DEQUANTISE[tensor_type](blocks).reshape(shape)


def to_bf16(values: FloatArray) -> FloatArray:
    """Values rounded to bfloat16 (nearest even, NaN stays NaN), still held as float32."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = np.where(np.isnan(values), bits | np.uint32(0x400000), rounded)
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)


def _f16(two_bytes: ByteArray) -> FloatArray:
    """[blocks, 2n] bytes -> float32 [blocks, n]."""
    return np.ascontiguousarray(two_bytes).view(np.float16).astype(np.float32)


def _f32(blocks: ByteArray) -> FloatArray:
    return blocks.view(np.float32).copy()


def _bf16(blocks: ByteArray) -> FloatArray:
    return (blocks.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def _q8_0(blocks: ByteArray) -> FloatArray:
    return blocks[:, 2:].view(np.int8).astype(np.float32) * _f16(blocks[:, :2])


def _nibbles(packed: ByteArray) -> ByteArray:
    """[blocks, n] -> [blocks, 2n]: all low nibbles, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _fifth_bits(packed: ByteArray) -> ByteArray:
    """[blocks, 4] -> [blocks, 32]: bit j, already in place 4 of element j."""
    return np.unpackbits(packed, axis=1, bitorder="little") << np.uint8(4)


def _q4_0(blocks: ByteArray) -> FloatArray:
    return _f16(blocks[:, :2]) * (_nibbles(blocks[:, 2:]).astype(np.float32) - 8)


def _q4_1(blocks: ByteArray) -> FloatArray:
    return _f16(blocks[:, :2]) * _nibbles(blocks[:, 4:]).astype(np.float32) + _f16(blocks[:, 2:4])


def _q5_0(blocks: ByteArray) -> FloatArray:
    q = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    return _f16(blocks[:, :2]) * (q.astype(np.float32) - 16)


def _q5_1(blocks: ByteArray) -> FloatArray:
    q = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return _f16(blocks[:, :2]) * q.astype(np.float32) + _f16(blocks[:, 2:4])


def _scales_and_mins(packed: ByteArray) -> tuple[FloatArray, FloatArray]:
    """The 12 bytes of a K block -> eight 6-bit scales and eight 6-bit minimums, [blocks, 8] each.

    bytes 0-3: scale 0-3 (low 6 bits) and top bits of scale 4-7
    bytes 4-7: min   0-3 (low 6 bits) and top bits of min   4-7
    bytes 8-11: low 4 bits of scale 4-7 | low 4 bits of min 4-7
    """
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (third & 15) | ((first >> 6) << 4)], axis=1)
    mins = np.concatenate([second & 63, (third >> 4) | ((second >> 6) << 4)], axis=1)
    return scales.astype(np.float32), mins.astype(np.float32)


def _sub_block_nibbles(packed: ByteArray) -> ByteArray:
    """[blocks, 128] -> [blocks, 8, 32]: 32 bytes hold two sub-blocks, low nibbles and high nibbles."""
    pairs = packed.reshape(-1, 4, 32)
    return np.stack([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, 32)


def _affine_sub_blocks(blocks: ByteArray, q: ByteArray) -> FloatArray:
    """d * scale * q - dmin * min, with q [blocks, 8, 32]."""
    scales, mins = _scales_and_mins(blocks[:, 4:16])
    scale = (_f16(blocks[:, :2]) * scales)[:, :, None]
    minimum = (_f16(blocks[:, 2:4]) * mins)[:, :, None]
    return (scale * q.astype(np.float32) - minimum).reshape(-1, 256)


def _q4_k(blocks: ByteArray) -> FloatArray:
    return _affine_sub_blocks(blocks, _sub_block_nibbles(blocks[:, 16:144]))


def _q5_k(blocks: ByteArray) -> FloatArray:
    shift = np.arange(8, dtype=np.uint8)[None, :, None]
    fifth = ((blocks[:, None, 16:48] >> shift) & 1) << np.uint8(4)
    q: ByteArray = _sub_block_nibbles(blocks[:, 48:176]) | fifth.astype(np.uint8)
    return _affine_sub_blocks(blocks, q)


def _q6_k(blocks: ByteArray) -> FloatArray:
    packed = blocks[:, :128].reshape(-1, 2, 64)
    low = np.stack([packed & 15, packed >> 4], axis=2).reshape(-1, 2, 4, 32)
    shift = np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shift) & 3
    q = (low | (high << np.uint8(4))).reshape(-1, 16, 16).astype(np.float32) - 32
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32) * _f16(blocks[:, 208:210])
    values: FloatArray = scales[:, :, None] * q
    return values.reshape(-1, 256)


_DEQUANTISE: dict[str, Callable[[ByteArray], FloatArray]] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
