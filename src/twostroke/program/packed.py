"""A program's matrices in the packed layout: all in one arena, one after another in the order a step reads them.

One large piece of memory is what the system backs with huge pages; matrices of a small model are too small
to get any by themselves. It is packed, or taken from where it was kept the last time. Called by the native
reader; knows no file.
"""

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from twostroke import _native
from twostroke.errors import KernelError
from twostroke.program.op import RmsNormAttrs
from twostroke.program.program import Program, WeightSpec
from twostroke.program.quant import StoredTensor

LAYOUT_VERSION = 1  # of native/pack.h, one layout for every ISA: a change makes kept matrices worthless


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """Place of a matrix in the arena; offset and size are multiples of 64."""

    name: str
    tensor_type: str
    rows: int
    cols: int
    offset: int
    num_bytes: int


class KeptMatrices(Protocol):
    """Where packed matrices stay from one load to the next. Neither call raises for what a disk may do."""

    def find(self, matrices: Sequence[PackedMatrix], *, pool: _native.Pool) -> _native.WeightArena | None:
        """An arena that holds the matrices; None where they have to be packed."""
        ...

    def keep(self, arena: _native.WeightArena, matrices: Sequence[PackedMatrix], *, pool: _native.Pool) -> None:
        """Offered after packing; may decline."""
        ...


def packed_layout(program: Program) -> tuple[PackedMatrix, ...]:
    """Every matrix once, however often it is used, without holes."""
    layout: dict[str, PackedMatrix] = {}
    end = 0
    for instr in program.instrs:
        if isinstance(instr.attrs, RmsNormAttrs):  # its weight is a vector
            continue
        for name in instr.weights:
            if name not in layout:
                spec = program.weights[name]
                rows, cols = spec.shape
                num_bytes = _native.packed_bytes(spec.tensor_type, rows, cols)
                layout[name] = PackedMatrix(name, spec.tensor_type, rows, cols, end, num_bytes)
                end += num_bytes
    return tuple(layout.values())


def pack_matrices(
    program: Program, tensors: Mapping[str, StoredTensor], *, pool: _native.Pool, kept: KeptMatrices | None = None
) -> dict[str, _native.Weight]:
    """Packed matrices by name. What was kept is taken without a look at the tensors' bytes."""
    layout = packed_layout(program)
    if kept is not None and (found := kept.find(layout, pool=pool)) is not None:
        return {each.name: found.weight(each.tensor_type, each.rows, each.cols, each.offset) for each in layout}
    arena = _native.WeightArena(sum(matrix.num_bytes for matrix in layout))
    weights = {}
    for matrix in layout:
        tensor = stored_tensor(tensors, program.weights[matrix.name])
        weights[matrix.name] = _pack(tensor, matrix, arena=arena, pool=pool)
    if kept is not None:
        kept.keep(arena, layout, pool=pool)
    return weights


def _pack(
    tensor: StoredTensor, matrix: PackedMatrix, *, arena: _native.WeightArena, pool: _native.Pool
) -> _native.Weight:
    """One matrix to its place; the file's pages of it are given back."""
    weight = pool.pack_weight(matrix.tensor_type, tensor.data, matrix.rows, matrix.cols, arena, matrix.offset)
    release_pages(tensor.data)
    return weight


def stored_tensor(tensors: Mapping[str, StoredTensor], spec: WeightSpec) -> StoredTensor:
    """A weight as its file has it. Raises KernelError where the program expects another shape."""
    tensor = tensors[spec.name]
    if tuple(tensor.shape) != spec.shape:
        raise KernelError(f"{spec.name} has shape {list(tensor.shape)}, the program says {list(spec.shape)}")
    assert tensor.tensor_type == spec.tensor_type, f"{spec.name} is {tensor.tensor_type}, not {spec.tensor_type}"
    return tensor


def release_pages(data: npt.NDArray[np.uint8]) -> None:
    """Tells the system that a mapped file's pages are not needed now; they stay in its cache. Else does nothing."""
    root: object = data
    while isinstance(root, np.ndarray):
        root = root.base
    if isinstance(root, memoryview):
        root = root.obj
    if not isinstance(root, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = data.ctypes.data - np.frombuffer(root, np.uint8, count=1).ctypes.data
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (start + data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first:
        root.madvise(mmap.MADV_DONTNEED, first, last - first)
