"""Against libm, which the definitions do without; the native twins of exp and mass are judged in test_reference.py."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from twostroke import _native
from twostroke.sample.arithmetic import exp_of, log_of, units_of


def test_exp_is_exact_to_float32_down_to_the_smallest_normal_number() -> None:
    scores = np.concatenate([-np.geomspace(1e-8, 87.2, 100_000), [0.0, -0.0]]).astype(np.float32)
    np.testing.assert_allclose(exp_of(scores), np.exp(scores.astype(np.float64)), rtol=2e-7)
    assert exp_of(scores)[-2:].tolist() == [1.0, 1.0]


def test_exp_never_rises_as_the_score_falls() -> None:
    scores = -np.linspace(0, 90, 1_000_001, dtype=np.float32)
    assert (np.diff(exp_of(scores)) <= 0).all()


@pytest.mark.parametrize("score", [-87.4, -1e4, -3e38, -math.inf])
def test_exp_of_the_unreachable_is_zero(score: float) -> None:
    assert exp_of(np.array([score], dtype=np.float32)).tolist() == [0.0]


@given(st.floats(min_value=2.3e-308, max_value=1.7e308))
def test_log_is_exact_to_the_last_places_and_the_native_twin_has_the_same_bits(x: float) -> None:
    ours = float(log_of(np.array([x]))[0])
    assert ours == pytest.approx(math.log(x), rel=1e-15, abs=1e-18)
    assert _native.log_of(x) == ours


@given(st.integers(1, 2**33))
def test_log_keeps_its_relative_accuracy_beside_one(distance: int) -> None:
    x = 1.0 - distance * 2.0**-53
    assert float(log_of(np.array([x]))[0]) == pytest.approx(math.log(x), rel=1e-15)


def test_units_are_whole_and_what_is_lighter_than_one_counts_nothing() -> None:
    units = units_of(np.array([0.0, -math.log(2), -27.72, -27.73, -math.inf], dtype=np.float32))
    assert units.dtype == np.int64
    assert units[0] == 2**40
    assert units[1] == pytest.approx(2**39, rel=1e-7)
    assert units[2:].tolist() == [1, 0, 0]
