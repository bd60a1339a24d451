"""Shares of a step: own part and stalls add up to its wall time, and the right one is blamed."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from tests.builders_cost import make_cost
from tests.core.account_builders import COST, record, row
from twostroke.core.account import StepRecord
from twostroke.core.ledger import StallKind
from twostroke.core.phase import Phase
from twostroke.core.step import RowPlan


def shares(step: StepRecord, request_id: str) -> tuple[float, dict[tuple[StallKind, str | None], float]]:
    return step.shares.of(request_id, wall_s=step.logits_s - step.start_s)


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


def test_nobody_is_blamed_for_a_stall_of_its_own() -> None:
    prefills = [row(number, start=0, tokens=20 + number, phase=Phase.PREFILL) for number in (1, 2)]
    step = record(*prefills, row(3, start=40, tokens=1, phase=Phase.DECODE))
    for request_id in step.request_ids:
        _, lost = shares(step, request_id)
        assert request_id not in {other for _, other in lost}
