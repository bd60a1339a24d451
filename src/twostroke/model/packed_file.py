"""The file of a model's packed matrices: a checked head, then the bytes of the arena as they lie in memory.

Whatever is wrong with a file, looking at it says so and raises nothing but OSError. Called by the packed store,
which decides what is kept.

    magic | u32 bytes of JSON | sha256 of JSON | JSON | nothing up to a huge page | arena
"""

import hashlib
import json
import os
import struct
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from twostroke import _native
from twostroke.model.mapped_file import FileStamp
from twostroke.program.packed import PackedMatrix

HUGE_PAGE = 2**21  # where the arena begins: a huge page of memory holds one of the file
FORMAT = 1  # raise when the head or the checksum changes
_MAGIC = b"twostroke packed"
_PREFIX = struct.Struct(f"<{len(_MAGIC)}sI32s")
_MAX_HEAD_BYTES = 2**27  # a terabyte of weights has half of that
_WRITE_BYTES = 2**26  # one call of the system takes 2 GiB at most


@dataclass(frozen=True, slots=True)
class PackedHead:
    """What a file says of itself. `key` names model and versions, `checksums` the pieces of the arena."""

    key: str
    sources: tuple[FileStamp, ...]
    matrices: tuple[PackedMatrix, ...]
    checksums: npt.NDArray[np.uint64]
    start: int = 0  # where the arena begins; known once written

    @property
    def num_bytes(self) -> int:
        """Bytes of the arena."""
        return sum(matrix.num_bytes for matrix in self.matrices)


def write_packed(file: FileIO, head: PackedHead, data: npt.NDArray[np.uint8]) -> None:
    """Head and arena, from the file's beginning; raises OSError."""
    facts = {
        "format": FORMAT,
        "key": head.key,
        "sources": [{**asdict(source), "path": os.fsencode(source.path).hex()} for source in head.sources],
        "matrices": [list(asdict(matrix).values()) for matrix in head.matrices],
        "checksums": head.checksums.astype("<u8").tobytes().hex(),
    }
    text = json.dumps(facts).encode()
    prefix = _PREFIX.pack(_MAGIC, len(text), hashlib.sha256(text).digest())
    _write_all(file, memoryview(prefix + text))
    file.seek(_start(len(text)))  # what is skipped takes no room on most disks
    _write_all(file, data.data)


def _write_all(file: FileIO, data: memoryview) -> None:
    while data:
        data = data[file.write(data[:_WRITE_BYTES]) :]


def read_head(file: BinaryIO) -> PackedHead | None:
    """The head, or None where the file is none of ours, is damaged or has another length than it says."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        prefix = file.read(_PREFIX.size)
        magic, num_bytes, digest = _PREFIX.unpack(prefix.ljust(_PREFIX.size))
        if magic != _MAGIC or num_bytes > _MAX_HEAD_BYTES:
            return None
        text = file.read(num_bytes)
        if hashlib.sha256(text).digest() != digest:
            return None
        facts = json.loads(text)
        start = _start(num_bytes)
        head = _parse(facts, start)
        if facts["format"] == FORMAT and os.fstat(file.fileno()).st_size == start + head.num_bytes:
            return head
    return None


def _start(num_bytes: int) -> int:
    """Where the arena begins behind so many bytes of JSON."""
    return -(-(_PREFIX.size + num_bytes) // HUGE_PAGE) * HUGE_PAGE


def _parse(facts: dict[str, Any], start: int) -> PackedHead:
    return PackedHead(
        key=facts["key"],
        sources=tuple(_stamp(source) for source in facts["sources"]),
        matrices=tuple(PackedMatrix(*matrix) for matrix in facts["matrices"]),
        checksums=np.frombuffer(bytes.fromhex(facts["checksums"]), "<u8"),
        start=start,
    )


def _stamp(facts: dict[str, Any]) -> FileStamp:
    return FileStamp(**{**facts, "path": Path(os.fsdecode(bytes.fromhex(facts["path"])))})


def map_arena(file: BinaryIO, head: PackedHead, *, pool: _native.Pool) -> _native.WeightArena | None:
    """The arena as the file holds it, every byte looked at; None where one is damaged."""
    arena = _native.WeightArena.map(file.fileno(), head.start, head.num_bytes)
    return arena if np.array_equal(arena.checksums(pool), head.checksums) else None
