"""Any order of arrivals, ends, failures and aborts: hypothesis looks for the one that breaks an invariant."""

from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.builders_schedule import ScriptedEngine, answer_of, make_scheduler, make_sequence, make_step_cost
from tests.examples import examples
from twostroke.core.sequence import FinishReason, SequenceStatus
from twostroke.core.step import SampledToken, StepPlan, StepResult
from twostroke.errors import CapacityError

HEADS = ([1, 2, 3, 4, 5, 6], [1, 2, 3, 9, 9, 9], [7])


class ScheduleMachine(RuleBasedStateMachine):
    """One engine; rules are what its surroundings can do to it."""

    @initialize(
        num_blocks=st.integers(5, 12),
        windows=st.sampled_from([(None,), (None, 3), (4,)]),
        has_cost=st.booleans(),
        max_rows=st.integers(1, 4),
        max_chunk_tokens=st.integers(1, 8),
        enable_prefix_cache=st.booleans(),
        max_preemptions=st.integers(0, 2),
    )
    def start(self, *, has_cost: bool, **options: Any) -> None:
        cost = make_step_cost(token_s=0.004) if has_cost else None
        scheduler = make_scheduler(
            block_size=2, step_cost=cost, max_step_tokens=8, min_prefill_tokens=2, max_waiting=6, **options
        )
        self.engine = ScriptedEngine(scheduler)
        self.planned: StepPlan | None = None
        self.failed: set[int] = set()

    @rule(
        head=st.sampled_from(HEADS),
        tail=st.lists(st.integers(0, 3), max_size=4),
        max_tokens=st.integers(1, 8),
        priority=st.integers(0, 2),
        stops=st.booleans(),
    )
    def arrive(self, *, head: list[int], tail: list[int], max_tokens: int, priority: int, stops: bool) -> None:
        engine = self.engine
        sequence = make_sequence(
            len(engine.sequences),
            prompt=[*head, *tail],
            max_tokens=max_tokens,
            priority=priority,
            arrival_s=engine.now_s,
            stop_token_ids=range(0, 50, 7) if stops else [],
        )
        before = (engine.scheduler.num_waiting, engine.cache.counts())
        try:
            engine.add(sequence)
        except CapacityError:
            assert (engine.scheduler.num_waiting, engine.cache.counts()) == before

    @rule(pick=st.integers(0, 30))
    def abort(self, *, pick: int) -> None:
        if self.engine.sequences:
            sequence_id = sorted(self.engine.sequences)[pick % len(self.engine.sequences)]
            had_ended = sequence_id in self.engine.finished
            assert (self.engine.abort(sequence_id) is None) == had_ended

    @rule()
    def plan(self) -> None:
        if self.planned is None:
            self.planned = self.engine.plan()
            assert (self.planned is None) == (not self.engine.scheduler.has_work)

    @rule(fails=st.integers(0, 30), stops=st.integers(0, 30))
    def finish_step(self, *, fails: int, stops: int) -> None:
        """Commit what was planned; now and then a row fails or is stopped from outside."""
        if self.planned is None:
            return
        plan, self.planned = self.planned, None
        alive = tuple(row for row in plan.rows if row.sequence_id not in self.engine.finished)
        tokens = list(self.engine.run(StepPlan(plan.step_id, alive, plan.copies)))
        finished = {}
        if fails < len(tokens):
            tokens[fails] = SampledToken(tokens[fails].sequence_id, 0, error="scripted")
            self.failed.add(tokens[fails].sequence_id)
        if stops < len(tokens) and stops != fails:
            finished[tokens[stops].sequence_id] = FinishReason.STOP
        self.engine.commit(StepResult(plan, tuple(tokens), finished))
        self.engine.now_s += 0.01

    @rule()
    def run_some_steps(self) -> None:
        for _ in range(5):
            self.plan()
            self.finish_step(fails=99, stops=99)

    @invariant()
    def books_are_right(self) -> None:
        if hasattr(self, "engine"):
            self.engine.cache.check_integrity()
            scheduler = self.engine.scheduler
            assert scheduler.num_running + scheduler.num_waiting == len(self.engine.sequences) - len(
                self.engine.finished
            )

    @invariant()
    def output_is_a_start_of_the_only_right_answer(self) -> None:
        if hasattr(self, "engine"):
            for sequence_id, sequence in self.engine.sequences.items():
                output = sequence.output_token_ids
                assert output == answer_of(sequence)[: len(output)]
                assert sequence.num_preemptions <= self.engine.scheduler.config.max_preemptions + self.slack
                assert (sequence.status is SequenceStatus.FINISHED) == (sequence_id in self.engine.finished)
                if sequence_id in self.failed and sequence.finish_reason is not FinishReason.CANCELLED:
                    assert sequence.finish_reason is FinishReason.ERROR

    @property
    def slack(self) -> int:
        """Pinned sequences that share blocks of a window may be preempted once more, rather than stand still."""
        return 0 if self.engine.cache.config.windows == (None,) else 1

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.finish_step(fails=99, stops=99)
            self.engine.run_until_idle()
            assert len(self.engine.finished) == len(self.engine.sequences)
            counts = self.engine.cache.counts()
            assert (counts.held, counts.free + counts.cached) == (0, counts.total)


TestScheduleMachine = ScheduleMachine.TestCase
TestScheduleMachine.settings = settings(examples(60), stateful_step_count=40)
