"""One GGUF file (v2, v3): header, key-values and tensor infos, checked against the bytes that are there.

Every length and count is bounded by the bytes left before anything is allocated, so a hostile header
costs nothing. Tensor data is only located: offsets off the alignment and tensors that overlap are
refused; bytes after the last tensor are ignored, with a warning where they are more than filler. Called
by `open_model` through the split reader.

    magic | version | tensor count | key count | keys... | tensor infos... | padding | tensor data | anything
"""

import hashlib
import logging
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twostroke import _native
from twostroke.errors import ModelFileError
from twostroke.model.mapped_file import MappedFile
from twostroke.model.metadata import Metadata, MetadataValue, StringArray
from twostroke.model.source import TensorRef
from twostroke.model.tensor_type import BLOCK_SIZES, GGUF_TYPE_NAMES
from twostroke.model.wrong_file import explain_wrong_file

_LOG = logging.getLogger("twostroke")

SUPPORTED_VERSIONS = (2, 3)
MAX_NAME_BYTES = 65_535  # the format's limit for keys, taken for tensor names too
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 65_536  # one huge page would be 2 MiB; no writer goes beyond 4 KiB
MAX_ARRAY_DEPTH = 4
DEFAULT_ALIGNMENT = 32
MAX_TENSOR_BYTES = 2**63 - 1  # file sizes are signed 64-bit numbers
_HEADER_BYTES = 24
_SMALLEST_KEY = 8 + 1 + 4 + 1  # name length, one letter, type, one byte
_SMALLEST_TENSOR = 8 + 1 + 4 + 8 + 4 + 8  # name length, one letter, dimensions, one of them, type, offset

_BOOL, _STRING, _ARRAY = 7, 8, 9
_UNPACK = {kind: struct.Struct(f"<{code}") for kind, code in enumerate("BbHhIif")} | {
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_DTYPES = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", _BOOL: "?"} | {
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True, slots=True, eq=False)
class GgufFile:
    """One parsed file. `data_end` is where the last tensor ends; what follows is not read."""

    mapped: MappedFile
    metadata: Metadata
    tensors: dict[str, TensorRef]
    alignment: int
    data_end: int
    header_digest: str

    @property
    def path(self) -> Path:
        return self.mapped.path


@dataclass(frozen=True, slots=True)
class _TensorInfo:
    name: str
    dims: tuple[int, ...]  # innermost first, as stored
    type_id: int
    offset: int  # from the start of the data


def read_gguf(path: Path) -> GgufFile:
    """Map and parse one file. Raises ModelFileError with the key or tensor, the value and the limit."""
    mapped = MappedFile(path)
    num_tensors, num_keys = _read_counts(mapped)
    cursor = _Cursor(mapped, _HEADER_BYTES)
    metadata = Metadata(path, _read_keys(cursor, num_keys))
    infos = [_read_tensor_info(cursor, index) for index in range(num_tensors)]
    alignment = _read_alignment(metadata)
    data_start = -(-cursor.position // alignment) * alignment
    tensors = dict(_locate_tensors(mapped, infos, data_start=data_start, alignment=alignment))
    data_end = _check_overlap(mapped, infos, tensors, data_start=data_start)
    _warn_of_rest(mapped, data_end, alignment)
    return GgufFile(
        mapped=mapped,
        metadata=metadata,
        tensors=tensors,
        alignment=alignment,
        data_end=data_end,
        header_digest=hashlib.sha256(mapped.data[: cursor.position]).hexdigest(),
    )


def _read_counts(mapped: MappedFile) -> tuple[int, int]:
    """Check magic and version, return the counts of tensors and keys."""
    head = mapped.head(64)
    if head[:4] != b"GGUF":
        if len(head) < 4:
            raise ModelFileError(mapped.path, f"too short: {len(head)} bytes, a GGUF header has {_HEADER_BYTES}")
        meaning = explain_wrong_file(head)
        found = f"; {meaning}" if meaning else ""
        raise ModelFileError(mapped.path, f"not a GGUF file: it starts with {head[:4]!r} instead of b'GGUF'{found}")
    if len(head) < _HEADER_BYTES:
        raise ModelFileError(mapped.path, f"truncated header: {mapped.size} bytes, a GGUF header has {_HEADER_BYTES}")
    version, num_tensors, num_keys = struct.unpack_from("<IQQ", head, 4)
    _check_version(mapped.path, version)
    left = mapped.size - _HEADER_BYTES
    for noun, count, smallest in (("keys", num_keys, _SMALLEST_KEY), ("tensors", num_tensors, _SMALLEST_TENSOR)):
        if count * smallest > left:
            raise ModelFileError(
                mapped.path,
                f"header says {count} {noun}, which need at least {count} x {smallest} bytes; {left} are left",
            )
    return num_tensors, num_keys


def _check_version(path: Path, version: int) -> None:
    if version in SUPPORTED_VERSIONS:
        return
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if 1 <= swapped <= max(SUPPORTED_VERSIONS):
        raise ModelFileError(path, f"a big-endian file (version {swapped}); convert it to little-endian first")
    raise ModelFileError(path, f"unsupported GGUF version {version}; supported are 2 and 3")


class _Cursor:
    """A position in the header that never passes the end of the file."""

    def __init__(self, mapped: MappedFile, position: int) -> None:
        self.mapped = mapped
        self.position = position

    def take(self, num_bytes: int, what: str) -> int:
        """Step over bytes and return where they start."""
        start = self.position
        if num_bytes > self.mapped.size - start:
            left = self.mapped.size - start
            raise ModelFileError(self.mapped.path, f"{what} needs {num_bytes} bytes at {start}, {left} are left")
        self.position = start + num_bytes
        return start

    def u32(self, what: str) -> int:
        value: int = _U32.unpack_from(self.mapped.data, self.take(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        value: int = _U64.unpack_from(self.mapped.data, self.take(8, what))[0]
        return value

    def string(self, what: str) -> bytes:
        num_bytes = self.u64(f"{what} length")
        start = self.take(num_bytes, what)
        return bytes(self.mapped.data[start : start + num_bytes])

    def name(self, what: str) -> str:
        """A key or tensor name: 1 to 65 535 bytes of UTF-8 without control characters."""
        num_bytes = self.u64(f"{what} name length")
        if not 1 <= num_bytes <= MAX_NAME_BYTES:
            raise self.error(f"{what} has a name of {num_bytes} bytes; the limit is 1 to {MAX_NAME_BYTES}")
        start = self.take(num_bytes, f"{what} name")
        raw = bytes(self.mapped.data[start : start + num_bytes])
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            raise self.error(f"{what} has the name {raw[:80]!r}, which is not UTF-8") from None
        if not name.isprintable():
            raise self.error(f"{what} has the name {name[:80]!r}, which holds control characters")
        return name

    def error(self, problem: str) -> ModelFileError:
        return ModelFileError(self.mapped.path, problem)


def _read_keys(cursor: _Cursor, num_keys: int) -> dict[str, MetadataValue]:
    values: dict[str, MetadataValue] = {}
    for index in range(num_keys):
        key = cursor.name(f"key {index + 1} of {num_keys}")
        what = f"key {key!r}"
        if key in values:
            raise cursor.error(f"{what} is there twice")
        values[key] = _read_value(cursor, cursor.u32(f"type of {what}"), what)
    return values


def _read_value(cursor: _Cursor, kind: int, what: str, *, depth: int = 0) -> MetadataValue:
    if kind == _STRING:
        raw = cursor.string(what)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise cursor.error(f"{what} is not UTF-8 at byte {error.start} of {len(raw)}") from None
    if kind == _ARRAY:
        return _read_array(cursor, what, depth=depth + 1)
    if kind == _BOOL:
        byte = int(cursor.mapped.data[cursor.take(1, what)])
        if byte > 1:
            raise cursor.error(f"{what} is a bool with the byte {byte}; only 0 and 1 are bools")
        return bool(byte)
    if kind in _UNPACK:
        unpack = _UNPACK[kind]
        value: int | float = unpack.unpack_from(cursor.mapped.data, cursor.take(unpack.size, what))[0]
        return value
    raise cursor.error(f"{what} has the unknown value type {kind}; GGUF has 0 to 12")


def _read_array(cursor: _Cursor, what: str, *, depth: int) -> MetadataValue:
    kind, length = cursor.u32(f"element type of {what}"), cursor.u64(f"length of {what}")
    left = cursor.mapped.size - cursor.position
    if kind == _STRING:
        return _read_string_array(cursor, length, what)
    if kind == _ARRAY:
        if depth == MAX_ARRAY_DEPTH:
            raise cursor.error(f"{what} has arrays in arrays {depth + 1} deep; the limit is {MAX_ARRAY_DEPTH}")
        if length * 12 > left:
            raise cursor.error(f"{what} has {length} arrays of at least 12 bytes; {left} bytes are left")
        return tuple(_read_array(cursor, what, depth=depth + 1) for _ in range(length))
    if kind not in _DTYPES:
        raise cursor.error(f"{what} has the unknown element type {kind}; GGUF has 0 to 12")
    dtype = np.dtype(_DTYPES[kind])
    start = cursor.take(length * dtype.itemsize, f"{what} ({length} x {dtype.itemsize} bytes)")
    return np.frombuffer(cursor.mapped.data, dtype=dtype, count=length, offset=start)


def _read_string_array(cursor: _Cursor, length: int, what: str) -> StringArray:
    """Only the end is looked for; the strings stay in the file until someone reads them."""
    mapped, start = cursor.mapped, cursor.position
    left = mapped.size - start
    if length * 8 > left:
        raise cursor.error(f"{what} has {length} strings of at least 8 bytes; {left} bytes are left")
    num_read, end = _native.end_of_strings(mapped.array, start, length)
    if num_read < length:
        raise cursor.error(f"{what}: string {num_read + 1} of {length} at byte {end} runs past the end of the file")
    cursor.position = end
    return StringArray(length, lambda: _native.read_strings(mapped.array, start, length))


def _read_tensor_info(cursor: _Cursor, index: int) -> _TensorInfo:
    name = cursor.name(f"tensor {index + 1}")
    what = f"tensor {name!r}"
    num_dims = cursor.u32(f"{what} dimension count")
    if not 1 <= num_dims <= MAX_DIMENSIONS:
        raise cursor.error(f"{what} has {num_dims} dimensions; the limit is 1 to {MAX_DIMENSIONS}")
    dims = tuple(cursor.u64(f"{what} dimensions") for _ in range(num_dims))
    if 0 in dims:
        raise cursor.error(f"{what} has the dimensions {dims}; none may be 0")
    return _TensorInfo(name, dims, cursor.u32(f"{what} type"), cursor.u64(f"{what} offset"))


def _read_alignment(metadata: Metadata) -> int:
    alignment = metadata.integer("general.alignment", default=DEFAULT_ALIGNMENT)
    if alignment < 1 or alignment & (alignment - 1) or alignment > MAX_ALIGNMENT:
        raise ModelFileError(
            metadata.file,
            f"key 'general.alignment' is {alignment}; it must be a power of two from 1 to {MAX_ALIGNMENT}",
        )
    return alignment


def _locate_tensors(
    mapped: MappedFile, infos: list[_TensorInfo], *, data_start: int, alignment: int
) -> Iterator[tuple[str, TensorRef]]:
    seen: set[str] = set()
    for info in infos:
        if info.name in seen:
            raise ModelFileError(mapped.path, f"tensor {info.name!r} is there twice")
        seen.add(info.name)
        if info.offset % alignment:
            raise ModelFileError(
                mapped.path, f"tensor {info.name!r} has the offset {info.offset}, not a multiple of {alignment}"
            )
        start, num_bytes = data_start + info.offset, _tensor_bytes(mapped.path, info)
        if num_bytes > MAX_TENSOR_BYTES:
            raise ModelFileError(
                mapped.path, f"tensor {info.name!r} of dimensions {info.dims} needs {num_bytes} bytes: size overflow"
            )
        if start + num_bytes > mapped.size:
            raise ModelFileError(
                mapped.path,
                f"tensor {info.name!r} needs {num_bytes} bytes at {start}; the file has {mapped.size}: "
                "it was cut or not fully downloaded, fetch it again",
            )
        type_name = GGUF_TYPE_NAMES.get(info.type_id, f"number {info.type_id}")
        data = mapped.array[start : start + num_bytes]
        yield info.name, TensorRef(info.name, type_name, info.dims[::-1], data)


def _tensor_bytes(path: Path, info: _TensorInfo) -> int:
    """Stored size; 0 for a type we do not know, whose size nobody can tell."""
    type_name = GGUF_TYPE_NAMES.get(info.type_id)
    if type_name is None:
        return 0
    block = BLOCK_SIZES[type_name]
    if info.dims[0] % block.num_elements:
        raise ModelFileError(
            path,
            f"tensor {info.name!r} has rows of {info.dims[0]} elements, not a multiple of the "
            f"{block.num_elements} in a {type_name} block",
        )
    num_bytes = info.dims[0] // block.num_elements * block.num_bytes
    for dim in info.dims[1:]:
        num_bytes *= dim
    return num_bytes


def _check_overlap(
    mapped: MappedFile, infos: list[_TensorInfo], tensors: dict[str, TensorRef], *, data_start: int
) -> int:
    """Return where the last tensor ends; two tensors that share bytes are an error."""
    end, before = data_start, ""
    for info in sorted(infos, key=lambda info: info.offset):
        start = data_start + info.offset
        if start < end:
            raise ModelFileError(
                mapped.path, f"tensor {info.name!r} at byte {start} overlaps {before!r}, which ends at {end}"
            )
        end, before = start + len(tensors[info.name].data), info.name
    return end


def _warn_of_rest(mapped: MappedFile, data_end: int, alignment: int) -> None:
    """Say what is more than filler: a tensor count that is too small shifts every weight and shows nowhere else."""
    rest_bytes = mapped.size - (-(-data_end // alignment) * alignment)
    if rest_bytes >= alignment:
        _LOG.warning(
            "%s: %d bytes after the last tensor are ignored: files were joined, or the header has lost a tensor",
            mapped.path,
            rest_bytes,
        )
