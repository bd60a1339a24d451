"""Chunks within a time, and the estimate of outputs."""

import random

import pytest
from hypothesis import given, strategies as st

from tests.builders_schedule import make_step_cost
from twostroke.core.phase import Phase
from twostroke.core.step import RowPlan
from twostroke.core.step_cost import StepCost
from twostroke.schedule.budget import Tally, chunk_within, next_output_ratio

rows = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=6)


@given(rows)
def test_a_tally_costs_what_its_rows_cost(sizes: list[tuple[int, int]]) -> None:
    cost = StepCost(base_s=0.1, weights_s=0.5, token_s=0.07, row_s=0.01, kv_s=0.003, pair_s=0.0007)
    tally = Tally()
    for start_pos, num_tokens in sizes:
        tally = tally.plus(start_pos=start_pos, num_tokens=num_tokens)
    plans = [RowPlan(i, start, num, Phase.PREFILL, False) for i, (start, num) in enumerate(sizes)]
    assert tally.seconds(cost) == cost.seconds(plans)


@given(rows, st.integers(0, 40), st.integers(0, 30), st.floats(0.0, 2.0))
def test_the_chunk_is_the_largest_that_fits(
    sizes: list[tuple[int, int]], start_pos: int, most: int, limit_s: float
) -> None:
    cost = StepCost(base_s=0.01, weights_s=0.2, token_s=0.02, row_s=0.01, kv_s=0.001, pair_s=0.0005)
    tally = Tally()
    for start, num in sizes:
        tally = tally.plus(start_pos=start, num_tokens=num)
    fitting = [
        num for num in range(1, most + 1) if tally.plus(start_pos=start_pos, num_tokens=num).seconds(cost) <= limit_s
    ]
    expected = max(fitting, default=0)
    assert chunk_within(cost, tally, start_pos=start_pos, most=most, limit_s=limit_s) == expected


def test_tokens_that_hide_behind_the_weights_are_free() -> None:
    cost = StepCost(base_s=0.0, weights_s=0.010, token_s=0.001, row_s=0.0, kv_s=0.0, pair_s=0.0)
    one_decode = Tally().plus(start_pos=5, num_tokens=1)
    assert chunk_within(cost, one_decode, start_pos=0, most=50, limit_s=0.010) == 9


def test_a_step_of_linear_cost_splits_as_computed_by_hand() -> None:
    cost = make_step_cost(decode_s=0.010, token_s=0.001)
    assert chunk_within(cost, Tally(), start_pos=0, most=500, limit_s=0.080) == 70


@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_the_estimate_rests_at_the_quantile_of_outputs(quantile: float) -> None:
    rng, ratio, tail = random.Random(1), 0.5, []
    for number in range(4_000):
        ratio = next_output_ratio(ratio, fraction=rng.random(), quantile=quantile)
        if number >= 1_000:
            tail.append(ratio)
    assert sum(tail) / len(tail) == pytest.approx(quantile, abs=0.03)


def test_the_estimate_stays_between_nothing_and_everything() -> None:
    ratio = 0.5
    for _ in range(100):
        ratio = next_output_ratio(ratio, fraction=float("inf"), quantile=0.9)
    assert ratio == 1.0
    for _ in range(1_000):
        ratio = next_output_ratio(ratio, fraction=0.0, quantile=0.9)
    assert ratio == 0.0
