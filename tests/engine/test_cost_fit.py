"""A cost kept true by steps of a machine whose law is known."""

import logging

import pytest
from hypothesis import given, strategies as st

from tests.builders_cost import make_cost
from twostroke.core.phase import Phase
from twostroke.core.step import RowPlan
from twostroke.core.step_cost import StepCost
from twostroke.engine.cost_fit import DRIFT, LEARN_STEPS, WINDOW, StepCostFit, StepCounts, assumed_cost

COUNTS = StepCounts(weight_bytes=66e6, token_ops=212e6, head_bytes=30e6, head_ops=56e6, kv_bytes=23e3, pair_ops=70e3)
PREFILL, DECODE = (0, 512), (512, 1)


def rows(*sizes: tuple[int, int]) -> list[RowPlan]:
    return [RowPlan(i, start, n, Phase.PREFILL, needs_logits=True) for i, (start, n) in enumerate(sizes)]


def live(fit: StepCostFit, machine: StepCost, *steps: tuple[int, int], times: int = 1) -> StepCostFit:
    for step in steps * times:
        fit.observe(rows(step), wall_s=machine.seconds(rows(step)))
    return fit


def test_without_a_dyno_a_few_steps_find_both_paces() -> None:
    machine = assumed_cost(COUNTS).scaled(reads=0.1, arithmetic=0.15)
    fit = live(StepCostFit(assumed_cost(COUNTS)), machine, PREFILL, DECODE, times=5)
    for step in (rows((0, 256)), rows((100, 1)), rows((100, 1), (300, 1))):
        assert fit.cost().seconds(step) == pytest.approx(machine.seconds(step), rel=0.1)


def test_before_the_first_step_the_assumption_is_slow_but_not_absurd() -> None:
    assert 0.01 < assumed_cost(COUNTS).seconds(rows((0, 16))) < 1.0


def test_the_very_first_step_counts_where_nothing_was_measured() -> None:
    machine = assumed_cost(COUNTS).scaled(reads=0.1, arithmetic=0.1)
    fit = live(StepCostFit(assumed_cost(COUNTS)), machine, PREFILL)
    assert fit.cost().seconds(rows(PREFILL)) == pytest.approx(machine.seconds(rows(PREFILL)), rel=0.05)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_steps_with_a_part_of_the_head_teach_what_steps_with_all_of_it_take(share: float) -> None:
    """An engine that only answers in JSON has no others."""
    machine = assumed_cost(COUNTS).scaled(reads=0.1, arithmetic=0.15)
    fit = StepCostFit(assumed_cost(COUNTS))
    for step in [PREFILL, DECODE] * 5:
        left_out_s = (1 - share) * machine.head.seconds(1) if step is DECODE else 0.0
        part = share if step is DECODE else 1.0
        fit.observe(rows(step), wall_s=machine.seconds(rows(step)) - left_out_s, head_share=part)
    for shape in (rows((0, 256)), rows((100, 1))):
        assert fit.cost().seconds(shape) == pytest.approx(machine.seconds(shape), rel=0.1)


def test_one_late_step_moves_nothing() -> None:
    fit = live(StepCostFit(assumed_cost(COUNTS)), assumed_cost(COUNTS), PREFILL, DECODE, times=5)
    before = fit.cost().seconds(rows(DECODE))
    fit.observe(rows(DECODE), wall_s=5.0)
    assert fit.cost().seconds(rows(DECODE)) == pytest.approx(before, rel=0.02)


def test_a_step_shorter_than_its_own_overhead_teaches_nothing() -> None:
    fit = StepCostFit(assumed_cost(COUNTS))
    fit.observe(rows((0, 1)), wall_s=fit.cost().base_s / 2)
    assert fit.cost() == assumed_cost(COUNTS)


def test_a_cost_that_knows_nothing_learns_nothing() -> None:
    fit = live(StepCostFit(make_cost()), assumed_cost(COUNTS), PREFILL, DECODE)
    assert fit.cost() == make_cost()


def test_a_full_window_moves_the_cost_every_few_steps_only() -> None:
    fit = live(StepCostFit(assumed_cost(COUNTS)), assumed_cost(COUNTS), DECODE, times=40)
    costs = [fit.cost()]
    for number in range(4 * LEARN_STEPS):
        fit.observe(rows(DECODE), wall_s=0.03 + 0.0001 * number)
        costs.append(fit.cost())
    assert len({id(cost) for cost in costs}) <= 5


def test_a_full_window_still_follows() -> None:
    fit = live(StepCostFit(assumed_cost(COUNTS)), assumed_cost(COUNTS), DECODE, times=40)
    before = fit.cost().seconds(rows(DECODE))
    for _ in range(WINDOW * LEARN_STEPS):
        fit.observe(rows(DECODE), wall_s=2 * before)
    assert fit.cost().seconds(rows(DECODE)) > 1.8 * before


def test_the_first_chunks_after_many_decodes_count_at_once() -> None:
    machine = assumed_cost(COUNTS).scaled(reads=1.0, arithmetic=0.1)
    fit = live(StepCostFit(assumed_cost(COUNTS)), machine, DECODE, times=40)
    live(fit, machine, PREFILL)
    assert fit.cost().seconds(rows(PREFILL)) == pytest.approx(machine.seconds(rows(PREFILL)), rel=0.05)


MEASURED = assumed_cost(COUNTS).scaled(reads=0.1, arithmetic=0.1)


@given(st.floats(0.2, 5.0), st.integers(1, WINDOW // 2 * LEARN_STEPS - 1))
def test_a_measured_cost_yields_to_no_minority_of_steps(factor: float, times: int) -> None:
    fit = StepCostFit(MEASURED, is_measured=True)
    live(fit, MEASURED.scaled(reads=factor, arithmetic=factor), DECODE, times=times)
    assert fit.cost().seconds(rows(DECODE)) == pytest.approx(MEASURED.seconds(rows(DECODE)))


@pytest.mark.parametrize(("factor", "step", "phase"), [(3.0, DECODE, "decode"), (0.3, PREFILL, "prefill")])
def test_drift_is_followed_and_told_once(
    factor: float, step: tuple[int, int], phase: str, caplog: pytest.LogCaptureFixture
) -> None:
    fit = StepCostFit(MEASURED, is_measured=True)
    machine = MEASURED.scaled(reads=factor, arithmetic=factor)
    with caplog.at_level(logging.WARNING, logger="twostroke"):
        live(fit, machine, step, times=WINDOW * LEARN_STEPS)
    assert fit.cost().seconds(rows(step)) == pytest.approx(machine.seconds(rows(step)), rel=0.1)
    (said,) = [each.getMessage() for each in caplog.records]
    assert f"steps of {phase} take {factor:.1f}" in said
    assert "twostroke dyno" in said


def test_steps_that_both_sides_bound_alike_never_pile_one_correction_on_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    start = make_cost(weights_s=0.01, token_s=0.01, sharpness=1.0)
    fit = live(StepCostFit(start, is_measured=True), start.scaled(reads=1.3, arithmetic=1.3), DECODE, times=400)
    assert fit.reads.now == pytest.approx(1.3)
    assert not caplog.records


@pytest.mark.parametrize("factor", [0.97 * DRIFT, 1.03 / DRIFT])
def test_a_pace_within_the_bound_is_no_drift(factor: float, caplog: pytest.LogCaptureFixture) -> None:
    fit = StepCostFit(MEASURED, is_measured=True)
    live(fit, MEASURED.scaled(reads=factor, arithmetic=factor), PREFILL, DECODE, times=WINDOW * LEARN_STEPS)
    assert not caplog.records


def test_an_assumption_far_off_is_no_drift(caplog: pytest.LogCaptureFixture) -> None:
    live(StepCostFit(assumed_cost(COUNTS)), MEASURED, PREFILL, DECODE, times=WINDOW)
    assert not caplog.records
