"""Builders for cache and scheduler: tiny numbers, and an engine that needs no model."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

from tests.builders_cost import make_cost
from twostroke.cache.cache import KVCache
from twostroke.cache.config import CacheConfig
from twostroke.core.request import Request
from twostroke.core.sequence import FinishReason, Sequence
from twostroke.core.step import SampledToken, StepPlan, StepResult
from twostroke.core.step_cost import StepCost
from twostroke.params import SamplingParams
from twostroke.schedule.config import SchedulerConfig
from twostroke.schedule.scheduler import Scheduler

VOCAB_SIZE = 50
Slot = tuple[int, int, int]  # group, block, offset


def make_cache(
    *, num_blocks: int | tuple[int, ...] = 4, block_size: int = 4, windows: tuple[int | None, ...] = (None,)
) -> KVCache:
    """A cache of one full group unless told otherwise."""
    if isinstance(num_blocks, int):
        num_blocks = (num_blocks,) * len(windows)
    return KVCache(CacheConfig(block_size=block_size, num_blocks=num_blocks, windows=windows))


def make_scheduler(
    *,
    num_blocks: int | tuple[int, ...] = 4,
    block_size: int = 4,
    windows: tuple[int | None, ...] = (None,),
    step_cost: StepCost | None = None,
    **config: object,
) -> Scheduler:
    """A scheduler with its own cache; `config` are fields of SchedulerConfig."""
    cache = make_cache(num_blocks=num_blocks, block_size=block_size, windows=windows)
    return Scheduler(cache, SchedulerConfig(**config), step_cost)  # type: ignore[arg-type]


def make_step_cost(
    *, decode_s: float = 0.010, token_s: float = 0.001, position_s: float = 0.0, pair_s: float = 0.0
) -> StepCost:
    """Linear: a step costs `decode_s` plus `token_s` for every token."""
    return make_cost(base_s=decode_s, token_s=token_s, position_s=position_s, pair_s=pair_s)


def make_sequence(
    sequence_id: int,
    *,
    prompt: int | Iterable[int] = 4,
    max_tokens: int = 4,
    arrival_s: float | None = None,
    priority: int = 0,
    salt: str = "",
    stop_token_ids: Iterable[int] = (),
) -> Sequence:
    """A sequence that arrives at second `sequence_id`; a prompt given as a length is unlike any other's."""
    if isinstance(prompt, int):
        prompt = [1000 * (sequence_id + 1) + position for position in range(prompt)]
    request = Request(
        request_id=f"r{sequence_id}",
        prompt_token_ids=tuple(prompt),
        params=SamplingParams(max_tokens=max_tokens),
        arrival_s=float(sequence_id) if arrival_s is None else arrival_s,
        seed=0,
        stop_token_ids=frozenset(stop_token_ids),
        priority=priority,
        salt=salt,
    )
    return Sequence.from_request(request, sequence_id=sequence_id)


def next_token(token_ids: Iterable[int]) -> int:
    """What the scripted model says after these tokens."""
    return sha256(repr(list(token_ids)).encode()).digest()[0] % VOCAB_SIZE


def answer_of(sequence: Sequence) -> list[int]:
    """The only right answer, whatever the schedule."""
    token_ids = list(sequence.request.prompt_token_ids)
    answer: list[int] = []
    while len(answer) < sequence.request.params.max_tokens:
        answer.append(next_token(token_ids))
        token_ids.append(answer[-1])
        if answer[-1] in sequence.request.stop_token_ids:
            break
    return answer


@dataclass
class ScriptedEngine:
    """Runs plans with a model that is a hash, and with KV memory that remembers who wrote what where.

    Every slot stores the whole prefix it was computed from; a row reads all it can see and fails when
    one slot is not what the sequence wrote, or what an equal prefix would have written.
    """

    scheduler: Scheduler
    now_s: float = 0.0
    slots: dict[Slot, tuple[int, ...]] = field(default_factory=dict)
    finished: dict[int, Sequence] = field(default_factory=dict)
    sequences: dict[int, Sequence] = field(default_factory=dict)
    plans: list[StepPlan] = field(default_factory=list)

    @property
    def cache(self) -> KVCache:
        return self.scheduler._cache

    def add(self, sequence: Sequence) -> Sequence:
        self.scheduler.add(sequence)
        self.sequences[sequence.sequence_id] = sequence
        return sequence

    def step(self, *, step_s: float | None = None) -> StepPlan | None:
        """plan, run, commit, check; None when there was nothing to do. Takes the time StepCost says, or 10 ms."""
        plan = self.plan()
        if plan is None:
            return None
        self.commit(StepResult(plan, self.run(plan)))
        cost = self.scheduler.step_cost
        if step_s is None:
            step_s = 0.01 if cost is None else cost.seconds(plan.rows)
        self.now_s += step_s
        return plan

    def plan(self) -> StepPlan | None:
        plan = self.scheduler.plan(self.now_s)
        if plan is not None:
            self.check_plan(plan)
            self.cache.check_integrity()
            self.plans.append(plan)
        return plan

    def commit(self, result: StepResult) -> None:
        for sequence in self.scheduler.commit(result):
            self.end(sequence)
        self.cache.check_integrity()

    def abort(self, sequence_id: int) -> Sequence | None:
        sequence = self.scheduler.abort(sequence_id)
        if sequence is not None:
            self.end(sequence)
        self.cache.check_integrity()
        return sequence

    def end(self, sequence: Sequence) -> None:
        assert sequence.is_finished
        assert sequence.sequence_id not in self.finished, "ended twice"
        self.finished[sequence.sequence_id] = sequence

    def run_until_idle(self, *, max_steps: int = 2_000) -> int:
        """Steps until nothing is left; fails when that takes more than `max_steps`."""
        for num_steps in range(max_steps):
            if self.step() is None:
                return num_steps
        raise AssertionError(f"not idle after {max_steps} steps")

    def run(self, plan: StepPlan) -> tuple[SampledToken, ...]:
        block_size = self.cache.config.block_size
        for copy in plan.copies:
            for offset in range(block_size):
                source = self.slots.get((copy.group, copy.source, offset))
                if source is not None:
                    self.slots[copy.group, copy.target, offset] = source
        written: set[Slot] = set()
        tokens = []
        for row in plan.rows:
            token_ids = self.sequences[row.sequence_id].token_ids
            for group in range(self.cache.num_groups):
                table = self.cache.table(row.sequence_id, group)
                for position in range(row.start_pos, row.start_pos + row.num_tokens):
                    slot = (group, table[position // block_size], position % block_size)
                    assert slot[1] >= 0, f"row {row} writes into a blank entry"
                    assert slot not in written, f"slot {slot} written twice in a step"
                    assert self.cache._pools[group].count(slot[1]) == 1, f"row {row} writes into a shared block"
                    written.add(slot)
                    self.slots[slot] = tuple(token_ids[: position + 1])
            if row.needs_logits:
                tokens.append(SampledToken(row.sequence_id, next_token(token_ids)))
        for row in plan.rows:
            self.read(row.sequence_id, start_pos=row.start_pos, end=row.start_pos + row.num_tokens)
        return tuple(tokens)

    def read(self, sequence_id: int, *, start_pos: int, end: int) -> None:
        """What attention would read for queries from `start_pos` on."""
        block_size, token_ids = self.cache.config.block_size, self.sequences[sequence_id].token_ids
        for group, window in enumerate(self.cache.config.windows):
            table = self.cache.table_array(sequence_id, group)
            first = 0 if window is None else max(start_pos - window + 1, 0)
            for position in range(first, end):
                block = int(table[position // block_size])
                stored = self.slots.get((group, block, position % block_size))
                assert stored == tuple(token_ids[: position + 1]), (
                    f"sequence {sequence_id} reads foreign content at {position} of group {group}, block {block}"
                )

    def check_plan(self, plan: StepPlan) -> None:
        """What must hold of every plan."""
        config = self.scheduler.config
        ids = [row.sequence_id for row in plan.rows]
        assert ids, "no row"
        assert len(ids) == len(set(ids)), "a sequence twice"
        assert not set(plan.preempted) & set(ids), "a row for who was preempted"
        assert len(ids) <= config.max_rows
        assert self.scheduler.num_running <= config.max_rows
        assert plan.num_tokens <= config.max_step_tokens
        phases = [row.phase.value for row in plan.rows]
        assert phases == sorted(phases), "decode goes first"
        for row in plan.rows:
            sequence = self.sequences[row.sequence_id]
            assert row.start_pos == sequence.num_computed
            assert 1 <= row.num_tokens <= sequence.num_missing
            assert row.needs_logits == (row.num_tokens == sequence.num_missing)
            assert row.num_tokens <= config.max_chunk_tokens

    def end_reasons(self) -> dict[int, FinishReason | None]:
        return {sequence_id: sequence.finish_reason for sequence_id, sequence in self.finished.items()}
