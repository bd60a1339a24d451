"""Rates learned from steps of a machine whose law is known."""

import pytest

from twostroke.core.phase import Phase
from twostroke.core.step import RowPlan
from twostroke.engine.cost_fit import BASE_S, REFIT_STEPS, ROW_S, StepCostFit, StepCounts

COUNTS = StepCounts(weight_bytes=100e6, token_ops=200e6, kv_bytes=20e3, pair_ops=50e3)
OPS_PER_S, BYTES_PER_S = 400e9, 50e9


def rows(*sizes: tuple[int, int]) -> list[RowPlan]:
    return [RowPlan(i, start, n, Phase.PREFILL, needs_logits=True) for i, (start, n) in enumerate(sizes)]


def true_seconds(step: list[RowPlan]) -> float:
    num_tokens = sum(row.num_tokens for row in step)
    kv = sum(row.start_pos + row.num_tokens for row in step)
    pairs = sum(
        row.num_tokens * row.start_pos + row.num_tokens * (row.num_tokens + 1) / 2 for row in step if row.num_tokens > 1
    )
    compute_s = (COUNTS.token_ops * num_tokens + COUNTS.pair_ops * pairs) / OPS_PER_S
    bytes_s = (COUNTS.weight_bytes + COUNTS.kv_bytes * kv) / BYTES_PER_S
    return BASE_S + ROW_S * len(step) + max(compute_s, bytes_s)


def fitted(*steps: list[RowPlan]) -> StepCostFit:
    fit = StepCostFit(COUNTS)
    for step in steps * 5:
        fit.observe(step, wall_s=true_seconds(step))
    return fit


def test_both_rates_are_found_from_a_run_of_prefill_and_decode() -> None:
    fit = fitted(rows((0, 512)), rows((512, 1)), rows((513, 1)))
    assert fit.ops_per_s == pytest.approx(OPS_PER_S, rel=0.02)
    assert fit.bytes_per_s == pytest.approx(BYTES_PER_S, rel=0.02)
    for step in (rows((0, 256)), rows((100, 1)), rows((100, 1), (300, 1))):
        assert fit.cost().seconds(step) == pytest.approx(true_seconds(step), rel=0.1)


def test_one_late_step_moves_nothing() -> None:
    fit = fitted(rows((0, 512)), rows((512, 1)))
    before = fit.cost()
    fit.observe(rows((512, 1)), wall_s=5.0)
    assert fit.cost().seconds(rows((9, 1))) == pytest.approx(before.seconds(rows((9, 1))), rel=0.02)


def test_before_the_first_step_the_prior_is_slow_but_not_absurd() -> None:
    cost = StepCostFit(COUNTS).cost()
    assert 0.01 < cost.seconds(rows((0, 16))) < 1.0


def test_a_step_shorter_than_its_own_overhead_teaches_nothing() -> None:
    fit = StepCostFit(COUNTS)
    fit.observe(rows((0, 1)), wall_s=BASE_S / 2)
    assert fit.num_observed == 0


def test_a_full_window_moves_the_cost_every_few_steps_only() -> None:
    fit = fitted(*[rows((512, 1))] * 10)
    costs = [fit.cost()]
    for number in range(4 * REFIT_STEPS):
        fit.observe(rows((512, 1)), wall_s=0.01 + 0.0001 * number)
        costs.append(fit.cost())
    assert len({id(cost) for cost in costs}) <= 5
    assert costs[-1].seconds(rows((512, 1))) > costs[0].seconds(rows((512, 1)))


def test_the_first_chunks_after_many_decodes_count_at_once() -> None:
    fit = fitted(*[rows((512, 1))] * 10)
    before = fit.cost()
    fit.observe(rows((0, 512)), wall_s=true_seconds(rows((0, 512))))
    assert fit.cost() is not before
    assert fit.ops_per_s == pytest.approx(OPS_PER_S, rel=0.02)
