"""Panels of every type: as many bytes as the file, each row in its own place, the same from one thread or many."""

import hashlib

import numpy as np
import pytest

from tests.native.weight_builders import make_bytes
from twostroke import _native
from twostroke.program.packed import LAYOUT_VERSION
from twostroke.program.quant import TENSOR_TYPES, dequantise

TYPES = list(TENSOR_TYPES)
EVERY_TYPE = pytest.mark.parametrize("tensor_type", TYPES)
PANEL_ROWS = 32


def cols_of(tensor_type: str, *, num_blocks: int = 2) -> int:
    block_size = TENSOR_TYPES[tensor_type].block_size
    return num_blocks * (block_size if block_size > 1 else 32)


def panels(weight: _native.Weight) -> list[bytes]:
    return [weight.packed_panel(panel).tobytes() for panel in range(-(-weight.rows // PANEL_ROWS))]


@EVERY_TYPE
@pytest.mark.parametrize("num_blocks", [1, 2, 3, 9])
@pytest.mark.parametrize("rows", [1, 31, 32, 33, 64, 65])
def test_bytes_are_those_of_the_file_up_to_whole_panels(tensor_type: str, num_blocks: int, rows: int) -> None:
    cols = cols_of(tensor_type, num_blocks=num_blocks)
    data = make_bytes(tensor_type, rows, cols)
    weight = _native.pack_weight(tensor_type, data, rows, cols)
    num_panels = -(-rows // PANEL_ROWS)
    assert weight.num_bytes == len(data) // rows * PANEL_ROWS * num_panels
    assert {len(panel) for panel in panels(weight)} == {weight.num_bytes // num_panels}
    assert (weight.rows, weight.cols) == (rows, cols)


@EVERY_TYPE
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("rows", [1, 40, 32 * 16, 32 * 16 + 1, 32 * 33 + 7])
def test_threads_pack_the_bytes_of_one(tensor_type: str, threads: int, rows: int) -> None:
    cols = cols_of(tensor_type, num_blocks=1)
    data = make_bytes(tensor_type, rows, cols, seed=threads)
    assert panels(_native.Pool(threads).pack_weight(tensor_type, data, rows, cols)) == panels(
        _native.pack_weight(tensor_type, data, rows, cols)
    )


@EVERY_TYPE
def test_every_bit_of_the_file_is_in_its_panel(tensor_type: str) -> None:
    """Packing moves bits and flips some: a changed bit of the file changes exactly one of the panel."""
    cols = cols_of(tensor_type, num_blocks=1)
    data = make_bytes(tensor_type, 2, cols)
    packed = np.frombuffer(panels(_native.pack_weight(tensor_type, data, 2, cols))[0], np.uint8)
    seen: set[int] = set()
    for bit in range(0, 8 * len(data), 1 if len(data) < 100 else 7):
        changed = data.copy()
        changed[bit // 8] ^= 1 << bit % 8
        other = np.frombuffer(panels(_native.pack_weight(tensor_type, changed, 2, cols))[0], np.uint8)
        (place,) = np.flatnonzero(np.unpackbits(packed ^ other))
        seen.add(int(place))
    assert len(seen) == len(range(0, 8 * len(data), 1 if len(data) < 100 else 7))


@EVERY_TYPE
def test_a_row_is_found_wherever_it_stands(tensor_type: str) -> None:
    cols = cols_of(tensor_type)
    rows = 70
    data = make_bytes(tensor_type, rows, cols)
    lines = data.reshape(rows, -1)
    wanted = dequantise(tensor_type, data, (rows, cols)).view(np.uint32)
    for order in (np.arange(rows)[::-1], np.random.default_rng(5).permutation(rows)):
        weight = _native.pack_weight(tensor_type, np.ascontiguousarray(lines[order]).ravel(), rows, cols)
        for row, source in enumerate(order):
            assert np.array_equal(weight.unpack_row(row).view(np.uint32), wanted[source])


@EVERY_TYPE
def test_rows_beyond_the_last_add_nothing(tensor_type: str) -> None:
    """A short panel is the full one with its other rows zero, so a linear over it gives zeros there."""
    cols = cols_of(tensor_type)
    data = make_bytes(tensor_type, 5, cols)
    padded = np.concatenate([data, np.zeros(len(data) // 5 * 27, np.uint8)])
    short, full = (_native.pack_weight(tensor_type, part, n, cols) for part, n in ((data, 5), (padded, 32)))
    x = np.random.default_rng(1).standard_normal((3, cols)).astype(np.float32)
    for isa in _native.usable_isas():
        assert np.array_equal(_native.linear(full, x, isa)[:, :5], _native.linear(short, x, isa))
        assert not _native.linear(full, x, isa)[:, 5:].any()


@EVERY_TYPE
def test_a_pool_refuses_what_is_no_matrix_with_the_numbers_and_stays_usable(tensor_type: str) -> None:
    pool = _native.Pool(2)
    cols = cols_of(tensor_type)
    data = make_bytes(tensor_type, 3, cols)
    for wrong in (data[:-1], data[:0], np.concatenate([data, data[:1]])):
        with pytest.raises(ValueError, match=f"^needs {len(data)} bytes, got {len(wrong)}$"):
            pool.pack_weight(tensor_type, wrong, 3, cols)
    for rows, columns in ((0, cols), (-1, cols), (3, 0), (3, -cols)):
        with pytest.raises(ValueError, match=f"^cannot pack {rows} x {columns} {tensor_type}$"):
            pool.pack_weight(tensor_type, data, rows, columns)
    if TENSOR_TYPES[tensor_type].block_size > 1:
        with pytest.raises(ValueError, match=f"^cannot pack 3 x {cols + 1} {tensor_type}$"):
            pool.pack_weight(tensor_type, data, 3, cols + 1)
    assert pool.pack_weight(tensor_type, data, 3, cols).rows == 3


def test_a_pool_refuses_types_and_rows_it_cannot_hold() -> None:
    pool = _native.Pool(2)
    with pytest.raises(ValueError, match=r"^unknown tensor type Q9_9$"):
        pool.pack_weight("Q9_9", np.zeros(4, np.uint8), 1, 1)
    cols = 2**18 + 32
    with pytest.raises(ValueError, match=r"262176 elements is longer than the limit of 262144"):
        pool.pack_weight("Q8_0", np.zeros(cols // 32 * 34, np.uint8), 1, cols)
    with pytest.raises(TypeError):
        pool.pack_weight("F32", np.zeros((2, 2), np.uint8), 1, 1)


@EVERY_TYPE
def test_bytes_with_gaps_between_them_are_packed_as_those_bytes(tensor_type: str) -> None:
    cols = cols_of(tensor_type)
    data = make_bytes(tensor_type, 33, cols)
    apart = np.repeat(data, 3)[::3]
    assert panels(_native.pack_weight(tensor_type, apart, 33, cols)) == panels(
        _native.pack_weight(tensor_type, data, 33, cols)
    )


@pytest.mark.parametrize(("rows", "num_panels"), [(1, 1), (32, 1), (33, 2), (100, 4)])
def test_panels_outside_the_weight_are_refused(rows: int, num_panels: int) -> None:
    weight = _native.pack_weight("F32", make_bytes("F32", rows, 4), rows, 4)
    assert len(weight.packed_panel(num_panels - 1)) == 4 * 4 * PANEL_ROWS
    for panel in (-1, num_panels, 2**31 - 1):
        with pytest.raises(IndexError, match="panel is outside the weight"):
            weight.packed_panel(panel)


def test_what_a_weight_hands_out_outlives_it_and_is_a_copy() -> None:
    weight = _native.pack_weight("F32", np.arange(8, dtype=np.float32).view(np.uint8), 2, 4)
    row, panel = weight.unpack_row(1), weight.packed_panel(0)
    row[:] = -1
    panel[:] = 0
    assert weight.unpack_row(1).tolist() == [4, 5, 6, 7]
    del weight
    assert row.tolist() == [-1] * 4


def test_a_layout_is_what_its_version_says() -> None:
    """Files keep packed bytes: where these change, so must LAYOUT_VERSION, or old files would be taken for new."""
    digest = hashlib.sha256()
    for tensor_type in sorted(TYPES):
        for panel in panels(_native.pack_weight(tensor_type, counted_bytes(tensor_type), 33, 512)):
            digest.update(panel)
    assert (LAYOUT_VERSION, digest.hexdigest()[:32]) == (1, "df0a7854c41a083859172316896d8b42")


def counted_bytes(tensor_type: str) -> np.ndarray:
    """Bytes without a random generator, whose numbers its next version may change."""
    size = TENSOR_TYPES[tensor_type].num_bytes((33, 512))
    return (np.arange(size, dtype=np.uint32) * np.uint32(2654435761) >> np.uint32(23)).astype(np.uint8)
