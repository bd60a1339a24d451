"""Shares of a step: own part and stalls add up to its wall time, and the right one is blamed."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from tests.builders_cost import make_cost
from twostroke.core.account import Account, StepRecord, shares
from twostroke.core.ledger import Part, StallKind
from twostroke.core.phase import Phase
from twostroke.core.step import RowPlan

COST = make_cost(
    base_s=0.001, weights_s=0.010, token_s=0.001, row_s=0.0001, position_s=1e-6, pair_s=1e-7, sharpness=1.5
)


def row(sequence_id: int, *, start: int, tokens: int, phase: Phase) -> RowPlan:
    return RowPlan(sequence_id, start, tokens, phase, needs_logits=True)


def record(*rows: RowPlan, start_s: float = 0.0, wall_s: float = 0.1) -> StepRecord:
    return StepRecord(
        start_s=start_s,
        logits_s=start_s + wall_s,
        sampled_s=start_s + wall_s + 0.002,
        handed_s=start_s + wall_s + 0.003,
        rows=rows,
        request_ids=tuple(f"r{each.sequence_id}" for each in rows),
        cost=COST,
    )


@st.composite
def mixed_rows(draw: st.DrawFn) -> list[RowPlan]:
    rows = []
    for sequence_id in range(draw(st.integers(1, 6))):
        tokens = draw(st.integers(1, 64))
        phase = Phase.PREFILL if tokens > 1 else draw(st.sampled_from(list(Phase)))
        rows.append(row(sequence_id, start=draw(st.integers(0, 500)), tokens=tokens, phase=phase))
    return rows


@given(mixed_rows(), st.floats(1e-4, 1.0))
def test_own_part_and_stalls_are_the_wall_time_and_never_negative(rows: list[RowPlan], wall_s: float) -> None:
    step = record(*rows, wall_s=wall_s)
    for request_id in step.request_ids:
        own_s, lost = shares(step, request_id)
        assert own_s > 0
        assert min(lost.values(), default=0.0) >= -1e-12
        assert own_s + sum(lost.values()) == pytest.approx(wall_s)


def test_a_row_alone_owns_the_whole_step() -> None:
    step = record(row(0, start=0, tokens=8, phase=Phase.PREFILL))
    own_s, lost = shares(step, "r0")
    assert own_s == pytest.approx(0.1)
    assert not lost


def test_rows_of_one_request_are_shared_as_one() -> None:
    rows = tuple(row(n, start=20, tokens=1, phase=Phase.DECODE) for n in range(5))
    step = replace(record(*rows), request_ids=("r0", "r1", "r1", "r1", "r2"))
    own_s, lost = shares(step, "r1")
    scale = 0.1 / COST.seconds(rows)
    assert own_s == pytest.approx(scale * COST.seconds(rows[1:4]))
    assert lost == {(StallKind.DECODE_OF_OTHERS, None): pytest.approx(0.1 - own_s)}
    assert step.rows_of("r1") == rows[1:4]


def test_a_group_alone_owns_the_whole_step() -> None:
    rows = tuple(row(n, start=20, tokens=1, phase=Phase.DECODE) for n in range(3))
    step = replace(record(*rows), request_ids=("r1",) * 3)
    own_s, lost = shares(step, "r1")
    assert own_s == pytest.approx(0.1)
    assert not lost


def test_a_decode_blames_each_prefill_by_what_it_adds() -> None:
    step = record(
        row(0, start=9, tokens=1, phase=Phase.DECODE),
        row(1, start=0, tokens=20, phase=Phase.PREFILL),
        row(2, start=0, tokens=60, phase=Phase.PREFILL),
    )
    _, lost = shares(step, "r0")
    small, large = lost[StallKind.PREFILL_OF_OTHER, "r1"], lost[StallKind.PREFILL_OF_OTHER, "r2"]
    assert large > 3 * small > 0


def test_a_prefill_blames_decodes_for_their_part_alone() -> None:
    rows = (row(0, start=0, tokens=20, phase=Phase.PREFILL), row(1, start=9, tokens=1, phase=Phase.DECODE))
    step = record(*rows)
    _, lost = shares(step, "r0")
    scale = 0.1 / COST.seconds(rows)
    assert lost[StallKind.DECODE_OF_OTHERS, None] == pytest.approx(
        scale * (COST.seconds(rows) - COST.seconds(rows[:1]))
    )


def account(
    *steps: tuple[StepRecord, StallKind | None], arrival_s: float, finish_s: float, first_token_s: float | None = None
) -> Account:
    made = Account(request_id="r0", arrival_s=arrival_s, before={Part.TOKENIZE: 0.001})
    made.first_token_s = first_token_s
    made.steps.extend(steps)
    made.finish_s = finish_s
    return made


def test_steps_without_a_row_are_stalls_and_the_sum_is_closed() -> None:
    own = row(0, start=0, tokens=8, phase=Phase.PREFILL)
    later = row(0, start=8, tokens=1, phase=Phase.DECODE)
    other = row(1, start=3, tokens=1, phase=Phase.DECODE)
    made = account(
        (record(own, start_s=1.0), None),
        (record(other, start_s=1.2), StallKind.PREEMPTION),
        (record(later, start_s=1.4), None),
        arrival_s=0.5,
        first_token_s=1.103,
        finish_s=1.6,
    )
    ledger = made.read()
    assert ledger.total_s == pytest.approx(1.1)
    assert ledger.parts[Part.QUEUE] == pytest.approx(0.499)
    assert ledger.parts[Part.PREFILL] == pytest.approx(0.1)
    assert ledger.parts[Part.FIRST_SAMPLE] == pytest.approx(0.002)
    assert ledger.parts[Part.SAMPLE] == pytest.approx(0.002)
    (stall,) = ledger.stalls
    assert stall.kind is StallKind.PREEMPTION
    assert stall.time_s == pytest.approx(0.103)


def test_only_what_led_to_the_first_token_is_its_sampling() -> None:
    chunks = [record(row(0, start=8 * n, tokens=8, phase=Phase.PREFILL), start_s=1.0 + n) for n in range(2)]
    again = record(row(0, start=0, tokens=20, phase=Phase.PREFILL), start_s=5.0)  # recomputed after preemption
    steps = [(each, None) for each in (*chunks, again)]
    ledger = account(*steps, arrival_s=0.5, first_token_s=chunks[1].handed_s, finish_s=6.0).read()
    assert ledger.parts[Part.PREFILL] == pytest.approx(0.3)
    assert ledger.parts[Part.FIRST_SAMPLE] == pytest.approx(0.004)
    assert ledger.parts[Part.SAMPLE] == pytest.approx(0.002)
    assert ledger.total_s == pytest.approx(5.5)


def test_a_request_that_never_ran_only_queued() -> None:
    ledger = account(arrival_s=0.5, finish_s=0.9).read()
    assert ledger.parts == {Part.QUEUE: pytest.approx(0.399), Part.TOKENIZE: 0.001}


def test_a_running_account_cannot_be_closed() -> None:
    made = Account(request_id="r0", arrival_s=0.0, before={})
    with pytest.raises(AssertionError, match="r0"):
        made.read()


def test_a_step_is_shared_as_computed_by_hand() -> None:
    cost = make_cost(base_s=2.0, token_s=1.0)
    rows = (
        row(0, start=9, tokens=1, phase=Phase.DECODE),
        row(1, start=9, tokens=1, phase=Phase.DECODE),
        row(2, start=0, tokens=4, phase=Phase.PREFILL),
        row(3, start=0, tokens=12, phase=Phase.PREFILL),
    )
    whole = cost.seconds(rows)
    step = replace(record(*rows, wall_s=2 * whole), cost=cost)  # twice as slow as foreseen
    alone, decodes = cost.seconds(rows[:1]), cost.seconds(rows[:2])
    own_s, lost = shares(step, "r0")
    assert own_s == pytest.approx(2 * alone)
    assert lost == {
        (StallKind.DECODE_OF_OTHERS, None): pytest.approx(2 * (decodes - alone)),
        (StallKind.PREFILL_OF_OTHER, "r2"): pytest.approx(2 * (whole - decodes) * 4 / 16),
        (StallKind.PREFILL_OF_OTHER, "r3"): pytest.approx(2 * (whole - decodes) * 12 / 16),
    }


def test_a_cost_that_knows_nothing_gives_every_row_the_whole_step() -> None:
    nothing = make_cost()
    rows = (row(0, start=9, tokens=1, phase=Phase.DECODE), row(1, start=0, tokens=4, phase=Phase.PREFILL))
    step = replace(record(*rows, wall_s=0.25), cost=nothing)
    assert shares(step, "r0") == (0.25, {})
    assert shares(step, "r1") == (0.25, {})


def test_prefills_that_add_nothing_share_the_blame_equally() -> None:
    flat = make_cost(base_s=1.0)
    rows = (
        row(0, start=9, tokens=1, phase=Phase.DECODE),
        row(1, start=0, tokens=4, phase=Phase.PREFILL),
        row(2, start=0, tokens=40, phase=Phase.PREFILL),
    )
    own_s, lost = shares(replace(record(*rows, wall_s=0.5), cost=flat), "r0")
    assert own_s == pytest.approx(0.5)
    assert lost[StallKind.PREFILL_OF_OTHER, "r1"] == lost[StallKind.PREFILL_OF_OTHER, "r2"]


def make_account(*, finish_s: float) -> Account:
    return Account(request_id="r0", arrival_s=1.0, before={Part.TOKENIZE: 0.25}, finish_s=finish_s)


def test_time_spent_before_the_engine_is_not_queued_twice() -> None:
    account = make_account(finish_s=3.5)
    account.steps.append((record(row(0, start=0, tokens=8, phase=Phase.PREFILL), start_s=3.0), None))
    parts = account.read().parts
    assert parts[Part.TOKENIZE] == 0.25
    assert parts[Part.QUEUE] == pytest.approx(3.0 - 1.0 - 0.25)
    assert parts[Part.PREFILL] == pytest.approx(0.1)
    assert parts[Part.FIRST_SAMPLE] == pytest.approx(0.002)
    assert parts[Part.DETOKENIZE] == pytest.approx(0.001)
    assert parts[Part.OVERHEAD] == pytest.approx(3.5 - 3.103)


def test_steps_before_the_first_of_its_own_are_queueing_and_later_ones_stalls() -> None:
    account = make_account(finish_s=5.0)
    other = record(row(9, start=0, tokens=8, phase=Phase.PREFILL), start_s=2.0)
    own = record(row(0, start=0, tokens=8, phase=Phase.PREFILL), start_s=3.0)
    late = record(row(9, start=8, tokens=8, phase=Phase.PREFILL), start_s=4.0)
    account.steps += [(other, StallKind.SCHEDULER), (own, None), (late, StallKind.PREEMPTION)]
    ledger = account.read()
    assert ledger.parts[Part.QUEUE] == pytest.approx(1.75)
    assert [(stall.kind, stall.request_id) for stall in ledger.stalls] == [(StallKind.PREEMPTION, None)]
    assert ledger.stalls[0].time_s == pytest.approx(0.103)
    assert ledger.total_s == pytest.approx(4.0)


def test_an_account_read_up_to_a_time_leaves_out_what_began_then() -> None:
    account = make_account(finish_s=9.0)
    for start_s in (2.0, 3.0, 4.0):
        account.steps.append((record(row(0, start=9, tokens=1, phase=Phase.DECODE), start_s=start_s), None))
    ledger = account.read(until_s=4.0)
    assert ledger.parts[Part.DECODE] == pytest.approx(0.2)
    assert ledger.total_s == pytest.approx(3.0)
    assert account.read().parts[Part.DECODE] == pytest.approx(0.3)


def test_a_step_that_begins_when_the_first_token_is_told_led_to_the_second() -> None:
    account = make_account(finish_s=9.0)
    first = record(row(0, start=0, tokens=8, phase=Phase.PREFILL), start_s=2.0)
    account.first_token_s = first.handed_s
    second = record(row(0, start=8, tokens=1, phase=Phase.DECODE), start_s=first.handed_s)
    account.steps += [(first, None), (second, None)]
    parts = account.read().parts
    assert parts[Part.FIRST_SAMPLE] == pytest.approx(0.002)
    assert parts[Part.SAMPLE] == pytest.approx(0.002)
