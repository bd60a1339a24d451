"""Runs of GGUF strings (u64 length, bytes): finding where one ends, and decoding it in one go.

A vocabulary has a quarter of a million of them, so both walk the bytes without an object per step
where they can. Called by the GGUF reader.
"""

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class StringsEnd:
    """`num_read` strings fit in the file; the next one would start at `end`."""

    num_read: int
    end: int


def end_of_strings(data: npt.NDArray[np.uint8], *, start: int, length: int) -> StringsEnd:
    """Walk `length` strings from byte `start`, no further than the end of the data."""
    unpack, view, size, position = _LENGTH.unpack_from, data.data, len(data), start
    for index in range(length):
        if position + 8 > size:
            return StringsEnd(index, position)
        after = position + 8 + unpack(view, position)[0]
        if after > size:
            return StringsEnd(index, position)
        position = after
    return StringsEnd(length, position)


def read_strings(data: npt.NDArray[np.uint8], *, start: int, length: int) -> list[str]:
    """Decode the strings `end_of_strings` has walked; invalid UTF-8 becomes U+FFFD."""
    unpack, view, position = _LENGTH.unpack_from, data.data, start
    texts = []
    for _ in range(length):
        begin = position + 8
        position = begin + unpack(view, position)[0]
        texts.append(str(view[begin:position], "utf-8", "replace"))
    return texts
