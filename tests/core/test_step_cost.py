"""Curves, and the step they add up to."""

import math

import pytest
from hypothesis import given, strategies as st

from tests.builders_cost import make_cost
from twostroke.core.phase import Phase, phase_of
from twostroke.core.step import RowPlan
from twostroke.core.step_cost import Curve, Law, StepCost, Table

times = st.floats(0.0, 10.0)
laws = st.builds(Law, times, times, st.floats(1.0, 12.0))


@st.composite
def tables(draw: st.DrawFn) -> Table:
    sizes = sorted(draw(st.sets(st.integers(1, 500), min_size=1, max_size=6)))
    seconds = sorted(draw(st.lists(times, min_size=len(sizes), max_size=len(sizes))))
    return Table(tuple(zip(map(float, sizes), seconds, strict=True)))


curves: st.SearchStrategy[Curve] = laws | tables()
costs = st.builds(
    StepCost,
    base_s=times,
    row_s=times,
    sample_s=times,
    linear=curves,
    head=curves,
    attention=curves,
    windows=st.sampled_from([((None, 1.0),), ((4, 0.75), (None, 0.25))]),
)


def row(start_pos: int, num_tokens: int, *, needs_logits: bool = False) -> RowPlan:
    return RowPlan(0, start_pos, num_tokens, Phase.PREFILL, needs_logits=needs_logits)


rows = st.lists(st.builds(row, st.integers(0, 50), st.integers(1, 30), needs_logits=st.booleans()), max_size=5)


def test_no_rows_cost_nothing() -> None:
    assert make_cost(base_s=1.0, weights_s=2.0).seconds([]) == 0.0


def test_a_step_adds_up_as_computed_by_hand() -> None:
    cost = make_cost(
        base_s=100, row_s=10, sample_s=7, weights_s=1, token_s=2, head_s=3, head_row_s=4, position_s=0.5, pair_s=0.25
    )
    step = [row(9, 1, needs_logits=True), row(4, 8)]
    linear, head = 1 + 2 * 9, 3 + 4 * 1
    decode, chunk = (0.5 + 0.25) * 10, (0.5 + 0.25 * 8) * (5 + 6 + 7 + 8 + 9 + 10 + 11 + 12) / 8
    assert cost.seconds(step) == pytest.approx(100 + 20 + linear + head + decode + chunk)
    assert cost.sampling_seconds(step) == 7


def test_reading_the_weights_hides_the_arithmetic_of_few_tokens() -> None:
    cost = make_cost(weights_s=10.0, token_s=2.0, sharpness=200.0)
    assert cost.seconds([row(9, 1)]) == pytest.approx(10.0)
    assert cost.seconds([row(4, 8)]) == pytest.approx(16.0)


def test_a_head_nobody_needs_is_not_read() -> None:
    cost = make_cost(head_s=5.0)
    assert cost.seconds([row(0, 8)]) == 0.0
    assert cost.seconds([row(0, 8, needs_logits=True)]) == 5.0


def test_a_group_with_a_window_stops_growing() -> None:
    cost = make_cost(position_s=1.0, windows=((16, 0.75), (None, 0.25)))
    assert cost.seconds([row(7, 1)]) == pytest.approx(8)
    assert cost.seconds([row(99, 1)]) == pytest.approx(0.75 * 16 + 0.25 * 100)


def test_sharpness_1_is_one_after_the_other() -> None:
    assert Law(3.0, 4.0, 1.0).seconds(1) == pytest.approx(7.0)
    assert Law(3.0, 4.0, 2.0).seconds(1) == pytest.approx(5.0)


@given(laws, st.integers(1, 600))
def test_a_law_lies_between_the_longer_side_and_the_sum(law: Law, size: int) -> None:
    reads_s, arithmetic_s = law.split(size)
    seconds = law.seconds(size)
    assert max(reads_s, arithmetic_s) <= seconds * (1 + 1e-12)
    assert seconds <= (reads_s + arithmetic_s) * (1 + 1e-12)


@given(curves, st.floats(0.0, 700.0), st.floats(0.0, 700.0))
def test_more_never_takes_less(curve: Curve, a: float, b: float) -> None:
    assert curve.seconds(min(a, b)) <= curve.seconds(max(a, b)) * (1 + 1e-12)


@given(tables())
def test_a_table_gives_back_what_was_measured(table: Table) -> None:
    assert [table.seconds(size) for size, _ in table.points] == pytest.approx([time_s for _, time_s in table.points])
    assert table.seconds(0) == 0.0


def test_a_table_draws_straight_lines_and_goes_on() -> None:
    table = Table(((1.0, 2.0), (3.0, 6.0), (7.0, 8.0)))
    assert [table.seconds(size) for size in (0.5, 2, 5, 9)] == [2.0, 4.0, 7.0, 9.0]
    assert Table(((4.0, 2.0),)).seconds(100) == 2.0


@pytest.mark.parametrize("points", [(), ((1.0, 2.0), (1.0, 3.0)), ((1.0, 2.0), (2.0, 1.0)), ((0.0, 1.0), (2.0, 3.0))])
def test_a_table_that_is_none_is_refused(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(AssertionError):
        Table(points)


@pytest.mark.parametrize("law", [(-1.0, 0.0, 1.0), (0.0, -1.0, 1.0), (0.0, 0.0, 0.5), (math.nan, 0.0, 1.0)])
def test_a_law_that_is_none_is_refused(law: tuple[float, float, float]) -> None:
    with pytest.raises(AssertionError):
        Law(*law)


@given(costs, rows, st.floats(0.1, 10.0))
def test_a_machine_twice_as_slow_takes_twice_as_long_but_for_overhead(
    cost: StepCost, step: list[RowPlan], factor: float
) -> None:
    overhead_s = cost.base_s + cost.row_s * len(step) if step else 0.0
    work_s = cost.seconds(step) - overhead_s
    scaled = cost.scaled(reads=factor, arithmetic=factor)
    assert scaled.seconds(step) == pytest.approx(overhead_s + factor * work_s)
    assert scaled.scaled(reads=1 / factor, arithmetic=1 / factor).seconds(step) == pytest.approx(cost.seconds(step))


@given(costs, rows.filter(bool))
def test_both_sides_of_a_step_are_its_time_where_nothing_overlaps(cost: StepCost, step: list[RowPlan]) -> None:
    reads_s, arithmetic_s = cost.split(step)
    work_s = cost.seconds(step) - cost.base_s - cost.row_s * len(step)
    assert work_s <= (reads_s + arithmetic_s) * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize(
    ("computed", "new", "drafts", "expected"),
    [
        (0, 8, 0, Phase.PREFILL),
        (7, 1, 0, Phase.PREFILL),
        (8, 1, 0, Phase.DECODE),
        (8, 4, 3, Phase.DECODE),
        (8, 3, 0, Phase.PREFILL),
    ],
)
def test_decode_is_the_newest_verified_token_alone(computed: int, new: int, drafts: int, expected: Phase) -> None:
    assert phase_of(num_computed=computed, num_prompt_tokens=8, num_new_tokens=new, num_draft_tokens=drafts) is expected
