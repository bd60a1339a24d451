"""A program's matrices in the packed layout: all in one arena, one after another in the order a step reads them.

One large piece of memory is what the system backs with huge pages; matrices of a small model are too small
to get any by themselves. Called by the native reader; knows no file.
"""

import mmap
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twostroke import _native
from twostroke.errors import KernelError
from twostroke.program.op import RmsNormAttrs
from twostroke.program.program import Program, WeightSpec
from twostroke.program.quant import StoredTensor


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """Place of a matrix in the arena; offset and size are multiples of 64."""

    name: str
    tensor_type: str
    rows: int
    cols: int
    offset: int
    num_bytes: int


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
    program: Program, tensors: Mapping[str, StoredTensor], *, pool: _native.Pool
) -> dict[str, _native.Weight]:
    """Packed matrices by name; the file's pages of each are given back once it is packed."""
    layout = packed_layout(program)
    arena = _native.WeightArena(sum(matrix.num_bytes for matrix in layout))
    weights: dict[str, _native.Weight] = {}
    for matrix in layout:
        data = stored_tensor(tensors, program.weights[matrix.name]).data
        weights[matrix.name] = pool.pack_weight(
            matrix.tensor_type, data, matrix.rows, matrix.cols, arena, matrix.offset
        )
        release_pages(data)
    return weights


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
