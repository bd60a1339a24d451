"""The native walk over strings agrees with an obvious one, on good bytes and on any bytes."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st

from tests.cases.make_malformed import encode_string
from twostroke import _native


def as_array(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def walk(data: bytes, start: int, length: int) -> tuple[list[bytes], int]:
    """The definition: take a length and that many bytes while they fit."""
    found: list[bytes] = []
    while len(found) < length and start + 8 <= len(data):
        size = int.from_bytes(data[start : start + 8], "little")
        if start + 8 + size > len(data):
            break
        found.append(data[start + 8 : start + 8 + size])
        start += 8 + size
    return found, start


@given(st.lists(st.binary(max_size=300), max_size=20), st.binary(max_size=20), st.binary(max_size=20))
def test_strings_are_read_as_written(texts: list[bytes], before: bytes, after: bytes) -> None:
    data = before + b"".join(map(encode_string, texts)) + after
    array, start = as_array(data), len(before)
    assert _native.end_of_strings(array, start, len(texts)) == (len(texts), len(data) - len(after))
    assert _native.read_strings(array, start, len(texts)) == [text.decode(errors="replace") for text in texts]


@given(st.binary(max_size=60), st.integers(0, 60), st.sampled_from([0, 1, 3, 2**40]))
def test_any_bytes_end_where_the_definition_ends(data: bytes, start: int, length: int) -> None:
    start = min(start, len(data))
    found, end = walk(data, start, length)
    assert _native.end_of_strings(as_array(data), start, length) == (len(found), end)


@pytest.mark.parametrize("size", [1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1])
def test_length_past_the_end_stops_the_walk(size: int) -> None:
    data = encode_string(b"ok") + size.to_bytes(8, "little")
    assert _native.end_of_strings(as_array(data), 0, 9) == (1, 10)
    with pytest.raises(ValueError, match="a string runs past the end"):
        _native.read_strings(as_array(data), 0, 2)


def test_start_past_the_end_is_refused() -> None:
    for call in (_native.end_of_strings, _native.read_strings):
        with pytest.raises(ValueError, match="start is past the end"):
            call(as_array(b"1234"), 5, 0)
    assert _native.end_of_strings(as_array(b"1234"), 4, 0) == (0, 4)
