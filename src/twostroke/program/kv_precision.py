"""What a precision of the KV cache means: bytes, arithmetic and, for int8, the integers themselves.

int8 keeps 127 steps each way and one float32 scale per token and head, for K and V each. K is rotated first: a fixed
Hadamard matrix spreads the few channels that are far larger than the rest, which would take the steps from all others.
Readers store what this file says; `program/reference.py` reads it back, `native/kernels/` computes on the integers.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from twostroke.program.quant import Arithmetic, FloatArray

KV_ARITHMETIC: Mapping[str, Arithmetic] = {
    "f32": Arithmetic.FP32,
    "f16": Arithmetic.FP32,
    "bf16": Arithmetic.BF16,
    "int8": Arithmetic.INT8,
}
ELEMENT_BYTES: Mapping[str, int] = {"f32": 4, "f16": 2, "bf16": 2, "int8": 1}
SCALE_BYTES = 4
INT8_STEPS = 127  # of a stored element, and of a query's, each way
SMALLEST_SCALED = np.float32(2.0**-100)  # below it a head counts as zero: 1 / amax must not overflow
CHUNK = 256  # keys whose probabilities share one step
PROBABILITY_STEPS = 1 << 14  # of the largest probability * scale of V in a chunk
IntArray = npt.NDArray[np.int32]


def kv_head_bytes(precision: str, head_dim: int) -> int:
    """Bytes that K, or V, of one token and head take."""
    if precision == "int8":
        return -(-head_dim // 4) * 4 + SCALE_BYTES  # whole words: four elements are multiplied at once
    return head_dim * ELEMENT_BYTES[precision]


def rotation_size(head_dim: int) -> int:
    """Elements the Hadamard matrix mixes: the largest power of two that divides a head."""
    return head_dim & -head_dim


def rotate(x: FloatArray) -> FloatArray:
    """Heads [..., head_dim] times the Hadamard matrix, pair by pair in float32; twice gives `rotation_size` times x."""
    size = rotation_size(x.shape[-1])
    half = 1
    while half < size:
        pairs = x.reshape(-1, 2, half)
        low, high = pairs[:, 0], pairs[:, 1]
        x = np.stack([low + high, low - high], axis=1).reshape(x.shape)
        half *= 2
    return x


def quantise_heads(x: FloatArray) -> tuple[IntArray, FloatArray]:
    """Heads [..., head_dim] -> integers of the same shape and scales [...]. Not finite: 0 and the scale NaN."""
    amax = np.abs(x).max(axis=-1)
    is_finite, is_zero = np.isfinite(amax), amax < SMALLEST_SCALED
    safe = np.where(is_finite & ~is_zero, amax, np.float32(1))
    inverse = np.where(is_finite & ~is_zero, np.float32(INT8_STEPS) / safe, np.float32(0))
    values = np.where(is_finite[..., None], x, np.float32(0))
    scales = np.where(is_finite, np.where(is_zero, np.float32(0), amax / np.float32(INT8_STEPS)), np.float32(np.nan))
    return np.rint(values * inverse[..., None]).astype(np.int32), scales.astype(np.float32)


def round_queries(q: FloatArray) -> FloatArray:
    """Query heads [..., head_dim] as the products with int8 keys see them."""
    integers, scales = quantise_heads(rotate(q))
    return rotate(integers.astype(np.float32) * scales[..., None]) / np.float32(rotation_size(q.shape[-1]))


def round_probabilities(weights: FloatArray, value_scales: FloatArray, first_key: int) -> FloatArray:
    """Softmax weights [tokens, keys] as the products with int8 values see them; the keys start at `first_key`.

    Each weight takes its value's scale along; in a chunk they are whole steps of the largest.
    """
    out = np.empty_like(weights)
    for start in range(first_key // CHUNK * CHUNK, first_key + weights.shape[1], CHUNK):
        keys = slice(max(0, start - first_key), start - first_key + CHUNK)
        scaled = weights[:, keys] * value_scales[keys]
        largest = scaled.max(axis=1, keepdims=True)
        step = np.where(largest > 0, largest, np.float32(1)) / np.float32(PROBABILITY_STEPS)
        scales = np.where(value_scales[keys] > 0, value_scales[keys], np.float32(1))
        out[:, keys] = np.rint(scaled / step) * step / scales
    return out
