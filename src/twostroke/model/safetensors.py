"""One safetensors file: header and extents, checked as strictly as the format's reference does, or stricter.

Nothing is allocated by a number the file says. Tensor names are plain text here: never a path. Called
by the folder reader.

    u64 header length | JSON: name -> dtype, shape, [begin, end) | tensor data without holes
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError
from twostroke.model.mapped_file import MappedFile
from twostroke.model.wrong_file import explain_wrong_file

MAX_HEADER_BYTES = 100_000_000  # the reference's limit
MAX_DIMENSIONS = 8
_DTYPE_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A tensor as the file has it: dtype in the format's spelling, outermost dimension first."""

    dtype: str
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class SafetensorsFile:
    mapped: MappedFile
    tensors: Mapping[str, StoredTensor]
    header_digest: str


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_safetensors(path: Path) -> SafetensorsFile:
    """Map and parse one file. Raises ModelFileError with the tensor, the value and the limit."""
    mapped = MappedFile(path)
    header_bytes = _read_header_length(mapped)
    raw = bytes(mapped.data[8 : 8 + header_bytes])
    entries = [_read_entry(path, name, entry) for name, entry in _parse_header(path, raw).items()]
    entries.sort(key=lambda entry: (entry.begin, entry.end))
    _check_extents(path, entries, data_bytes=mapped.size - 8 - header_bytes)
    data = mapped.array[8 + header_bytes :]
    return SafetensorsFile(
        mapped=mapped,
        tensors={
            entry.name: StoredTensor(entry.dtype, entry.shape, data[entry.begin : entry.end]) for entry in entries
        },
        header_digest=hashlib.sha256(raw).hexdigest(),
    )


def _read_header_length(mapped: MappedFile) -> int:
    head = mapped.head(64)
    length = int.from_bytes(head[:8], "little")
    if len(head) < 8 or length > mapped.size - 8 or length > MAX_HEADER_BYTES:
        meaning = explain_wrong_file(head)
        if meaning:
            raise ModelFileError(mapped.path, f"not a safetensors file: {meaning}")
    if len(head) < 8:
        raise ModelFileError(mapped.path, f"too short: {mapped.size} bytes, the header length alone has 8")
    if length > mapped.size - 8:
        raise ModelFileError(
            mapped.path,
            f"the header length is {length}, {mapped.size - 8} bytes follow: "
            "not a safetensors file, or not fully downloaded",
        )
    if length > MAX_HEADER_BYTES:
        raise ModelFileError(mapped.path, f"the header has {length} bytes; the limit is {MAX_HEADER_BYTES}")
    return length


def _parse_header(path: Path, raw: bytes) -> dict[str, Any]:
    """Name -> entry, metadata removed after its check."""
    try:
        text = raw.decode()
        if not text.startswith("{"):
            raise ModelFileError(path, f"the header starts with {raw[:8]!r}; it must be a JSON object")
        header = json.loads(text, object_pairs_hook=lambda pairs: _without_duplicates(path, pairs))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(path, f"the header is not JSON: {error}") from None
    extra = header.pop("__metadata__", {})
    if not isinstance(extra, dict) or not all(isinstance(value, str) for value in extra.values()):
        raise ModelFileError(path, "__metadata__ must map strings to strings")
    if not header:
        raise ModelFileError(path, "it holds no tensors")
    assert isinstance(header, dict)
    return header


def _without_duplicates(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ModelFileError(path, f"the header has {twice!r} twice")
    return found


def _read_entry(path: Path, name: str, entry: object) -> _Entry:
    what = f"tensor {name[:200]!r}"
    if not isinstance(entry, dict):
        raise ModelFileError(path, f"{what} is described by {entry!r:.80}; an object is needed")
    missing = [field for field in ("dtype", "shape", "data_offsets") if field not in entry]
    if missing:
        raise ModelFileError(path, f"{what} has no {missing[0]}")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPE_BITS:
        raise ModelFileError(path, f"{what} has the unknown dtype {dtype!r:.80}")
    if not _are_sizes(shape) or len(shape) > MAX_DIMENSIONS:
        raise ModelFileError(path, f"{what} has the shape {shape!r:.80}; up to {MAX_DIMENSIONS} whole numbers from 0")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ModelFileError(path, f"{what} has data_offsets {offsets!r:.80}; they must be begin <= end, both from 0")
    num_bits = math.prod(shape) * _DTYPE_BITS[dtype]
    if num_bits != (offsets[1] - offsets[0]) * 8:
        raise ModelFileError(
            path,
            f"{what} of shape {shape} and dtype {dtype} needs {num_bits / 8:.15g} bytes, "
            f"data_offsets {offsets} hold {offsets[1] - offsets[0]}",
        )
    return _Entry(name, dtype, tuple(shape), offsets[0], offsets[1])


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**64 for item in value)


def _check_extents(path: Path, entries: list[_Entry], *, data_bytes: int) -> None:
    """The tensors must tile the data: no overlap, no hole, nothing after the last."""
    if entries[0].begin != 0:
        raise ModelFileError(
            path, f"tensor {entries[0].name!r} begins at {entries[0].begin}; the first must begin at 0"
        )
    for before, entry in pairwise(entries):
        if entry.begin != before.end:
            kind = "overlaps" if entry.begin < before.end else "leaves a hole after"
            raise ModelFileError(
                path,
                f"tensor {entry.name!r} begins at {entry.begin} and {kind} {before.name!r}, which ends at {before.end}",
            )
    last = entries[-1]
    if last.end > data_bytes:
        raise ModelFileError(
            path, f"tensor {last.name!r} ends at {last.end}, the file has {data_bytes} bytes of data: it was cut"
        )
    if last.end < data_bytes:
        raise ModelFileError(path, f"{data_bytes - last.end} bytes follow the last tensor {last.name!r}")
