"""What bound a phase, judged by hand-made counts and peaks; and which rows of an account a phase counts."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.builders_cost import make_cost as make_step_cost
from tests.builders_sources import make_source
from tests.view.builders import Told, make_result
from twostroke.core.account import Account, StepRecord
from twostroke.core.ledger import Ledger, Part, StallKind
from twostroke.core.peaks import Peaks
from twostroke.core.phase import Phase
from twostroke.core.report import Bound, Result
from twostroke.core.step import RowPlan
from twostroke.model.families import build_program
from twostroke.phase_use import judge, phase_report
from twostroke.program.cost import Cost, ProgramCost, Row, fold_costs
from twostroke.program.quant import Arithmetic

PEAKS = Peaks(
    threads=2,
    isa="portable",
    int8_ops_per_s=1000.0,
    bf16_ops_per_s=500.0,
    fp32_ops_per_s=100.0,
    read_bytes_per_s=200.0,
)
STEP_COST = make_step_cost(token_s=0.001)


def make_cost(*, int8: int = 0, bf16: int = 0, fp32: int = 0, weight_bytes: int = 0, kv_bytes: int = 0) -> Cost:
    flops = {Arithmetic.INT8: int8, Arithmetic.BF16: bf16, Arithmetic.FP32: fp32}
    return Cost(flops_by_unit=flops, weight_bytes=weight_bytes, kv_bytes=kv_bytes, kv_written_bytes=10**9)


@pytest.mark.parametrize(
    ("counts", "time_s", "bound", "share"),
    [
        ({"int8": 800}, 1.0, Bound.COMPUTE, 0.8),
        ({"int8": 400, "bf16": 100, "fp32": 10}, 1.0, Bound.COMPUTE, 0.7),  # units one after the other: 0.4 + 0.2 + 0.1
        ({"weight_bytes": 100, "kv_bytes": 60}, 1.0, Bound.BANDWIDTH, 0.8),
        ({"int8": 600, "weight_bytes": 140}, 1.0, Bound.BANDWIDTH, 0.7),
        ({"int8": 800, "weight_bytes": 140}, 1.0, Bound.COMPUTE, 0.8),
        ({"int8": 400, "weight_bytes": 20}, 1.0, Bound.OVERHEAD, 0.4),
        ({"int8": 20, "weight_bytes": 60}, 1.0, Bound.OVERHEAD, 0.3),
        ({"int8": 500, "weight_bytes": 20}, 1.0, Bound.COMPUTE, 0.5),  # as much as the rest: the resource names it
        ({"int8": 100, "weight_bytes": 20}, 1.0, Bound.OVERHEAD, 0.1),
        ({}, 1.0, Bound.OVERHEAD, 0.0),
        ({"int8": 1500}, 1.0, Bound.COMPUTE, 1.5),  # the probe found less than the engine: shown, not hidden
    ],
)
def test_the_largest_share_names_the_phase(counts: dict[str, int], time_s: float, bound: Bound, share: float) -> None:
    found, utilisation = judge(make_cost(**counts), time_s=time_s, peaks=PEAKS)
    assert found is bound
    assert utilisation == pytest.approx(share)


@given(st.integers(0, 2000), st.integers(0, 400), st.floats(0.01, 10.0))
def test_utilisation_is_the_share_of_the_resource_that_is_named(ops: int, num_bytes: int, time_s: float) -> None:
    bound, share = judge(make_cost(int8=ops, weight_bytes=num_bytes), time_s=time_s, peaks=PEAKS)
    compute, memory = ops / 1000 / time_s, num_bytes / 200 / time_s
    named = {Bound.COMPUTE: compute, Bound.BANDWIDTH: memory, Bound.OVERHEAD: max(compute, memory)}
    assert share == pytest.approx(named[bound])
    assert (bound is Bound.OVERHEAD) == (max(compute, memory) < 0.5) or share == pytest.approx(0.5)


# Which rows count


@pytest.fixture(scope="module")
def cost() -> ProgramCost:
    return fold_costs(build_program(make_source()), kv_precision="bf16")


def row(start: int, tokens: int, phase: Phase, *, sequence_id: int = 1) -> RowPlan:
    return RowPlan(sequence_id, start, tokens, phase, needs_logits=True)


def make_answer(*steps: list[RowPlan] | None, **changes: Any) -> Result:
    """Steps of 10 ms one after the other; None is a step without a row of ours."""
    account = Account(request_id="r1", arrival_s=0.0, before={})
    for number, rows in enumerate(steps):
        start_s = number * 0.010
        record = StepRecord(
            start_s=start_s,
            logits_s=start_s + 0.010,
            sampled_s=start_s + 0.010,
            handed_s=start_s + 0.010,
            rows=tuple(rows or [row(0, 1, Phase.DECODE, sequence_id=9)]),
            request_ids=tuple(f"r{each.sequence_id}" for each in rows or [row(0, 1, Phase.DECODE, sequence_id=9)]),
            cost=STEP_COST,
        )
        account.steps.append((record, StallKind.SCHEDULER if rows is None else None))
    account.finish_s = len(steps) * 0.010
    return make_result(account=account, **changes)


def test_chunks_are_prefill_and_single_tokens_decode(cost: ProgramCost) -> None:
    result = make_answer([row(0, 8, Phase.PREFILL)], [row(8, 4, Phase.PREFILL)], [row(12, 1, Phase.DECODE)])
    report = phase_report(result, cost=cost, peaks=None)
    assert (report.prefill.tokens, report.decode.tokens) == (12, 1)
    assert (report.prefill.time_s, report.decode.time_s) == pytest.approx((0.020, 0.010))
    assert report.prefill.tokens_per_s == pytest.approx(600)
    assert (report.prefill.tpot_s, report.decode.tpot_s) == (None, result.timing.tpot_s)
    assert report.prefill.bound_by is None
    assert report.decode.utilisation is None


def test_rows_of_others_and_steps_without_ours_do_not_count(cost: ProgramCost) -> None:
    other = row(50, 30, Phase.PREFILL, sequence_id=9)
    result = make_answer([other, row(0, 10, Phase.PREFILL)], None, [row(10, 1, Phase.DECODE)])
    report = phase_report(result, cost=cost, peaks=None)
    assert report.prefill.tokens == 10
    assert report.prefill.time_s == pytest.approx(0.010 * 10 / 40)
    assert report.decode.tokens == 1


def test_one_token_answers_have_no_decode(cost: ProgramCost) -> None:
    use = phase_report(make_answer([row(0, 8, Phase.PREFILL)]), cost=cost, peaks=PEAKS).decode
    assert (use.tokens, use.time_s, use.tokens_per_s, use.bound_by, use.utilisation) == (0, 0.0, None, None, None)


def test_a_request_that_never_ran_has_neither_phase(cost: ProgramCost) -> None:
    report = phase_report(make_answer(), cost=cost, peaks=PEAKS)
    assert (report.prefill.tokens, report.decode.tokens) == (0, 0)
    assert (report.prefill.bound_by, report.decode.bound_by) == (None, None)


def test_both_phases_are_judged_by_their_own_counts(cost: ProgramCost) -> None:
    prefill, decode = Row(0, 200), Row(200, 1)
    rate = cost.step([prefill]).total_flops / 0.008  # 80 % of a prefill step
    peaks = Peaks(
        threads=1,
        isa="portable",
        int8_ops_per_s=rate,
        bf16_ops_per_s=rate,
        fp32_ops_per_s=rate,
        read_bytes_per_s=cost.step([decode]).bytes_read / 0.006,  # 60 % of a decode step
    )
    result = make_answer([row(0, 200, Phase.PREFILL)], [row(200, 1, Phase.DECODE)])
    report = phase_report(result, cost=cost, peaks=peaks)
    assert (report.prefill.bound_by, report.decode.bound_by) == (Bound.COMPUTE, Bound.BANDWIDTH)
    assert (report.prefill.utilisation, report.decode.utilisation) == pytest.approx((0.8, 0.6))


# Borders


@pytest.mark.parametrize(
    ("counts", "bound", "share"),
    [
        ({"int8": 700, "weight_bytes": 140}, Bound.BANDWIDTH, 0.7),  # both 0.7: bytes name a tie
        ({"int8": 500, "weight_bytes": 100}, Bound.BANDWIDTH, 0.5),
        ({"int8": 499, "weight_bytes": 99}, Bound.OVERHEAD, 0.499),
        ({"int8": 300, "weight_bytes": 80}, Bound.OVERHEAD, 0.4),  # the two are at the same time, not one after another
        ({"kv_bytes": 100}, Bound.BANDWIDTH, 0.5),
        ({"weight_bytes": 400}, Bound.BANDWIDTH, 2.0),
        ({"bf16": 250}, Bound.COMPUTE, 0.5),
        ({"fp32": 50}, Bound.COMPUTE, 0.5),
        ({"fp32": 49}, Bound.OVERHEAD, 0.49),
    ],
)
def test_a_resource_names_the_phase_from_half_of_its_time_on(
    counts: dict[str, int], bound: Bound, share: float
) -> None:
    found, utilisation = judge(make_cost(**counts), time_s=1.0, peaks=PEAKS)
    assert found is bound
    assert utilisation == pytest.approx(share)


def test_bytes_written_are_not_counted_against_reading() -> None:
    assert make_cost().kv_written_bytes > PEAKS.read_bytes_per_s
    assert judge(make_cost(), time_s=1.0, peaks=PEAKS) == (Bound.OVERHEAD, 0.0)


def test_a_phase_without_time_has_counts_and_nothing_judged(cost: ProgramCost) -> None:
    result = make_answer([row(0, 8, Phase.PREFILL)], [row(8, 1, Phase.DECODE)])
    timeless = replace(result, account=Told(Ledger({}, ()), request_id="r1", steps=result.account.steps))
    report = phase_report(timeless, cost=cost, peaks=PEAKS)
    for use, tokens in ((report.prefill, 8), (report.decode, 1)):
        assert (use.tokens, use.time_s, use.tokens_per_s) == (tokens, 0.0, None)
        assert (use.bound_by, use.utilisation) == (None, None)


def test_time_without_a_row_is_judged_by_nothing(cost: ProgramCost) -> None:
    result = make_result(ledger=Ledger({Part.PREFILL: 1.0, Part.DECODE: 2.0}, ()))
    report = phase_report(result, cost=cost, peaks=PEAKS)
    assert (report.prefill.time_s, report.decode.time_s) == (1.0, 2.0)
    assert (report.prefill.tokens_per_s, report.decode.tokens_per_s) == (None, None)
    assert (report.prefill.bound_by, report.decode.bound_by) == (None, None)


def test_a_step_the_request_was_absent_from_counts_nothing_even_with_its_row(cost: ProgramCost) -> None:
    result = make_answer([row(0, 8, Phase.PREFILL)], [row(8, 1, Phase.DECODE)])
    record, _ = result.account.steps[1]
    result.account.steps[1] = (record, StallKind.PREEMPTION)
    assert phase_report(result, cost=cost, peaks=None).decode.tokens == 0
