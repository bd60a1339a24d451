"""Plans and their outcome, on tiny numbers: who gets a row, how long it is, what ends a sequence."""

import copy

import pytest

from tests.builders_schedule import ScriptedEngine, answer_of, make_scheduler, make_sequence, make_step_cost
from twostroke.core.phase import Phase
from twostroke.core.sequence import FinishReason, SequenceStatus
from twostroke.core.step import RowPlan, SampledToken, StepPlan, StepResult
from twostroke.errors import CapacityError, PromptError, QueueFullError


def make_engine(**options: object) -> ScriptedEngine:
    return ScriptedEngine(make_scheduler(**options))  # type: ignore[arg-type]


def shape(plan: StepPlan | None) -> list[tuple[int, int, int]]:
    """(sequence, start, tokens) of every row."""
    assert plan is not None
    return [(row.sequence_id, row.start_pos, row.num_tokens) for row in plan.rows]


# Rows and phases


def test_an_idle_scheduler_plans_nothing() -> None:
    assert make_scheduler().plan(0.0) is None


def test_a_prompt_is_prefilled_and_then_decoded_token_by_token() -> None:
    engine = make_engine()
    engine.add(make_sequence(1, prompt=5, max_tokens=3))
    plans = [engine.step() for _ in range(3)]
    assert [shape(plan) for plan in plans] == [[(1, 0, 5)], [(1, 5, 1)], [(1, 6, 1)]]
    assert [plan.rows[0].phase for plan in plans if plan] == [Phase.PREFILL, Phase.DECODE, Phase.DECODE]
    assert all(plan.rows[0].needs_logits for plan in plans if plan)
    assert engine.step() is None


def test_a_prompt_of_one_token_is_prefill() -> None:
    engine = make_engine()
    engine.add(make_sequence(1, prompt=1))
    plan = engine.step()
    assert plan is not None
    assert plan.rows == (RowPlan(1, 0, 1, Phase.PREFILL, needs_logits=True),)


def test_only_the_chunk_that_reaches_the_newest_token_needs_logits() -> None:
    engine = make_engine(max_chunk_tokens=2)
    engine.add(make_sequence(1, prompt=5))
    plans = [engine.step() for _ in range(3)]
    assert [plan.rows[0].needs_logits for plan in plans if plan] == [False, False, True]


def test_decode_goes_first_when_the_budget_is_short() -> None:
    engine = make_engine(num_blocks=20, max_rows=3, max_step_tokens=4)
    engine.add(make_sequence(1, prompt=2, max_tokens=9))
    engine.add(make_sequence(2, prompt=2, max_tokens=9))
    engine.step()
    engine.add(make_sequence(3, prompt=9))
    assert shape(engine.step()) == [(1, 2, 1), (2, 2, 1), (3, 0, 2)]


def test_a_step_never_holds_more_tokens_than_the_engine_has_buffers() -> None:
    engine = make_engine(num_blocks=40, max_rows=4, max_step_tokens=6)
    for number in range(6):
        engine.add(make_sequence(number, prompt=7))
    engine.run_until_idle()
    assert max(plan.num_tokens for plan in engine.plans) == 6


def test_a_short_prompt_does_not_wait_for_a_long_one_that_came_first() -> None:
    engine = make_engine(num_blocks=40, max_rows=4, max_step_tokens=6)
    engine.add(make_sequence(1, prompt=50))
    engine.step()
    engine.add(make_sequence(2, prompt=4, arrival_s=1.0))
    assert shape(engine.step()) == [(2, 0, 4), (1, 6, 2)]


def test_a_long_prompt_starts_in_bounded_time_under_a_stream_of_short_ones() -> None:
    engine = make_engine(
        num_blocks=100, max_rows=30, max_step_tokens=31, max_chunk_tokens=8, prefill_ageing_tokens_per_s=100.0
    )
    long = engine.add(make_sequence(0, prompt=60, max_tokens=2))
    for number in range(1, 200):
        engine.add(make_sequence(number, prompt=8, max_tokens=1, arrival_s=engine.now_s))
        engine.add(make_sequence(1000 + number, prompt=8, max_tokens=1, arrival_s=engine.now_s))
        engine.add(make_sequence(2000 + number, prompt=8, max_tokens=1, arrival_s=engine.now_s))
        engine.add(make_sequence(3000 + number, prompt=8, max_tokens=1, arrival_s=engine.now_s))
        engine.step()
        if long.is_finished:
            break
    assert long.is_finished
    assert engine.now_s < 60 / 100.0 + 0.3


# Milliseconds


def test_prefill_beside_decode_is_capped_by_the_stall_budget() -> None:
    engine = make_engine(
        num_blocks=100,
        step_cost=make_step_cost(decode_s=0.010, token_s=0.001),
        max_decode_stall_s=0.0205,
        min_prefill_tokens=4,
    )
    engine.add(make_sequence(1, prompt=4, max_tokens=50))
    engine.step()
    engine.add(make_sequence(2, prompt=100))
    assert shape(engine.step()) == [(1, 4, 1), (2, 0, 20)]


def test_a_step_without_decode_is_capped_by_its_own_limit() -> None:
    engine = make_engine(
        num_blocks=100, step_cost=make_step_cost(decode_s=0.010, token_s=0.001), max_step_s=0.0455, min_prefill_tokens=4
    )
    engine.add(make_sequence(1, prompt=100))
    assert shape(engine.step()) == [(1, 0, 35)]


@pytest.mark.parametrize(("prompt", "chunks"), [(38, [38]), (45, [35, 10]), (73, [35, 38])])
def test_the_last_chunk_of_a_prompt_may_take_an_eighth_more(prompt: int, chunks: list[int]) -> None:
    engine = make_engine(
        num_blocks=100, step_cost=make_step_cost(decode_s=0.010, token_s=0.001), max_step_s=0.0455, min_prefill_tokens=4
    )
    engine.add(make_sequence(1, prompt=prompt))
    assert [row[2] for _ in chunks for row in shape(engine.step())] == chunks


def test_a_few_prefill_tokens_go_through_whatever_they_cost() -> None:
    engine = make_engine(num_blocks=100, step_cost=make_step_cost(token_s=10.0), min_prefill_tokens=16)
    engine.add(make_sequence(1, prompt=10, max_tokens=9))
    engine.add(make_sequence(2, prompt=100))
    assert shape(engine.step()) == [(1, 0, 10), (2, 0, 6)]
    assert shape(engine.step()) == [(1, 10, 1), (2, 6, 16)]


def test_no_decode_waits_longer_than_its_own_step_and_the_stall_budget() -> None:
    cost = make_step_cost(decode_s=0.010, token_s=0.001, position_s=1e-6, pair_s=1e-6)
    engine = make_engine(num_blocks=400, step_cost=cost, max_decode_stall_s=0.015, max_rows=8)
    engine.add(make_sequence(1, prompt=4, max_tokens=60))
    engine.step()
    for number, num_prompt in enumerate([300, 7, 150, 1, 90]):
        engine.add(make_sequence(10 + number, prompt=num_prompt, max_tokens=5, arrival_s=engine.now_s))
    while engine.scheduler.has_work:
        before = engine.now_s
        plan = engine.step()
        assert plan is not None
        decodes = [row for row in plan.rows if row.phase is Phase.DECODE]
        if decodes:
            prefills = sum(row.num_tokens for row in plan.rows if row.phase is Phase.PREFILL)
            floor_s = cost.seconds(plan.rows) if prefills <= 16 else 0.0
            assert engine.now_s - before <= max(cost.seconds(decodes) + 0.015, floor_s) + 1e-12


# Admission


def test_first_come_first_served_and_nobody_passes_the_head() -> None:
    engine = make_engine(num_blocks=6, block_size=4, max_rows=4)
    engine.add(make_sequence(1, prompt=12, max_tokens=2))
    engine.add(make_sequence(2, prompt=16, max_tokens=2))
    engine.add(make_sequence(3, prompt=1, max_tokens=2))
    plan = engine.step()
    assert shape(plan) == [(1, 0, 12)]
    assert [each.sequence_id for each in engine.scheduler.waiting] == [2, 3]


def test_rows_are_limited_by_count() -> None:
    engine = make_engine(num_blocks=40, max_rows=2)
    for number in range(5):
        engine.add(make_sequence(number))
    engine.step()
    assert (engine.scheduler.num_running, engine.scheduler.num_waiting) == (2, 3)


def test_a_sequence_that_was_admitted_keeps_the_room_its_prompt_needs() -> None:
    engine = make_engine(num_blocks=10, block_size=4, max_rows=4, max_step_tokens=8)
    engine.add(make_sequence(1, prompt=28, max_tokens=1))
    engine.step()
    engine.add(make_sequence(2, prompt=16, max_tokens=1))
    engine.step()
    assert [each.sequence_id for each in engine.scheduler.running] == [1], "7 blocks are promised, 4 do not fit in 3"


def test_the_queue_is_bounded_and_says_so() -> None:
    engine = make_engine(max_waiting=2)
    engine.add(make_sequence(1))
    engine.add(make_sequence(2))
    with pytest.raises(QueueFullError, match="2 requests wait, the limit is 2"):
        engine.add(make_sequence(3))
    engine.step()
    assert engine.scheduler.num_running + engine.scheduler.num_waiting == 2


def test_a_more_urgent_request_starts_in_this_step_if_less_urgent_ones_can_make_room() -> None:
    for options in ({"num_blocks": 5, "max_rows": 4}, {"num_blocks": 40, "max_rows": 2}):
        engine = make_engine(block_size=4, **options)
        engine.add(make_sequence(1, prompt=6, max_tokens=3, priority=1))
        engine.add(make_sequence(2, prompt=7, max_tokens=3, priority=1))
        engine.step()
        engine.add(make_sequence(3, prompt=12, max_tokens=2, priority=0))
        plan = engine.step()
        assert plan is not None
        assert (3, 0, 12) in shape(plan)
        assert plan.preempted
        assert 3 not in plan.preempted
        engine.run_until_idle()
        assert all(each.output_token_ids == answer_of(each) for each in engine.finished.values())


def test_an_equally_urgent_request_displaces_nobody() -> None:
    engine = make_engine(num_blocks=40, max_rows=1)
    engine.add(make_sequence(1))
    engine.step()
    engine.add(make_sequence(2))
    engine.run_until_idle()
    assert engine.scheduler.num_preemptions == 0


def test_cached_blocks_a_prompt_will_hold_are_not_room_for_the_rest_of_it() -> None:
    engine = make_engine(num_blocks=5, block_size=4, max_rows=4)
    engine.add(make_sequence(1, prompt=range(9), max_tokens=1))
    engine.run_until_idle()
    engine.add(make_sequence(2, prompt=12, max_tokens=1))
    engine.add(make_sequence(3, prompt=range(9), max_tokens=1))
    assert shape(engine.step()) == [(2, 0, 12)]
    assert engine.cache.num_available == (5,), "two cached, one free, and the three just left"
    assert engine.scheduler.num_waiting == 1


def test_a_head_that_holds_twins_of_findable_blocks_lets_go_of_them_rather_than_wait_for_ever() -> None:
    engine = make_engine(num_blocks=4, block_size=4, max_rows=2, max_preemptions=1)
    engine.scheduler._admission._output_ratio = 0.0
    engine.add(make_sequence(1, prompt=range(4), max_tokens=8))
    engine.add(make_sequence(2, prompt=range(4), max_tokens=12))
    engine.run_until_idle()
    assert engine.scheduler.num_preemptions == 1
    for sequence in engine.finished.values():
        assert sequence.output_token_ids == answer_of(sequence)


@pytest.mark.parametrize("max_preemptions", [0, 2])
def test_one_gives_way_when_all_prefills_are_stuck_even_if_all_are_pinned(max_preemptions: int) -> None:
    """Two that share the blocks of a window: leaving a shared block behind frees nothing, so both run short."""
    engine = make_engine(
        num_blocks=4, block_size=4, windows=(8,), max_rows=4, max_chunk_tokens=2, max_preemptions=max_preemptions
    )
    engine.add(make_sequence(0, prompt=range(16), max_tokens=1))
    engine.run_until_idle()
    engine.scheduler._admission._output_ratio = 0.0
    first = engine.add(make_sequence(1, prompt=[*range(16), *[1] * 24], max_tokens=1))
    second = engine.add(make_sequence(2, prompt=[*range(16), *[2] * 24], max_tokens=1))
    engine.run_until_idle()
    assert (first.num_preemptions, second.num_preemptions) == (0, 1)
    for sequence in engine.finished.values():
        assert sequence.output_token_ids == answer_of(sequence)


# Prefix reuse


def test_a_prompt_seen_before_is_computed_from_its_last_block_on() -> None:
    engine = make_engine(num_blocks=8)
    engine.add(make_sequence(1, prompt=range(10), max_tokens=2))
    engine.run_until_idle()
    second = engine.add(make_sequence(2, prompt=range(10), max_tokens=2))
    assert shape(engine.step()) == [(2, 8, 2)]
    assert second.num_cached == 8
    assert (engine.cache.num_queries, engine.cache.num_hits) == (20, 8)


def test_a_sequence_reuses_what_another_publishes_after_it_was_admitted() -> None:
    engine = make_engine(num_blocks=20, max_step_tokens=9, max_rows=4)
    engine.add(make_sequence(1, prompt=range(9), max_tokens=3))
    engine.add(make_sequence(2, prompt=range(9), max_tokens=3))
    assert shape(engine.step()) == [(1, 0, 9)]
    assert engine.scheduler.num_running == 2
    assert shape(engine.step()) == [(1, 9, 1), (2, 8, 1)]
    assert engine.sequences[2].num_cached == 8


def test_reuse_can_be_switched_off() -> None:
    engine = make_engine(num_blocks=8, enable_prefix_cache=False)
    for number in (1, 2):
        engine.add(make_sequence(number, prompt=range(10), max_tokens=2))
        engine.run_until_idle()
    assert engine.sequences[2].num_cached == 0
    assert engine.cache.counts().cached == 0


# Preemption


def crowded(**options: object) -> ScriptedEngine:
    """Three sequences whose outputs do not fit together, though their prompts do."""
    engine = make_engine(**{"num_blocks": 9, "block_size": 4, "max_rows": 4, **options})
    for number in range(3):
        engine.add(make_sequence(number, prompt=5, max_tokens=11))
    return engine


def run_until_preempted(engine: ScriptedEngine) -> None:
    while engine.scheduler.num_preemptions == 0:
        assert engine.step() is not None, "idle without a preemption"


def test_a_preempted_sequence_keeps_its_head_and_its_answer() -> None:
    engine = crowded()
    run_until_preempted(engine)
    (victim,) = [each for each in engine.scheduler.waiting if each.status is SequenceStatus.PREEMPTED]
    assert 0 < victim.num_computed < victim.num_tokens
    assert engine.cache.num_held_by(victim.sequence_id) != (0,)
    engine.run_until_idle()
    assert all(each.output_token_ids == answer_of(each) for each in engine.finished.values())


def test_recomputed_rows_are_flagged_and_counted() -> None:
    engine = crowded(enable_prefix_cache=False)
    engine.run_until_idle()
    flagged = [row for plan in engine.plans for row in plan.rows if row.is_recompute]
    assert engine.scheduler.num_preemptions > 0
    assert flagged
    assert all(row.phase is Phase.PREFILL for row in flagged)
    assert 0 < engine.scheduler.num_recomputed_tokens <= sum(row.num_tokens for row in flagged)


def test_a_plan_names_who_lost_their_row() -> None:
    engine = crowded()
    engine.run_until_idle()
    named = [sequence_id for plan in engine.plans for sequence_id in plan.preempted]
    assert len(named) == engine.scheduler.num_preemptions
    for plan in engine.plans:
        assert not set(plan.preempted) & {row.sequence_id for row in plan.rows}


@pytest.mark.parametrize("max_preemptions", [0, 1, 2])
def test_nobody_is_preempted_more_often_than_allowed(max_preemptions: int) -> None:
    engine = make_engine(num_blocks=9, block_size=4, max_rows=8, max_preemptions=max_preemptions)
    for number in range(8):
        engine.add(make_sequence(number, prompt=5, max_tokens=11))
    engine.run_until_idle()
    assert max(each.num_preemptions for each in engine.finished.values()) <= max_preemptions
    for sequence in engine.finished.values():
        assert sequence.output_token_ids == answer_of(sequence)


def test_more_memory_never_preempts_more_on_a_plain_trace() -> None:
    counts = []
    for num_blocks in (9, 10, 11, 12, 16):
        engine = crowded(num_blocks=num_blocks)
        engine.run_until_idle()
        counts.append(engine.scheduler.num_preemptions)
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 0


# Ends


def test_a_stop_token_ends_a_sequence_with_the_token_kept() -> None:
    engine = make_engine()
    stop_id = answer_of(make_sequence(1, max_tokens=2))[1]
    sequence = engine.add(make_sequence(1, max_tokens=4, stop_token_ids=[stop_id]))
    engine.run_until_idle()
    assert sequence.finish_reason is FinishReason.STOP
    assert sequence.output_token_ids[-1] == stop_id


def test_the_last_allowed_token_ends_a_sequence_by_length() -> None:
    engine = make_engine()
    sequence = engine.add(make_sequence(1, max_tokens=1))
    engine.run_until_idle()
    assert sequence.finish_reason is FinishReason.LENGTH
    assert sequence.num_output_tokens == 1


def test_an_end_decided_outside_wins_over_length() -> None:
    engine = make_engine()
    engine.add(make_sequence(1, max_tokens=1))
    plan = engine.plan()
    assert plan is not None
    engine.commit(StepResult(plan, engine.run(plan), {1: FinishReason.STOP}))
    assert engine.finished[1].finish_reason is FinishReason.STOP


def test_blocks_of_an_ended_sequence_are_available_and_findable() -> None:
    engine = make_engine(num_blocks=4)
    engine.add(make_sequence(1, prompt=8, max_tokens=2))
    engine.run_until_idle()
    counts = engine.cache.counts()
    assert (counts.held, counts.cached) == (0, 2)


def test_a_step_that_is_not_the_last_planned_cannot_be_committed() -> None:
    engine = make_engine()
    engine.add(make_sequence(1))
    plan = engine.step()
    engine.step()
    assert plan is not None
    with pytest.raises(AssertionError, match="step 1 is not the last, 2"):
        engine.scheduler.commit(StepResult(plan, ()))


def test_a_row_that_got_no_token_is_noticed() -> None:
    engine = make_engine()
    engine.add(make_sequence(1))
    plan = engine.plan()
    assert plan is not None
    with pytest.raises(AssertionError, match="sequence 1 got no token"):
        engine.scheduler.commit(StepResult(plan, ()))


# Known bugs


def test_a_request_that_can_never_fit_is_refused_with_the_arithmetic_and_blocks_nobody() -> None:
    """Known bug Q1: it waited for ever, and everyone behind it."""
    engine = make_engine(num_blocks=10, block_size=16, max_rows=4)
    engine.add(make_sequence(100, prompt=100, max_tokens=1))
    engine.add(make_sequence(159, prompt=159, max_tokens=2))
    engine.add(make_sequence(160, prompt=160, max_tokens=1))
    with pytest.raises(CapacityError, match=r"prompt of 159 .* needs 11 KV blocks of 16 .* max_tokens of 2 fits"):
        engine.add(make_sequence(1, prompt=159, max_tokens=3))
    with pytest.raises(CapacityError, match=r"needs 11 KV blocks of 16 tokens, KV group 0 has 10: shorten the prompt"):
        engine.add(make_sequence(2, prompt=161, max_tokens=1))
    with pytest.raises(CapacityError, match="needs 32 KV blocks"):
        engine.add(make_sequence(3, prompt=500, max_tokens=1))
    for number in range(10, 15):
        engine.add(make_sequence(number, prompt=3, max_tokens=2))
    assert engine.run_until_idle() < 20
    assert len(engine.finished) == 8


def test_a_window_group_needs_its_window_only_however_long_the_prompt() -> None:
    engine = make_engine(num_blocks=(100, 5), block_size=4, windows=(None, 8), max_chunk_tokens=4)
    sequence = engine.add(make_sequence(1, prompt=200, max_tokens=5))
    engine.run_until_idle()
    assert sequence.output_token_ids == answer_of(sequence)


@pytest.mark.parametrize(("num_prompt", "fix"), [(60, "max_tokens of 4 fits"), (64, "shorten the prompt")])
def test_a_request_beyond_the_context_is_refused_with_the_arithmetic(num_prompt: int, fix: str) -> None:
    """Known bug Q11: shifting the context repeated for ever. Nothing is shifted here."""
    engine = make_engine(num_blocks=40, context_length=64)
    total = num_prompt + 20
    with pytest.raises(CapacityError, match=f"{num_prompt} tokens \\+ max_tokens 20 = {total}, .* holds 64: {fix}"):
        engine.add(make_sequence(1, prompt=num_prompt, max_tokens=20))
    engine.add(make_sequence(2, prompt=60, max_tokens=4))
    engine.run_until_idle()
    second = engine.add(make_sequence(3, prompt=60, max_tokens=4))
    engine.run_until_idle()
    assert second.output_token_ids == answer_of(second)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(PromptError, match="0 tokens"):
        make_engine().add(make_sequence(1, prompt=0))


@pytest.mark.parametrize("max_preemptions", [0, 2])
def test_every_step_makes_progress_when_memory_is_short(max_preemptions: int) -> None:
    """Known bug Q3: preempted requests preempted everyone again and again, throughput fell to 0."""
    engine = make_engine(num_blocks=10, block_size=4, max_rows=6, max_preemptions=max_preemptions)
    for number in range(6):
        engine.add(make_sequence(number, prompt=4, max_tokens=13))
    tokens: list[int] = []
    while engine.scheduler.has_work and len(tokens) < 2_000:
        plan = engine.step()
        assert plan is not None
        tokens.append(sum(row.needs_logits for row in plan.rows))
    assert all(tokens[at : at + 5] != [0] * 5 for at in range(len(tokens) - 5))
    assert len(engine.finished) == 6
    for sequence in engine.finished.values():
        assert sequence.num_preemptions <= max_preemptions
        assert sequence.output_token_ids == answer_of(sequence)


def test_a_patient_class_is_not_starved_by_a_stream_of_urgent_ones() -> None:
    """Known bug Q4: the wait of class 5 is at most 5 times the ageing and what was ahead of it then."""
    engine = make_engine(num_blocks=8, block_size=4, max_rows=2, priority_ageing_s=0.1)
    patient = engine.add(make_sequence(0, prompt=6, max_tokens=4, arrival_s=0.0, priority=5))
    for number in range(1, 400):
        engine.add(make_sequence(number, prompt=5, max_tokens=3, arrival_s=engine.now_s))
        engine.step()
        engine.step()
        if patient.is_finished:
            break
    assert patient.is_finished
    assert patient.output_token_ids == answer_of(patient)
    recomputed = engine.scheduler.num_recomputed_tokens
    assert recomputed < 0.3 * sum(plan.num_tokens for plan in engine.plans)


@pytest.mark.parametrize("state", ["waiting", "mid-prefill", "running", "preempted", "in a step"])
def test_an_abort_in_any_state_gives_all_blocks_back(state: str) -> None:
    """Known bug Q6."""
    engine = make_engine(num_blocks=9, block_size=4, max_rows=4, max_chunk_tokens=4)
    for number in range(3):
        engine.add(make_sequence(number, prompt=5, max_tokens=11))
    target = 1
    if state == "mid-prefill":
        engine.step()
        assert 0 < engine.sequences[target].num_computed < 5
    elif state in ("running", "in a step"):
        for _ in range(3):
            engine.step()
    elif state == "preempted":
        run_until_preempted(engine)
        (target,) = [each.sequence_id for each in engine.scheduler.waiting]
    if state == "in a step":
        plan = engine.plan()
        assert plan is not None
        tokens = engine.run(plan)
        assert engine.abort(target) is not None
        engine.commit(StepResult(plan, tokens))
    else:
        assert engine.abort(target) is not None
    assert engine.finished[target].finish_reason is FinishReason.CANCELLED
    assert engine.abort(target) is None
    plan = engine.step()
    assert plan is not None
    assert target not in [row.sequence_id for row in plan.rows], "an abort takes effect within one step"
    engine.run_until_idle()
    assert engine.cache.counts().held == 0
    for number in {0, 1, 2} - {target}:
        assert engine.finished[number].output_token_ids == answer_of(engine.finished[number])


def test_a_thousand_aborts_leave_no_trace() -> None:
    """Known bug Q6: memory stays as it was."""
    engine = make_engine(num_blocks=8, block_size=4, max_rows=4)
    scheduler = engine.scheduler
    for number in range(1_000):
        scheduler.add(make_sequence(number, prompt=5))
        if number % 3:
            plan = scheduler.plan(0.0)
            assert plan is not None
        scheduler.abort(number)
    assert not scheduler.has_work
    assert not scheduler._admission._promises
    assert not scheduler._unstarted
    assert not scheduler._cache._tenures
    assert engine.cache.counts().free == 8


@pytest.mark.parametrize("num_prompt", [1, 15, 16, 17, 31, 32, 33, 100])
def test_the_same_prompt_again_and_again_gives_the_same_answer(num_prompt: int) -> None:
    """Known bugs Q9 and Q10: a hit gave a worse answer, or none when the whole prompt was found."""
    engine = make_engine(num_blocks=40, block_size=16, max_rows=4)
    for number in range(3):
        engine.add(make_sequence(number, prompt=range(num_prompt), max_tokens=9))
        if number:
            engine.run_until_idle()  # the second finds the first still generating
        else:
            engine.step()
    engine.add(make_sequence(3, prompt=range(max(num_prompt - 5, 1)), max_tokens=3))
    engine.add(make_sequence(4, prompt=[*range(num_prompt), 7, 7], max_tokens=3))
    engine.run_until_idle()
    for sequence in engine.finished.values():
        assert sequence.output_token_ids == answer_of(sequence)
        assert sequence.num_cached <= sequence.num_prompt_tokens - 1
    assert engine.sequences[2].num_cached == (num_prompt - 1) // 16 * 16


def test_a_row_that_cannot_be_sampled_ends_alone() -> None:
    """Known bug Q13: one request raising inside the batch ended the loop for all."""
    engine = make_engine(num_blocks=20, max_rows=4)
    for number in range(4):
        engine.add(make_sequence(number))
    engine.step()
    plan = engine.plan()
    assert plan is not None
    tokens = [
        SampledToken(token.sequence_id, 0, error="no") if token.sequence_id == 2 else token
        for token in engine.run(plan)
    ]
    engine.commit(StepResult(plan, tuple(tokens)))
    assert engine.finished[2].finish_reason is FinishReason.ERROR
    assert engine.finished[2].num_output_tokens == 1
    engine.run_until_idle()
    for number in (0, 1, 3):
        assert engine.finished[number].output_token_ids == answer_of(engine.finished[number])


def test_the_content_of_a_failed_step_is_never_reused() -> None:
    engine = make_engine(num_blocks=20, max_rows=4, max_chunk_tokens=4)
    engine.add(make_sequence(1, prompt=range(9)))
    plan = engine.plan()
    assert plan is not None
    engine.commit(StepResult(plan, tuple(SampledToken(row.sequence_id, 0, error="kernel") for row in plan.rows)))
    engine.add(make_sequence(2, prompt=range(9)))
    assert shape(engine.step()) == [(2, 0, 4)]


def test_a_step_that_was_never_committed_is_planned_again() -> None:
    engine = make_engine()
    engine.add(make_sequence(1))
    first, second = engine.plan(), engine.plan()
    assert shape(first) == shape(second)
    engine.run_until_idle()
    assert engine.finished[1].output_token_ids == answer_of(engine.finished[1])


def test_an_arrival_during_a_step_is_seen_by_the_next_plan() -> None:
    engine = make_engine(num_blocks=20, max_rows=4)
    engine.add(make_sequence(1, max_tokens=9))
    engine.step()
    plan = engine.plan()
    assert plan is not None
    assert plan.hold > 1
    engine.add(make_sequence(2))
    engine.commit(StepResult(plan, engine.run(plan)))
    assert shape(engine.step()) == [(1, 5, 1), (2, 0, 4)]


# Purity


def test_schedulers_in_equal_state_give_equal_plans() -> None:
    engine = crowded(step_cost=make_step_cost())
    for _ in range(40):
        twin = copy.deepcopy(engine.scheduler)
        expected = twin.plan(engine.now_s)
        assert engine.step() == expected
