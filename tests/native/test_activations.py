"""Preparing the input of a linear: int8 per 32 and bf16."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from tests.native.weight_builders import ISAS, make_input, quantise_a8, round_to_bf16
from twostroke import _native

EVERY_ISA = pytest.mark.parametrize("isa", ISAS)
blocks = arrays.arrays(
    np.float32,
    st.sampled_from([32, 160, 256, 288, 544]),
    elements=st.floats(-(2.0**40), 2.0**40, width=32, allow_subnormal=True),
)


@given(blocks, st.sampled_from(ISAS))
def test_sums_and_values_agree(x: np.ndarray, isa: str) -> None:
    q, scale, total, half_total = _native.quantise_a8(x, isa)
    assert np.abs(q.astype(int)).max() <= 127
    np.testing.assert_array_equal(total, q.reshape(-1, 32).astype(int).sum(axis=1))
    np.testing.assert_array_equal(half_total, q.reshape(-1, 16).astype(int).sum(axis=1))
    error = np.abs(q.reshape(-1, 32) * scale[:, None].astype(np.float64) - x.reshape(-1, 32))
    assert (error <= scale[:, None] * 0.5001 + 2.0**-100).all()


@given(blocks)
def test_every_isa_gives_the_same_integers_and_scales(x: np.ndarray) -> None:
    first, *others = [_native.quantise_a8(x, isa) for isa in ISAS]
    for other in others:
        for mine, theirs in zip(first, other, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@EVERY_ISA
def test_values_are_whole_steps_of_amax_over_127(isa: str) -> None:
    x = np.random.default_rng(1).standard_normal(640).astype(np.float32)
    q, scale, *_ = _native.quantise_a8(x, isa)
    np.testing.assert_array_equal(q * np.repeat(scale, 32).astype(np.float64), quantise_a8(x))


@EVERY_ISA
def test_ties_go_to_even(isa: str) -> None:
    x = np.zeros(32, np.float32)
    x[:5] = [127, 0.5, 1.5, 2.5, -0.5]
    assert list(_native.quantise_a8(x, isa)[0][:5]) == [127, 0, 2, 2, 0]


@EVERY_ISA
def test_a_zero_block_has_scale_zero_and_leaves_its_neighbour_alone(isa: str) -> None:
    x = np.zeros(64, np.float32)
    x[40] = -3
    q, scale, total, half_total = _native.quantise_a8(x, isa)
    np.testing.assert_array_equal(scale, np.array([0, 3 / 127], np.float32))
    assert q[40] == -127
    assert list(total) == [0, -127]
    assert list(half_total) == [0, 0, -127, 0]


@EVERY_ISA
def test_a_block_too_small_to_scale_counts_as_zero(isa: str) -> None:
    q, scale, total, _ = _native.quantise_a8(np.full(32, 1e-40, np.float32), isa)
    assert not q.any()
    assert scale[0] == 0
    assert total[0] == 0


@EVERY_ISA
def test_the_largest_floats_quantise(isa: str) -> None:
    x = np.full(32, np.finfo(np.float32).max, np.float32)
    q, scale, *_ = _native.quantise_a8(x, isa)
    assert (q == 127).all()
    assert np.isfinite(scale[0])


@EVERY_ISA
@pytest.mark.parametrize("poison", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_poisoned_block_has_scale_nan_and_no_values(poison: float, isa: str) -> None:
    x = np.ones(96, np.float32)
    x[50] = poison
    q, scale, total, _ = _native.quantise_a8(x, isa)
    np.testing.assert_array_equal(np.isnan(scale), [False, True, False])
    assert not q[32:64].any()
    assert list(total) == [127 * 32, 0, 127 * 32]


@EVERY_ISA
@pytest.mark.parametrize("poisoned", [0, 3, 7, 8, 16])
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_poisoned_block_leaves_the_blocks_computed_beside_it_alone(poison: float, poisoned: int, isa: str) -> None:
    x = make_input(1, 17 * 32)[0]
    clean = [part.reshape(17, -1).copy() for part in _native.quantise_a8(x, isa)]
    x[32 * poisoned + 5] = poison
    got = [part.reshape(17, -1) for part in _native.quantise_a8(x, isa)]
    assert np.isnan(got[1][poisoned]).all()
    others = [block for block in range(17) if block != poisoned]
    for mine, theirs in zip(got, clean, strict=True):
        np.testing.assert_array_equal(mine[others], theirs[others])


@given(
    arrays.arrays(np.float32, st.integers(0, 70), elements=st.floats(width=32, allow_nan=False, allow_subnormal=False))
)
def test_bf16_rounds_to_nearest_even_at_every_length(x: np.ndarray) -> None:
    for isa in ISAS:
        got = (_native.to_bf16(x, isa).astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_array_equal(got, round_to_bf16(x))


@EVERY_ISA
def test_bf16_keeps_nan_infinity_and_the_sign_of_zero(isa: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    got = (_native.to_bf16(x, isa).astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(got, x)
    np.testing.assert_array_equal(np.signbit(got[3:]), [False, True])


@EVERY_ISA
def test_a_signalling_nan_becomes_a_quiet_one(isa: str) -> None:
    x = np.array([0x7F800001, 0xFF80FFFF], np.uint32).view(np.float32)
    assert [hex(bits) for bits in _native.to_bf16(x, isa)] == ["0x7fc0", "0xffc0"]
