"""Row ops against NumPy in float64, over every length up to two vectors and odd alignments; bits do not move."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from twostroke import _native

Floats = npt.NDArray[np.float32]
ISAS = _native.usable_isas()
LENGTHS = [*range(1, 36), 63, 64, 65, 576, 1000]
EVERY_ISA = pytest.mark.parametrize("isa", ISAS)


def random(n: int, *, seed: int = 0, spread: float = 3.0) -> Floats:
    return (np.random.default_rng(seed).standard_normal(n) * spread).astype(np.float32)


def misaligned(x: Floats, offset: int) -> Floats:
    """A copy that starts `offset` floats into a line."""
    room = np.zeros(len(x) + offset, np.float32)
    room[offset:] = x
    return room[offset:]


def call(function: Callable[..., None], isa: str, *args: object, like: Floats) -> Floats:
    guarded = np.full(len(like) + 2, 7.0, np.float32)
    function(isa, *args, guarded[1:-1])
    assert guarded[0] == guarded[-1] == 7.0, "wrote beside its output"
    return guarded[1:-1]


def rmsnorm(isa: str, x: Floats, weight: Floats) -> Floats:
    return call(lambda *args: _native.row_rmsnorm(args[0], args[1], args[2], 1e-5, args[3]), isa, x, weight, like=x)


@EVERY_ISA
@pytest.mark.parametrize("n", LENGTHS)
def test_rmsnorm_is_numpys(isa: str, n: int) -> None:
    x, weight = random(n), random(n, seed=1)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt(np.mean(wide**2) + 1e-5) * weight
    np.testing.assert_allclose(rmsnorm(isa, x, weight), expected, rtol=2e-6, atol=1e-7)


@EVERY_ISA
def test_rmsnorm_bits_do_not_depend_on_alignment(isa: str) -> None:
    x, weight = random(577), random(577, seed=1)
    first = rmsnorm(isa, x, weight)
    for offset in (1, 3, 15):
        again = rmsnorm(isa, misaligned(x, offset), misaligned(weight, offset))
        assert np.array_equal(first.view(np.uint32), again.view(np.uint32))


@EVERY_ISA
def test_rmsnorm_of_zeros_is_zero_and_of_nan_is_nan(isa: str) -> None:
    ones = np.ones(40, np.float32)
    assert not rmsnorm(isa, np.zeros(40, np.float32), ones).any()
    assert np.isnan(rmsnorm(isa, np.full(40, np.nan, np.float32), ones)).all()


@EVERY_ISA
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize(
    ("head_dim", "rotary_dim"), [(2, 2), (24, 24), (64, 64), (64, 32), (80, 80), (96, 20), (128, 128)]
)
def test_rope_turns_pairs_by_their_angle(isa: str, pairs: bool, head_dim: int, rotary_dim: int) -> None:
    x, angles = random(head_dim), random(rotary_dim // 2, seed=2)
    cos, sin = np.cos(angles), np.sin(angles)
    got = call(lambda *args: _native.row_rope(args[0], x, cos, sin, pairs, args[1]), isa, like=x)
    rotary, half = x[:rotary_dim], rotary_dim // 2
    a, b = (rotary[0::2], rotary[1::2]) if pairs else (rotary[:half], rotary[half:])
    turned = (a + 1j * b.astype(np.complex128)) * np.exp(1j * angles.astype(np.float64))
    expected = x.astype(np.float64)
    if pairs:
        expected[0:rotary_dim:2], expected[1:rotary_dim:2] = turned.real, turned.imag
    else:
        expected[:half], expected[half:rotary_dim] = turned.real, turned.imag
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-6)
    assert np.array_equal(got[rotary_dim:], x[rotary_dim:])


@EVERY_ISA
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("gelu", [False, True])
def test_glu_is_numpys(isa: str, n: int, gelu: bool) -> None:
    gate, up = random(n), random(n, seed=1)
    wide = gate.astype(np.float64)
    if gelu:
        activated = 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
    else:
        activated = wide / (1 + np.exp(-wide))
    got = call(lambda *args: _native.row_glu(args[0], gelu, *args[1:]), isa, gate, up, like=gate)
    np.testing.assert_allclose(got, activated * up, rtol=3e-6, atol=2e-7)


@EVERY_ISA
@pytest.mark.parametrize("gelu", [False, True])
def test_glu_at_the_ends_of_the_range(isa: str, gelu: bool) -> None:
    gate = np.array([-1e30, -200, -90, 0, 90, 200, 1e10, np.nan], np.float32)
    got = call(lambda *args: _native.row_glu(args[0], gelu, *args[1:]), isa, gate, np.ones(8, np.float32), like=gate)
    np.testing.assert_array_equal(got[3:7], gate[3:7])
    assert np.isnan(got[7])
    assert (np.abs(got[:3]) < 1e-30).all() or not np.isfinite(gate[0] ** 3)


@EVERY_ISA
@pytest.mark.parametrize("cap", [0.5, 30.0, 50.0])
def test_softcap_is_numpys_near_and_far_from_zero(isa: str, cap: float) -> None:
    x = np.concatenate([random(100, spread=cap), random(100, spread=cap * 1e-4), [0, 1e30, -1e30]]).astype(np.float32)
    got = call(lambda *args: _native.row_softcap(args[0], args[1], cap, args[2]), isa, x, like=x)
    np.testing.assert_allclose(got, cap * np.tanh(x.astype(np.float64) / cap), rtol=5e-7, atol=0)


@EVERY_ISA
@pytest.mark.parametrize("n", LENGTHS)
def test_add_and_scale_are_exact(isa: str, n: int) -> None:
    a, b = random(n), random(n, seed=1)
    assert np.array_equal(call(_native.row_add, isa, a, b, like=a), a + b)
    scaled = call(lambda *args: _native.row_scale(args[0], args[1], 1.7, args[2]), isa, a, like=a)
    assert np.array_equal(scaled, a * np.float32(1.7))


@EVERY_ISA
def test_an_element_has_the_same_bits_at_every_place_of_a_row(isa: str) -> None:
    x = random(70)
    whole = call(lambda *args: _native.row_softcap(args[0], args[1], 5.0, args[2]), isa, x, like=x)
    for start, end in ((0, 1), (5, 22), (17, 70), (69, 70)):
        part = np.ascontiguousarray(x[start:end])
        got = call(lambda *args: _native.row_softcap(args[0], args[1], 5.0, args[2]), isa, part, like=part)
        assert np.array_equal(got.view(np.uint32), whole[start:end].view(np.uint32))


@EVERY_ISA
def test_arrays_of_different_sizes_are_refused(isa: str) -> None:
    with pytest.raises(ValueError, match="differ in size"):
        _native.row_add(isa, random(3), random(4), np.empty(3, np.float32))


def test_an_unknown_isa_is_refused() -> None:
    with pytest.raises(ValueError, match="no kernels for ISA 'mmx'"):
        _native.row_add("mmx", random(3), random(3), np.empty(3, np.float32))
