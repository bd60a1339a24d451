"""The arena of packed matrices: mapped or of its own the same bytes, the same sums on any number of threads."""

import mmap
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.native.weight_builders import make_bytes
from twostroke import _native

PIECE = 2**19
OFFSET = mmap.PAGESIZE


def write_random(path: Path, num_bytes: int) -> np.ndarray:
    """A file of a page nobody maps and so many random bytes."""
    data = np.random.default_rng(num_bytes).integers(0, 256, num_bytes, dtype=np.uint8)
    path.write_bytes(bytes(OFFSET) + data.tobytes())
    return data


def map_file(path: Path, num_bytes: int, *, offset: int = OFFSET) -> _native.WeightArena:
    with path.open("rb") as file:
        return _native.WeightArena.map(file.fileno(), offset, num_bytes)


@pytest.mark.parametrize("num_bytes", [1, 64, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7, 2**23 + 64])
def test_a_mapped_file_is_seen_as_it_is(tmp_path: Path, num_bytes: int) -> None:
    data = write_random(tmp_path / "file", num_bytes)
    arena = map_file(tmp_path / "file", num_bytes)
    assert (arena.num_bytes, arena.is_mapped) == (num_bytes, True)
    assert np.array_equal(arena.data, data)


@pytest.mark.parametrize("num_bytes", [0, 1, PIECE, PIECE + 1, 5 * PIECE - 1])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_piece_has_the_sum_of_its_bytes(tmp_path: Path, num_bytes: int, threads: int) -> None:
    data = write_random(tmp_path / "file", num_bytes)
    sums = map_file(tmp_path / "file", num_bytes).checksums(_native.Pool(threads))
    assert sums.dtype == np.uint64
    assert sums.tolist() == [_native.checksum(data[start : start + PIECE]) for start in range(0, num_bytes, PIECE)]


def test_a_packed_arena_and_its_file_have_the_same_sums(tmp_path: Path) -> None:
    arena, pool = _native.WeightArena(64 * 32 * 4 * 100), _native.Pool(2)
    for index in range(100):
        pool.pack_weight("F32", make_bytes("F32", 64, 32, seed=index), 64, 32, arena, index * 64 * 32 * 4)
    (tmp_path / "file").write_bytes(bytes(OFFSET) + arena.data.tobytes())
    mapped = map_file(tmp_path / "file", arena.num_bytes)
    assert np.array_equal(mapped.checksums(pool), arena.checksums(pool))
    for index in (0, 57, 99):
        weight = mapped.weight("F32", 64, 32, index * 64 * 32 * 4)
        expected = make_bytes("F32", 64, 32, seed=index).view(np.float32).reshape(64, 32)
        assert np.array_equal(weight.unpack_row(63), expected[63])


def test_a_mapped_file_outlives_its_name_its_handle_and_the_arena(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = write_random(path, 64 * 32 * 4)
    weight = map_file(path, 64 * 32 * 4).weight("F32", 64, 32, 0)
    path.unlink()
    assert np.array_equal(np.frombuffer(weight.packed_panel(1).tobytes(), np.uint8), data[32 * 32 * 4 :])


def test_data_cannot_be_written_and_keeps_the_arena(tmp_path: Path) -> None:
    expected = write_random(tmp_path / "file", 4096)
    data = map_file(tmp_path / "file", 4096).data
    assert not data.flags.writeable
    assert np.array_equal(data, expected)


def test_a_mapped_arena_is_not_packed_into(tmp_path: Path) -> None:
    write_random(tmp_path / "file", 64 * 32 * 4)
    arena = map_file(tmp_path / "file", 64 * 32 * 4)
    with pytest.raises(ValueError, match="maps a file cannot be packed into"):
        _native.Pool(1).pack_weight("F32", make_bytes("F32", 64, 32), 64, 32, arena, 0)


def test_what_cannot_be_mapped_is_an_os_error(tmp_path: Path) -> None:
    write_random(tmp_path / "file", 4096)
    with pytest.raises(OSError, match="Invalid argument"):
        map_file(tmp_path / "file", 4096, offset=1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        _native.WeightArena.map(-1, 0, 4096)
    reading, writing = os.pipe()
    with pytest.raises(OSError, match="No such device"):
        _native.WeightArena.map(reading, 0, 4096)
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    ("tensor_type", "rows", "cols", "offset", "problem"),
    [
        ("Q9_9", 32, 32, 0, "unknown tensor type Q9_9"),
        ("Q8_0", 32, 33, 0, "no matrix of Q8_0 is 32 x 33"),
        ("Q8_0", 0, 32, 0, "no matrix of Q8_0 is 0 x 32"),
        ("Q8_0", 32, -32, 0, "no matrix of Q8_0 is 32 x -32"),
        ("Q8_0", 32, 32, 32, "1088 bytes at 32 do not fit"),
        ("Q8_0", 32, 32, 64, "1088 bytes at 64 do not fit an arena of 1088"),
        ("Q8_0", 33, 32, 0, "2176 bytes at 0 do not fit"),
    ],
)
def test_a_matrix_that_is_not_there_is_refused(
    tensor_type: str, rows: int, cols: int, offset: int, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        _native.WeightArena(1088).weight(tensor_type, rows, cols, offset)


def test_packed_bytes_are_those_of_a_packed_weight() -> None:
    for tensor_type, cols in (("F32", 7), ("F16", 7), ("BF16", 8), ("Q4_1", 64), ("Q6_K", 512)):
        weight = _native.pack_weight(tensor_type, make_bytes(tensor_type, 33, cols), 33, cols)
        assert _native.packed_bytes(tensor_type, 33, cols) == weight.num_bytes
        assert weight.num_bytes % 64 == 0
    with pytest.raises(ValueError, match="no matrix of Q4_1"):
        _native.packed_bytes("Q4_1", 1, 33)


def test_small_areas_are_in_no_huge_page() -> None:
    assert _native.WeightArena(4096).huge_bytes == 0


@given(st.binary(max_size=400), st.integers(0, 3), st.data())
def test_any_single_change_changes_the_sum(content: bytes, shift: int, data: st.DataObject) -> None:
    moved = np.frombuffer(bytes(shift) + content, np.uint8)[shift:]
    before = _native.checksum(moved)
    assert before == _native.checksum(np.frombuffer(content, np.uint8)), "alignment does not matter"
    assert before != _native.checksum(np.frombuffer(content + b"\0", np.uint8))
    if content:
        index, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
        changed = np.frombuffer(content, np.uint8).copy()
        changed[index] ^= 1 << bit
        assert _native.checksum(changed) != before


def test_words_that_change_places_change_the_sum() -> None:
    words = np.arange(1, 129, dtype=np.uint32)
    sums = {_native.checksum(np.roll(words, shift).view(np.uint8)) for shift in range(128)}
    assert len(sums) == 128


def test_sums_are_part_of_a_file_format() -> None:
    """The same on every machine and for ever, or `packed_file.FORMAT` is raised."""
    data = (np.arange(1000) * 7 % 251).astype(np.uint8)
    assert [_native.checksum(data[:size]) for size in (0, 1, 128, 1000)] == GOLDEN


GOLDEN = [0x8D863DD604B22955, 0xC1C1C7A2380607DF, 0x91BBB9CB8FEEB5C0, 0xF4BF366A2638341F]
