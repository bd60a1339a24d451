"""Chunks within a time, and the estimate of outputs."""

import random

import pytest
from hypothesis import given, strategies as st

from tests.builders_cost import make_cost
from tests.builders_schedule import make_step_cost
from twostroke.core.phase import Phase
from twostroke.core.step import RowPlan
from twostroke.schedule.budget import Tally, chunk_within, next_output_ratio

rows = st.lists(
    st.builds(RowPlan, st.just(0), st.integers(0, 50), st.integers(1, 20), st.just(Phase.PREFILL), st.booleans()),
    max_size=6,
)
COST = make_cost(
    base_s=0.01,
    row_s=0.01,
    weights_s=0.2,
    token_s=0.02,
    head_s=0.1,
    head_row_s=0.03,
    position_s=0.001,
    pair_s=0.0005,
    sharpness=1.5,
    windows=((7, 0.8), (None, 0.2)),
)


@given(rows)
def test_a_tally_costs_what_its_rows_cost(plans: list[RowPlan]) -> None:
    assert Tally.of(COST, plans).seconds == pytest.approx(COST.seconds(plans), rel=1e-12)


@given(rows, st.integers(0, 40), st.integers(0, 30), st.integers(0, 5), st.floats(0.0, 2.0))
def test_the_chunk_is_the_largest_that_fits(
    plans: list[RowPlan], start_pos: int, most: int, num_left_over: int, limit_s: float
) -> None:
    num_missing = most + num_left_over

    def seconds(num: int) -> float:
        row = RowPlan(9, start_pos, num, Phase.PREFILL, needs_logits=num == num_missing)
        return COST.seconds([*plans, row])

    fitting = [num for num in range(1, most + 1) if seconds(num) <= limit_s]
    chunk = chunk_within(
        Tally.of(COST, plans), start_pos=start_pos, num_missing=num_missing, most=most, limit_s=limit_s
    )
    assert chunk == max(fitting, default=0)


def test_tokens_that_hide_behind_the_weights_are_free() -> None:
    cost = make_cost(weights_s=0.010, token_s=0.001, sharpness=500.0)
    one_decode = Tally(cost).plus(start_pos=5, num_tokens=1, num_logits=1)
    assert chunk_within(one_decode, start_pos=0, num_missing=50, most=50, limit_s=0.0101) == 9


@given(rows, st.integers(0, 40), st.integers(1, 30), st.floats(0.0, 2.0), st.floats(0.0, 0.5))
def test_what_ends_a_prompt_may_take_its_own_limit(
    plans: list[RowPlan], start_pos: int, most: int, limit_s: float, more_s: float
) -> None:
    tally = Tally.of(COST, plans)

    def chunk(num_missing: int, *, whole_limit_s: float) -> int:
        return chunk_within(
            tally,
            start_pos=start_pos,
            num_missing=num_missing,
            most=most,
            limit_s=limit_s,
            whole_limit_s=whole_limit_s,
        )

    whole_s = tally.plus(start_pos=start_pos, num_tokens=most, num_logits=1).seconds
    ends = whole_s <= limit_s + more_s
    assert chunk(most, whole_limit_s=limit_s + more_s) == (most if ends else chunk(most, whole_limit_s=0.0))
    # a chunk with more to come behind it keeps to the limit
    assert chunk(most + 1, whole_limit_s=limit_s + more_s) == chunk(most + 1, whole_limit_s=0.0)


def test_a_chunk_that_reaches_the_end_pays_for_the_head() -> None:
    cost = make_cost(token_s=0.001, head_s=0.005)
    assert chunk_within(Tally(cost), start_pos=0, num_missing=20, most=20, limit_s=0.020) == 19
    assert chunk_within(Tally(cost), start_pos=0, num_missing=20, most=20, limit_s=0.026) == 20


def test_a_step_of_linear_cost_splits_as_computed_by_hand() -> None:
    cost = make_step_cost(decode_s=0.010, token_s=0.001)
    assert chunk_within(Tally(cost), start_pos=0, num_missing=500, most=500, limit_s=0.080) == 70


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


def test_every_token_of_a_scored_chunk_has_its_logits_paid() -> None:
    tally = Tally(make_cost(token_s=0.01, head_row_s=0.03))
    plain, scored = (
        chunk_within(tally, start_pos=0, num_missing=100, most=50, limit_s=0.4001, is_scored=is_scored)
        for is_scored in (False, True)
    )
    assert plain > 2 * scored > 0
