"""int8 K and V: what a stored head gives back, whatever it holds, and what its neighbours notice of it: nothing."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from twostroke.program.kv_precision import (
    CHUNK,
    INT8_STEPS,
    PROBABILITY_STEPS,
    kv_head_bytes,
    quantise_heads,
    rotate,
    rotation_size,
    round_probabilities,
    round_queries,
)
from twostroke.program.quant import FloatArray

HEADS = hnp.arrays(np.float32, (3, 24), elements=st.floats(-1e4, 1e4, width=32))


def hadamard(size: int) -> FloatArray:
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < size:
        matrix = np.kron(np.array([[1, 1], [1, -1]], np.float32), matrix)
    return matrix


def read_back(heads: FloatArray) -> FloatArray:
    integers, scales = quantise_heads(heads)
    return integers.astype(np.float32) * scales[..., None]


@pytest.mark.parametrize(("head_dim", "expected"), [(64, 68), (2, 8), (18, 24), (80, 84), (256, 260)])
def test_a_head_takes_whole_words_and_a_scale(head_dim: int, expected: int) -> None:
    assert kv_head_bytes("int8", head_dim) == expected
    assert kv_head_bytes("bf16", head_dim) == 2 * head_dim
    assert kv_head_bytes("f32", head_dim) == 4 * head_dim


@pytest.mark.parametrize(("head_dim", "size"), [(64, 64), (24, 8), (40, 8), (80, 16), (96, 32), (18, 2), (256, 256)])
def test_rotation_is_the_hadamard_matrix_on_the_largest_power_of_two(head_dim: int, size: int) -> None:
    assert rotation_size(head_dim) == size
    x = np.random.default_rng(head_dim).standard_normal((5, head_dim)).astype(np.float32)
    expected = (x.reshape(5, -1, size) @ hadamard(size)).reshape(5, head_dim)
    np.testing.assert_allclose(rotate(x), expected, atol=1e-4)
    np.testing.assert_allclose(rotate(rotate(x)) / size, x, atol=1e-5)


@given(HEADS)
def test_no_element_moves_by_more_than_half_a_step(heads: FloatArray) -> None:
    step = np.abs(heads).max(axis=-1, keepdims=True) / INT8_STEPS
    assert (np.abs(read_back(heads) - heads) <= 0.5001 * step + 1e-30).all()


@given(HEADS, st.integers(-20, 20))
def test_a_power_of_two_changes_the_scales_alone(heads: FloatArray, exponent: int) -> None:
    heads = np.where(np.abs(heads) < 1e-3, np.float32(0), heads)
    integers, scales = quantise_heads(heads)
    scaled_integers, scaled_scales = quantise_heads(np.ldexp(heads, exponent))
    assert np.array_equal(integers, scaled_integers)
    assert np.array_equal(np.ldexp(scales, exponent), scaled_scales)


@pytest.mark.parametrize("value", [0.0, -0.0, 3.5, -3.5, 1.0, 1e-20, 448.0, 1e5, 1e30])
def test_constant_heads_come_back(value: float) -> None:
    constant = np.full((2, 64), value, np.float32)
    np.testing.assert_array_max_ulp(read_back(constant), constant + 0.0, maxulp=1)


@pytest.mark.parametrize("size", [1e-30, 1e-4, 1.0, 448.0, 500.0, 1e5, 1e30])
def test_the_relative_error_is_the_same_in_every_band(size: float) -> None:
    """The scale follows the head: no band saturates and none drowns."""
    heads = np.random.default_rng(0).uniform(-size, size, (100, 64)).astype(np.float32)
    assert np.abs(read_back(heads) - heads).max() <= 0.0040 * size


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_head_that_is_not_finite_is_all_nan_and_alone(bad: float) -> None:
    heads = np.ones((3, 8), np.float32)
    heads[1, 4] = bad
    integers, scales = quantise_heads(heads)
    assert np.isnan(scales[1])
    assert not integers[1].any()
    assert np.array_equal(scales[[0, 2]], quantise_heads(heads[[0, 2]])[1])


def test_heads_below_the_smallest_that_counts_are_zero() -> None:
    integers, scales = quantise_heads(np.full((1, 8), 1e-38, np.float32))
    assert not integers.any()
    assert scales.tolist() == [0.0]


def test_an_outlying_channel_leaves_the_others_their_steps() -> None:
    """One channel a hundred times the rest: without the rotation it would take nearly all 127 steps."""
    rng = np.random.default_rng(1)
    keys, queries = rng.standard_normal((2, 200, 64)).astype(np.float32)
    keys[:, 5] *= 100
    queries[:, 5] /= 100  # what scores are made of lies in all channels
    exact = queries @ keys.T / 8
    stored = rotate(read_back(rotate(keys))) / np.float32(rotation_size(64))
    scores, plain = queries @ stored.T / 8, queries @ read_back(keys).T / 8
    weights, wrong, worse = (softmax(each) for each in (exact, scores, plain))
    assert (np.abs(wrong - weights).sum(axis=1) / 2).max() < 0.05
    assert (np.abs(worse - weights).sum(axis=1) / 2).mean() > 3 * (np.abs(wrong - weights).sum(axis=1) / 2).mean()


def softmax(scores: FloatArray) -> FloatArray:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    out: FloatArray = weights / weights.sum(axis=1, keepdims=True)
    return out


def test_queries_are_rounded_like_keys() -> None:
    q = np.random.default_rng(2).standard_normal((4, 3, 64)).astype(np.float32)
    np.testing.assert_array_equal(round_queries(q), rotate(read_back(rotate(q))) / np.float32(64))


@pytest.mark.parametrize("first_key", [0, 40, CHUNK - 1])
def test_probabilities_are_whole_steps_of_the_largest_of_their_chunk(first_key: int) -> None:
    rng = np.random.default_rng(3)
    weights, scales = rng.random((2, 600), np.float32), rng.random(600, np.float32) + np.float32(0.1)
    rounded = round_probabilities(weights, scales, first_key) * scales
    borders = [0, *[key for key in range(1, 600) if (first_key + key) % CHUNK == 0], 600]
    for start, end in itertools.pairwise(borders):
        exact = (weights * scales)[:, start:end]
        steps = rounded[:, start:end] / exact.max(axis=1, keepdims=True) * PROBABILITY_STEPS
        np.testing.assert_allclose(steps, np.rint(steps), atol=2e-2)
        assert steps.max() == pytest.approx(PROBABILITY_STEPS)
        np.testing.assert_allclose(rounded[:, start:end], exact, atol=exact.max() / PROBABILITY_STEPS * 0.51)


def test_values_that_are_all_zero_take_no_weight() -> None:
    weights = np.ones((1, 3), np.float32)
    assert not round_probabilities(weights, np.zeros(3, np.float32), 0).any()
