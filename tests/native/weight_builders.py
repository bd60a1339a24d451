"""Random weights as their files would hold them, and float64 twins of linear."""

import numpy as np
import numpy.typing as npt

from twostroke import _native
from twostroke.program.quant import TENSOR_TYPES, Arithmetic, dequantise

ISAS = _native.usable_isas()
INT8_TYPES = [name for name, row in TENSOR_TYPES.items() if row.arithmetic is Arithmetic.INT8]

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

# Byte offsets of the float16 fields of one block.
HALF_FIELDS = {
    "Q8_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}

# Bytes of one block that hold integers: quants, and the integer scales and minimums of the K types.
QUANTS = {
    "Q8_0": slice(2, 34),
    "Q4_0": slice(2, 18),
    "Q4_1": slice(4, 20),
    "Q5_0": slice(2, 22),
    "Q5_1": slice(4, 24),
    "Q4_K": slice(4, 144),
    "Q5_K": slice(4, 176),
    "Q6_K": slice(0, 208),
}


def make_bytes(
    tensor_type: str, rows: int, cols: int, *, seed: int = 0, scale: float | None = None
) -> npt.NDArray[np.uint8]:
    """A matrix of random bits with finite scales; every fourth scale is subnormal unless `scale` fixes them all."""
    rng = np.random.default_rng([seed, rows, cols])
    if tensor_type in ("F32", "F16", "BF16"):
        values = rng.standard_normal((rows, cols)).astype(np.float32)
        if tensor_type == "F32":
            return values.view(np.uint8).ravel()
        if tensor_type == "F16":
            return values.astype(np.float16).view(np.uint8).ravel()
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).ravel()
    row = TENSOR_TYPES[tensor_type]
    blocks = rng.integers(0, 256, (rows * (cols // row.block_size), row.block_bytes), dtype=np.uint8)
    for offset in HALF_FIELDS[tensor_type]:
        halves = (rng.standard_normal(len(blocks)) * 0.02).astype(np.float16)
        halves[::4] = (rng.standard_normal(len(halves[::4])) * 2e-6).astype(np.float16)
        if scale is not None:
            halves[:] = scale
        blocks[:, offset : offset + 2] = halves.view(np.uint8).reshape(-1, 2)
    return blocks.ravel()


def make_weight(
    tensor_type: str, rows: int, cols: int, *, seed: int = 0
) -> tuple[_native.Weight, npt.NDArray[np.float32]]:
    """A packed weight and the float32 values it stands for."""
    data = make_bytes(tensor_type, rows, cols, seed=seed)
    return _native.pack_weight(tensor_type, data, rows, cols), dequantise(tensor_type, data, (rows, cols))


def make_input(tokens: int, cols: int, *, seed: int = 0) -> Floats:
    """Activations with the outliers real ones have."""
    rng = np.random.default_rng([seed, tokens, cols, 1])
    x = rng.standard_normal((tokens, cols)).astype(np.float32)
    x[rng.random((tokens, cols)) < 0.01] *= 30
    return x


def round_to_bf16(x: Floats) -> Floats:
    """Round to nearest, ties to even; finite numbers only."""
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32)


def quantise_a8(x: Floats) -> Doubles:
    """x as int8 per 32 sees it: whole numbers times amax / 127, in float64."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    amax = np.abs(blocks).max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        inverse = np.where(amax > 0, np.float32(127) / amax, np.float32(0))
    q = np.rint(blocks * inverse)
    values: Doubles = q.astype(np.float64) * (amax / np.float32(127)).astype(np.float64)
    return values.reshape(x.shape)


def linear_twin(tensor_type: str, w: Floats, x: Floats) -> tuple[Doubles, Doubles]:
    """(x @ w.T in float64 on the operands the arithmetic sees, sum of the magnitudes of its terms)."""
    arithmetic = TENSOR_TYPES[tensor_type].arithmetic
    a: Doubles
    if arithmetic is Arithmetic.INT8:
        a = quantise_a8(x)
    elif arithmetic is Arithmetic.BF16:
        w, a = round_to_bf16(w), round_to_bf16(x).astype(np.float64)
    else:
        a = x.astype(np.float64)
    wide = w.astype(np.float64)
    return a @ wide.T, np.abs(a) @ np.abs(wide).T
