"""A check people ask for: which tensors hold NaN or infinity. Reads the whole file, so loading never calls it.

Quantised blocks cannot hold either but in their 16-bit scales; those are looked at.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twostroke.model.source import ModelSource, TensorRef
from twostroke.model.tensor_type import BLOCK_SIZES, SUPPORTED_TYPES

_SCALE_OFFSETS = {  # bytes into a block where a float16 stands
    "Q8_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
_CHUNK_BLOCKS = 2**20  # bounds what one look allocates


@dataclass(frozen=True, slots=True)
class FiniteCheck:
    """What was looked at, and what was found there: names of tensors in file order."""

    num_tensors: int
    num_weights: int
    bad: tuple[str, ...]  # with a NaN or infinite weight or scale
    unread: tuple[str, ...]  # of types that no model here uses


def check_finite(source: ModelSource) -> FiniteCheck:
    """Look at every tensor of a supported type."""
    stored = list(source.tensors.stored())
    read = [tensor for tensor in stored if tensor.tensor_type in SUPPORTED_TYPES]
    return FiniteCheck(
        num_tensors=len(read),
        num_weights=sum(math.prod(tensor.shape) for tensor in read),
        bad=tuple(tensor.name for tensor in read if not is_finite(tensor)),
        unread=tuple(tensor.name for tensor in stored if tensor.tensor_type not in SUPPORTED_TYPES),
    )


def is_finite(tensor: TensorRef) -> bool:
    """Whether every weight of one tensor is a finite number."""
    return all(bool(np.isfinite(values).all()) for values in _floats(tensor))


def _floats(tensor: TensorRef) -> Iterator[npt.NDArray[np.floating]]:
    blocks = tensor.data.reshape(-1, BLOCK_SIZES[tensor.tensor_type].num_bytes)
    for start in range(0, len(blocks), _CHUNK_BLOCKS):
        chunk = blocks[start : start + _CHUNK_BLOCKS]
        if tensor.tensor_type == "F32":
            yield chunk.view("<f4")
        elif tensor.tensor_type == "F16":
            yield chunk.view("<f2")
        elif tensor.tensor_type == "BF16":
            yield (chunk.view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            for offset in _SCALE_OFFSETS[tensor.tensor_type]:
                yield np.ascontiguousarray(chunk[:, offset : offset + 2]).view("<f2")
