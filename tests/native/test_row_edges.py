"""Row ops at their edges: a row writes itself and nothing else at every length, special numbers stay in place."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from twostroke import _native

Floats = npt.NDArray[np.float32]
ISAS = _native.usable_isas()
EVERY_ISA = pytest.mark.parametrize("isa", ISAS)
GUARD = np.float32(7.5)
DENORMAL = np.float32(1e-40)


class RowOp(NamedTuple):
    """An op of `num_inputs` rows of one length, and whether an element depends on its own place alone."""

    run: Callable[[str, list[Floats], Floats], None]
    num_inputs: int
    is_elementwise: bool = True


def run_rope(isa: str, rows: list[Floats], out: Floats, *, pairs: bool) -> None:
    half = len(out) // 2
    _native.row_rope(isa, rows[0], rows[1][:half], rows[2][:half], pairs, out)


OPS = {
    "rmsnorm": RowOp(
        lambda isa, rows, out: _native.row_rmsnorm(isa, rows[0], rows[1], 1e-5, out), 2, is_elementwise=False
    ),
    "rope in halves": RowOp(lambda isa, rows, out: run_rope(isa, rows, out, pairs=False), 3, is_elementwise=False),
    "rope in pairs": RowOp(lambda isa, rows, out: run_rope(isa, rows, out, pairs=True), 3, is_elementwise=False),
    "silu": RowOp(lambda isa, rows, out: _native.row_glu(isa, False, rows[0], rows[1], out), 2),
    "gelu": RowOp(lambda isa, rows, out: _native.row_glu(isa, True, rows[0], rows[1], out), 2),
    "add": RowOp(lambda isa, rows, out: _native.row_add(isa, rows[0], rows[1], out), 2),
    "scale": RowOp(lambda isa, rows, out: _native.row_scale(isa, rows[0], -1.7, out), 1),
    "softcap": RowOp(lambda isa, rows, out: _native.row_softcap(isa, rows[0], 2.5, out), 1),
}
EVERY_OP = pytest.mark.parametrize("name", OPS)
EVERY_ELEMENTWISE = pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.is_elementwise])


def rows_of(op: RowOp, n: int, *, seed: int = 0) -> list[Floats]:
    rng = np.random.default_rng([seed, n])
    return [rng.standard_normal(n).astype(np.float32) * 2 for _ in range(op.num_inputs)]


def run(op: RowOp, isa: str, rows: list[Floats], *, offset: int = 0) -> Floats:
    """The op's row; inputs and output start `offset` floats into a line, and what lies around must stay."""
    n = len(rows[0])
    rooms = [np.full(n + offset + 20, GUARD) for _ in range(op.num_inputs + 1)]
    places = [room[offset : offset + n] for room in rooms]
    for place, row in zip(places, rows, strict=False):
        place[:] = row
    op.run(isa, places[:-1], places[-1])
    for room in rooms:
        assert (room[:offset] == GUARD).all(), "wrote before a row"
        assert (room[offset + n :] == GUARD).all(), "wrote behind a row"
    for place, row in zip(places, rows, strict=False):
        assert place.tobytes() == row.tobytes(), "changed an input"
    return places[-1]


@EVERY_ISA
@EVERY_OP
def test_every_length_at_every_alignment_has_the_same_bits(isa: str, name: str) -> None:
    op = OPS[name]
    for n in range(0 if op.is_elementwise else 2, 50, 1 if op.is_elementwise else 2):
        rows = rows_of(op, n)
        wanted = run(op, isa, rows)
        for offset in (1, 2, 3, 5, 8, 13, 15):
            assert run(op, isa, rows, offset=offset).tobytes() == wanted.tobytes(), (n, offset)


@EVERY_ISA
@EVERY_ELEMENTWISE
def test_an_element_knows_nothing_of_the_row_it_is_in(isa: str, name: str) -> None:
    op = OPS[name]
    rows = rows_of(op, 67)
    whole = run(op, isa, rows)
    for n in (1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 48, 66):
        for start in (0, 1, 67 - n):
            part = run(op, isa, [np.ascontiguousarray(row[start : start + n]) for row in rows])
            assert part.tobytes() == whole[start : start + n].tobytes(), (n, start)


@EVERY_ISA
@EVERY_ELEMENTWISE
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, DENORMAL, -DENORMAL, -0.0, 3e38, -3e38])
def test_a_special_number_leaves_its_neighbours_alone(isa: str, name: str, special: float) -> None:
    op = OPS[name]
    rows = rows_of(op, 37)
    clean = run(op, isa, rows)
    for place in (0, 7, 8, 15, 16, 31, 32, 36):
        for changed in range(op.num_inputs):
            odd = [row.copy() for row in rows]
            odd[changed][place] = special
            got = run(op, isa, odd)
            others = np.arange(37) != place
            assert got[others].tobytes() == clean[others].tobytes(), (place, changed)
            if np.isnan(special):
                assert np.isnan(got[place])


@EVERY_ISA
@pytest.mark.parametrize("place", [0, 5, 15, 16, 17, 39])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_none_spoils_its_whole_norm(isa: str, place: int, special: float) -> None:
    x, weight = rows_of(OPS["rmsnorm"], 40)
    x[place] = special
    got = run(OPS["rmsnorm"], isa, [x, weight])
    others = np.arange(40) != place
    if np.isnan(special):
        assert np.isnan(got).all()
    else:
        assert not got[others].any()
        assert np.isnan(got[place])


@EVERY_ISA
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("head_dim", [2, 8, 24, 34, 64])
def test_a_poisoned_pair_turns_alone(isa: str, pairs: bool, head_dim: int) -> None:
    op = OPS["rope in pairs" if pairs else "rope in halves"]
    rows = rows_of(op, head_dim)
    clean = run(op, isa, rows)
    for index in range(head_dim // 2):
        pair = [2 * index, 2 * index + 1] if pairs else [index, index + head_dim // 2]
        odd = [rows[0].copy(), *rows[1:]]
        odd[0][pair[1]] = np.nan
        got = run(op, isa, odd)
        assert np.isnan(got[pair]).all()
        assert np.delete(got, pair).tobytes() == np.delete(clean, pair).tobytes()


@EVERY_ISA
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("head_dim", [2, 6, 16, 34, 128])
def test_quarter_turns_move_elements_exactly(isa: str, pairs: bool, head_dim: int) -> None:
    half = head_dim // 2
    x = np.arange(1, head_dim + 1, dtype=np.float32)
    a, b = (x[0::2], x[1::2]) if pairs else (x[:half], x[half:])
    for cos, sin in ((1, 0), (0, 1), (-1, 0), (0, -1)):
        got = run(
            OPS["rope in pairs" if pairs else "rope in halves"], isa, [x, np.full_like(x, cos), np.full_like(x, sin)]
        )
        turned = got[0::2] + 1j * got[1::2] if pairs else got[:half] + 1j * got[half:]
        assert np.array_equal(turned, (a + 1j * b) * (cos + 1j * sin))


@EVERY_ISA
@EVERY_OP
def test_an_op_may_write_over_its_first_input(isa: str, name: str) -> None:
    """Chains of row ops run in one buffer."""
    op = OPS[name]
    for n in (2, 14, 16, 18, 34, 64):
        rows = rows_of(op, n)
        wanted = run(op, isa, rows)
        op.run(isa, rows, rows[0])
        assert rows[0].tobytes() == wanted.tobytes(), n


@EVERY_ISA
@pytest.mark.parametrize("size", [1e-30, 1e-17, 1e-3, 1.0, 1e17])
def test_rmsnorm_is_right_at_every_size_of_its_row(isa: str, size: float) -> None:
    x = rows_of(OPS["rmsnorm"], 96)[0] * np.float32(size)
    out = np.empty_like(x)
    eps = 0.0 if size > 1e-20 else 1e-5  # squares of the smallest are zero
    _native.row_rmsnorm(isa, x, np.ones_like(x), eps, out)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(out, wide / np.sqrt(np.mean(wide**2) + eps), rtol=3e-6)


@EVERY_ISA
@pytest.mark.parametrize("gelu", [False, True])
def test_glu_is_zero_far_below_and_the_gate_far_above(isa: str, gelu: bool) -> None:
    gate = np.linspace(20, 88, 69, dtype=np.float32)
    ones = np.ones_like(gate)
    got = run(OPS["gelu" if gelu else "silu"], isa, [gate, ones])
    np.testing.assert_allclose(got, gate, rtol=1e-7)
    below = run(OPS["gelu" if gelu else "silu"], isa, [-gate, ones])
    np.testing.assert_allclose(
        below, 0 * gate if gelu else -gate * np.exp(-gate.astype(np.float64)), rtol=1e-5, atol=1e-6
    )
    assert (below <= 0).all()


@EVERY_ISA
@pytest.mark.parametrize("cap", [0.1, 30.0])
def test_softcap_is_odd_rises_and_never_passes_its_cap(isa: str, cap: float) -> None:
    x = np.sort(np.concatenate([np.geomspace(1e-6, 1e6, 200) * cap, [np.inf]]).astype(np.float32))
    got, mirrored = np.empty_like(x), np.empty_like(x)
    _native.row_softcap(isa, x, cap, got)
    _native.row_softcap(isa, -x, cap, mirrored)
    assert np.array_equal(mirrored, -got)
    assert (np.diff(got) >= -np.spacing(got[1:])).all()
    assert got.max() <= np.float32(cap)
    assert got[-1] == np.float32(cap)


@EVERY_ISA
@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_rows_of_another_length_are_refused_and_nothing_is_written(isa: str, wrong: int) -> None:
    for name, op in OPS.items():
        if "rope" in name or wrong > op.num_inputs:
            continue
        rows = [*rows_of(op, 8), np.full(8, GUARD)]
        rows[wrong] = rows[wrong][:7]
        with pytest.raises(ValueError, match="arrays differ in size"):
            op.run(isa, rows[:-1], rows[-1])
        assert (rows[-1] == GUARD).all()


@EVERY_ISA
def test_angles_that_do_not_fit_the_head_are_refused(isa: str) -> None:
    x, out = np.ones(8, np.float32), np.full(8, GUARD)
    for num_cos, num_sin in ((5, 5), (4, 3), (3, 4)):
        with pytest.raises(ValueError, match="angles do not fit the head"):
            _native.row_rope(isa, x, x[:num_cos], x[:num_sin], False, out)
    with pytest.raises(ValueError, match="differ in size"):
        _native.row_rope(isa, x, x[:4], x[:4], False, out[:7])
    assert (out == GUARD).all()
