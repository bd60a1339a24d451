"""Which steps are run and how they are timed, on a reader of known law in virtual time."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from tests.measure.dyno_builders import LIMITS, TRUTH, WINDOW, LawfulReader, SteadyProbe
from twostroke.core.clock import VirtualClock
from twostroke.core.step_cost import Law
from twostroke.measure.dyno_shapes import Limits, calibration_shapes, decode_shape, prefill_shape, words
from twostroke.measure.dyno_steps import MAX_ROUNDS, MAX_STEP_S, MIN_ROUNDS, StepBench, Visit, calm_visits
from twostroke.program.cost import Row


def make_bench(reader: LawfulReader, limits: Limits = LIMITS) -> StepBench:
    return StepBench(reader, limits, vocab_size=50, clock=reader.clock)


limits = st.builds(
    Limits,
    max_tokens=st.integers(1, 600),
    max_rows=st.integers(1, 40),
    context=st.integers(2, 5000),
    block_size=st.sampled_from([16, 32]),
    num_blocks=st.tuples(st.integers(1, 400), st.integers(1, 400)),
    groups=st.just(LIMITS.groups),
)


@given(limits)
def test_no_shape_exceeds_what_a_step_may_hold(allowed: Limits) -> None:
    for shape in calibration_shapes(allowed):
        assert len(shape) <= allowed.max_rows
        assert sum(row.num_tokens for row in shape) <= allowed.max_tokens
        assert max(row.start_pos + row.num_tokens for row in shape) <= allowed.context
        for group, there in zip(allowed.groups, allowed.num_blocks, strict=True):
            assert sum(allowed.held(row, group) for row in shape) <= there


def test_a_large_model_gets_every_shape_and_each_moves_one_class() -> None:
    shapes = calibration_shapes(LIMITS)
    assert len(set(shapes)) == len(shapes) == 23
    assert {len(shape) for shape in shapes if shape[0].needs_logits} == {1, 4, 16, 32}


def test_tables_give_every_row_blocks_of_its_own_and_blanks_behind_a_window() -> None:
    bench = make_bench(LawfulReader(VirtualClock()))
    shape = (Row(2000, 1), Row(100, 40, needs_logits=False), Row(700, 1))
    step = bench.bind(shape)
    for group, table in zip(LIMITS.groups, step.block_tables, strict=True):
        used = [int(block) for block in table.ravel() if block >= 0]
        assert len(used) == len(set(used)) == sum(LIMITS.held(row, group) for row in shape)
    first_seen = (2000 + 1 - WINDOW) // LIMITS.block_size
    assert (step.block_tables[0][0, :first_seen] == -1).all()
    assert step.block_tables[0][0, first_seen] >= 0
    assert (step.block_tables[1][0] >= 0).all()
    assert step.selected.tolist() == [0, 41]
    assert step.row_starts.tolist() == [0, 1, 41, 42]


def test_every_block_that_will_be_read_is_written_first() -> None:
    reader = LawfulReader(VirtualClock())
    bench = make_bench(reader)
    shapes = calibration_shapes(LIMITS)
    bench.fill(shapes)
    (filled,) = reader.steps
    for group in range(len(LIMITS.groups)):
        written = set(range(len(filled.token_ids) // LIMITS.block_size))
        for copied, source, target in reader.copies:
            if copied == group:
                assert source in written, "a block is copied before it holds anything"
                written.add(target)
        for shape in shapes:
            assert set(bench.bind(shape).block_tables[group].ravel().tolist()) - {-1} <= written


def test_times_are_those_of_the_law_whatever_a_neighbour_does_now_and_then() -> None:
    clock = VirtualClock()
    reader = LawfulReader(clock)
    shapes = calibration_shapes(LIMITS)
    reader.slow_steps = {number for number in range(40, 4000) if random.Random(number).random() < 0.1}
    timed = make_bench(reader).time_all(shapes, budget_s=30.0, reference=SteadyProbe(clock))
    assert [each.shape for each in timed.steps] == list(shapes)
    for each in timed.steps:
        assert each.seconds == pytest.approx(TRUTH.seconds(each.shape)), words(each.shape)
    assert timed.num_rounds == MAX_ROUNDS


def test_a_step_beside_slow_loops_does_not_count() -> None:
    calm, read_slow, dot_slow = Visit(1.0, 40e9, 900e9), Visit(1.5, 30e9, 900e9), Visit(1.4, 40e9, 450e9)
    assert calm_visits([[calm, read_slow, dot_slow], [calm] * 9]) == [[calm], [calm] * 9]


def test_where_hardly_anything_was_calm_all_counts() -> None:
    calm, slow = Visit(1.0, 40e9, 900e9), Visit(1.5, 30e9, 900e9)
    assert calm_visits([[calm, slow, slow, slow], [calm] * 9])[0] == [calm, slow, slow, slow]


def test_references_are_timed_in_turn_with_the_steps() -> None:
    clock = VirtualClock()
    probe = SteadyProbe(clock, read_bytes_per_s=33e9, ops_per_s=700e9)
    timed = make_bench(LawfulReader(clock)).time_all(calibration_shapes(LIMITS), budget_s=5.0, reference=probe)
    assert timed.read_bytes_per_s == pytest.approx(33e9)
    assert timed.dot_ops_per_s == pytest.approx(700e9)


def test_the_budget_ends_the_rounds_but_never_the_first_few() -> None:
    clock = VirtualClock()
    bench, shapes = make_bench(LawfulReader(clock)), calibration_shapes(LIMITS)
    assert bench.time_all(shapes, budget_s=0.0, reference=SteadyProbe(clock)).num_rounds == MIN_ROUNDS
    start_s = clock.now()
    timed = bench.time_all(shapes, budget_s=8.0, reference=SteadyProbe(clock))
    assert MIN_ROUNDS < timed.num_rounds < MAX_ROUNDS
    assert clock.now() - start_s <= 8.0


def test_steps_too_long_for_the_budget_are_left_out() -> None:
    clock = VirtualClock()
    reader = LawfulReader(clock, replace(TRUTH, linear=Law(0.1, 0.02, 1.0)))
    timed = make_bench(reader).time_all(calibration_shapes(LIMITS), budget_s=1.0, reference=SteadyProbe(clock))
    assert 0 < len(timed.steps) < 23
    assert max(each.seconds for each in timed.steps) <= MAX_STEP_S


def test_shapes_of_both_phases_fit_small_models() -> None:
    small = replace(LIMITS, context=20, max_tokens=12)
    assert decode_shape(small) == (Row(19, 1),)
    assert prefill_shape(small) == (Row(0, 12, needs_logits=False),)
    assert decode_shape(LIMITS) == (Row(128, 1),)


def test_a_shape_is_told_in_a_few_words() -> None:
    assert words((Row(512, 1),) * 4) == "4 x 1 at 512"
    assert words((Row(0, 64, False), Row(9, 1))) == "1 x 64 at 0, no logits + 1 x 1 at 9"
