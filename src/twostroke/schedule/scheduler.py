"""Plans steps and applies their outcome. The only writer of a sequence's counters and status.

There is no prefill and no decode in the arithmetic: `num_computed` catches up with `num_tokens`.
`plan` reserves what it plans, `commit` applies the result; admission.py, policy.py, budget.py and
preempt.py only answer. Called by the engine's thread or by a simulator; reads no clock, takes no lock.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence as Seq
from dataclasses import dataclass, field

from twostroke.cache.cache import KVCache
from twostroke.core.phase import Phase
from twostroke.core.sequence import FinishReason, Sequence, SequenceStatus
from twostroke.core.step import BlockCopy, RowPlan, SampledToken, StepPlan, StepResult
from twostroke.core.step_cost import StepCost
from twostroke.errors import QueueFullError
from twostroke.schedule.admission import MEMORY_RAN_OUT, Admission
from twostroke.schedule.budget import Tally, chunk_within
from twostroke.schedule.config import SchedulerConfig
from twostroke.schedule.policy import prefill_order
from twostroke.schedule.preempt import victims
from twostroke.schedule.waiting import WaitingQueue

LAST_CHUNK = 1.125  # of the time of a step without decode may go to one that ends a prompt
NO_DRAFTS: Mapping[int, tuple[int, ...]] = {}


@dataclass(slots=True)
class _Plan:
    """A plan in the making."""

    copies: list[BlockCopy] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)


class Scheduler:
    """Continuous batching over one cache. `step_cost` may be replaced as measurements improve."""

    def __init__(self, cache: KVCache, config: SchedulerConfig, step_cost: StepCost | None = None) -> None:
        self.step_cost = step_cost
        self.config = config
        self._cache = cache
        self._sequences: dict[int, Sequence] = {}
        self._running: dict[int, Sequence] = {}  # in order of admission
        self._waiting = WaitingQueue(ageing_s=config.priority_ageing_s)
        self._admission = Admission(cache, config)
        self._unstarted: set[int] = set()  # admitted for the first time, no row yet: may still find more in the cache
        self._refused: int | None = None  # head of the queue that had no room; asked again when room may have grown
        self._num_steps = 0
        self._publishes = config.enable_prefix_cache
        self._held: StepPlan | None = None  # the plan committed last, if it holds for another step
        self._is_calm = True  # nothing came or ended since the last plan
        self.num_preemptions = 0
        self.num_recomputed_tokens = 0

    # What is there

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        return bool(self._sequences)

    @property
    def running(self) -> tuple[Sequence, ...]:
        return tuple(self._running.values())

    @property
    def waiting(self) -> tuple[Sequence, ...]:
        return tuple(self._waiting.sequences)

    # Arrivals and ends

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Raises CapacityError where it could never run, QueueFullError for now; nothing changed."""
        assert sequence.sequence_id not in self._sequences, f"sequence {sequence.sequence_id} is here already"
        self._admission.check_fit(sequence)
        if len(self._waiting) >= self.config.max_waiting:
            raise QueueFullError(
                f"{len(self._waiting)} requests wait, the limit is {self.config.max_waiting}: try again later"
            )
        self._cache.open(sequence.sequence_id, salt=sequence.request.salt)
        self._sequences[sequence.sequence_id] = sequence
        self._waiting.push(sequence)
        self._is_calm = False

    def abort(self, sequence_id: int, *, reason: FinishReason = FinishReason.CANCELLED) -> Sequence | None:
        """End a sequence now, in whatever state; None if it has ended already.

        Between plan and commit too: its row's outcome is ignored, and its blocks go to nobody before
        the next plan.
        """
        sequence = self._sequences.get(sequence_id)
        if sequence is not None:
            self._finish(sequence, reason)
        return sequence

    # One step

    def plan(self, now_s: float, drafts: Mapping[int, tuple[int, ...]] = NO_DRAFTS) -> StepPlan | None:
        """Decide the next step and reserve its blocks. None when there is nothing to do.

        `drafts` are guesses for decoding sequences, to be verified with their next token; of each as many are taken
        as fit the step, the memory and the answer's length.
        """
        if not self._sequences:
            return None
        made = _Plan()
        self._secure_decodes(made)
        held, self._held = self._held, None
        is_calm, self._is_calm = self._is_calm, True
        if held is not None and is_calm and not made.preempted and not drafts:
            return self._repeat(held, num_steps=1, copies=made.copies)
        if self._admit(made):
            self._secure_decodes(made)  # who comes back from preemption may decode at once
        decodes = self._decode_rows(drafts, made)
        prefills = self._prefill_rows(decodes, made, now_s)
        while not decodes and not prefills and len(self._running) > 1:
            self._give_way(made)
            prefills = self._prefill_rows(decodes, made, now_s)
        rows = (*decodes, *prefills)
        assert rows, f"no progress: {self.num_running} running, {self.num_waiting} waiting, {self._cache.counts()}"
        self._num_steps += 1
        return StepPlan(
            step_id=self._num_steps,
            rows=rows,
            copies=tuple(made.copies),
            preempted=tuple(made.preempted),
            hold=1 if prefills or drafts else self._hold(),
        )

    def commit(self, result: StepResult) -> list[Sequence]:
        """Apply the outcome of the step planned last; returns the sequences that ended with it."""
        assert result.plan.step_id == self._num_steps, f"step {result.plan.step_id} is not the last, {self._num_steps}"
        tokens: dict[int, list[SampledToken]] = {}
        for token in result.tokens:
            tokens.setdefault(token.sequence_id, []).append(token)
        forks: dict[int, list[Sequence]] = {}
        for parent_id, child in result.forks:
            forks.setdefault(parent_id, []).append(child)
        ended = []
        self._held = result.plan if result.plan.hold > 1 else None
        for row in result.plan.rows:
            sequence = self._sequences.get(row.sequence_id)
            if sequence is None:
                continue  # aborted while the step ran
            reason = result.finished.get(row.sequence_id)
            grown = tokens.get(row.sequence_id, ())
            if any(token.error is not None for token in grown):
                reason = FinishReason.ERROR
            if reason is not FinishReason.ERROR:  # content of a failed row is never published
                self._advance(sequence, row, [token.token_id for token in grown])
                for child in forks.get(row.sequence_id, ()):
                    self._fork(sequence, child)
                if reason is None and grown:
                    reason = self._end_of(sequence, grown[-1].token_id)
                has_use = reason is not None or sequence.num_missing or row.sequence_id in result.finished
                assert has_use, f"sequence {row.sequence_id} got no token"
            if reason is not None:
                self._finish(sequence, reason)
                ended.append(sequence)
        for sequence_id, reason in result.finished.items():
            sequence = self._sequences.get(sequence_id)
            if sequence is not None:
                self._finish(sequence, reason)
                ended.append(sequence)
        return ended

    def skip(self, plan: StepPlan, token_ids: Mapping[int, Seq[int]]) -> StepPlan:
        """Live through `plan` n times in one go, n < hold; returns the plan of the step after, to be committed.

        `token_ids` brings every row its n tokens, none of which may end a sequence. Equal to n plans and
        commits but for the ids of the blocks.
        """
        num_steps = len(token_ids[plan.rows[0].sequence_id])
        assert 1 <= num_steps < plan.hold, f"{num_steps} steps to skip, the plan holds for {plan.hold}"
        for row in plan.rows:
            sequence, new = self._sequences[row.sequence_id], token_ids[row.sequence_id]
            assert len(new) == num_steps, f"sequence {row.sequence_id} brings {len(new)} tokens for {num_steps} steps"
            end = row.start_pos + num_steps
            copies = self._cache.try_reserve(row.sequence_id, end=end + 1)
            assert copies == (), f"sequence {row.sequence_id} does not fit at {end + 1} tokens"
            sequence.token_ids += new
            sequence.num_computed = end
            self._cache.commit(row.sequence_id, sequence.token_ids, num_computed=end, publish=self._publishes)
        return self._repeat(plan, num_steps=num_steps, copies=())

    def _repeat(self, plan: StepPlan, *, num_steps: int, copies: Iterable[BlockCopy]) -> StepPlan:
        """The same rows `num_steps` tokens further on."""
        self._num_steps += num_steps
        decode = Phase.DECODE
        rows = [RowPlan(row[0], row[1] + num_steps, 1, decode, True, False) for row in plan.rows]
        return StepPlan(self._num_steps, tuple(rows), tuple(copies), hold=plan.hold - num_steps)

    def _advance(self, sequence: Sequence, row: RowPlan, token_ids: list[int]) -> None:
        num_refused = len(row.draft_token_ids) - len(token_ids) + 1 if row.draft_token_ids else 0
        end = row.start_pos + row.num_tokens - num_refused
        if row.is_recompute:
            self.num_recomputed_tokens += min(end, sequence.num_recompute_until) - row.start_pos
        sequence.num_scored += row.num_scored
        sequence.num_computed = end
        sequence.token_ids += token_ids
        self._cache.commit(row.sequence_id, sequence.token_ids, num_computed=end, publish=self._publishes)
        if num_refused:
            self._cache.trim(row.sequence_id, end)

    def _fork(self, parent: Sequence, child: Sequence) -> None:
        """The child runs from now on; what the parent computed it shares, the token after that is its own."""
        self._cache.fork(parent.sequence_id, child_id=child.sequence_id)
        child.num_computed, child.num_cached = parent.num_computed, parent.num_cached
        child.status = SequenceStatus.RUNNING
        self._sequences[child.sequence_id] = self._running[child.sequence_id] = child
        self._admission.join(child)
        self._is_calm = False

    def _end_of(self, sequence: Sequence, token_id: int) -> FinishReason | None:
        if token_id in sequence.request.stop_token_ids:
            return FinishReason.STOP
        if sequence.num_output_tokens >= sequence.request.params.max_tokens:
            return FinishReason.LENGTH
        return None

    def _finish(self, sequence: Sequence, reason: FinishReason | None) -> None:
        sequence_id = sequence.sequence_id
        if sequence.status is SequenceStatus.RUNNING:
            self._leave_running(sequence_id)
        else:
            self._waiting.remove(sequence)
        del self._sequences[sequence_id]
        self._cache.free(sequence_id)
        sequence.status = SequenceStatus.FINISHED
        sequence.finish_reason = reason
        if reason in (FinishReason.STOP, FinishReason.LENGTH) and sequence.request.params.max_tokens:
            self._admission.learn_length(sequence.num_output_tokens / sequence.request.params.max_tokens)
        self._refused = None
        self._is_calm = False

    def _leave_running(self, sequence_id: int) -> None:
        self._admission.release(self._running.pop(sequence_id))
        self._unstarted.discard(sequence_id)

    # Rows

    def _decode_rows(self, drafts: Mapping[int, tuple[int, ...]], made: _Plan) -> list[RowPlan]:
        decode = Phase.DECODE
        rows = [
            RowPlan(sequence_id, sequence.num_computed, 1, decode, True, False)
            for sequence_id, sequence in self._running.items()
            if _decodes(sequence)
        ]
        if not drafts:
            return rows
        room = self.config.max_step_tokens - len(self._running)
        for index, row in enumerate(rows):
            guess = self._guess_for(row.sequence_id, drafts.get(row.sequence_id, ())[:room], made)
            room -= len(guess)
            rows[index] = row._replace(num_tokens=1 + len(guess), draft_token_ids=guess)
        return rows

    def _guess_for(self, sequence_id: int, guess: tuple[int, ...], made: _Plan) -> tuple[int, ...]:
        """As much of a draft as the answer may still grow by, if blocks for it are free; nobody gives way for it."""
        sequence = self._running[sequence_id]
        guess = guess[: max(sequence.request.params.max_tokens - sequence.num_output_tokens - 1, 0)]
        if not guess:
            return ()
        copies = self._cache.try_reserve(sequence_id, end=sequence.num_tokens + len(guess))
        if copies is None:
            return ()
        made.copies += copies
        return guess

    def _prefill_rows(self, decodes: list[RowPlan], made: _Plan, now_s: float) -> list[RowPlan]:
        """Chunks in what the decodes leave of the step, in tokens and in milliseconds."""
        if len(decodes) == len(self._running):
            return []
        config, rows = self.config, []
        tally = None if self.step_cost is None else Tally.of(self.step_cost, decodes)
        limit_s = tally.seconds + config.max_decode_stall_s if tally is not None and decodes else config.max_step_s
        num_left = config.max_step_tokens - sum(row.num_tokens for row in decodes)
        num_owed, num_scorable = config.min_prefill_tokens, config.max_scored_tokens
        missing = [sequence for sequence in self._running.values() if not _decodes(sequence)]
        for sequence in prefill_order(missing, now_s=now_s, ageing_tokens_per_s=config.prefill_ageing_tokens_per_s):
            self._look_again(sequence)
            start_pos, num_missing = sequence.num_computed, sequence.num_missing
            is_scored = sequence.num_unscored > 0
            if is_scored and not num_scorable:
                continue
            most = num_tokens = min(
                num_missing, config.max_chunk_tokens, num_left, num_scorable if is_scored else num_missing
            )
            if tally is not None:
                within = chunk_within(
                    tally,
                    start_pos=start_pos,
                    num_missing=num_missing,
                    most=most,
                    limit_s=limit_s,
                    is_scored=is_scored,
                    whole_limit_s=0.0 if decodes else limit_s * LAST_CHUNK,
                )
                num_tokens = max(within, min(most, num_owed))
            if num_tokens <= 0:
                break
            if self._has_blocks(sequence, start_pos + num_tokens, made):
                rows.append(row := self._prefill_row(sequence, num_tokens))
                num_left, num_owed = num_left - num_tokens, num_owed - num_tokens
                num_scorable -= row.num_scored
                if tally is not None:
                    tally = tally.plus(start_pos=start_pos, num_tokens=num_tokens, num_logits=row.num_logits)
        return rows

    def _prefill_row(self, sequence: Sequence, num_tokens: int) -> RowPlan:
        start_pos = sequence.num_computed
        if sequence.sequence_id in self._unstarted:
            self._unstarted.discard(sequence.sequence_id)
            self._cache.record_lookup(num_queries=sequence.num_prompt_tokens, num_hits=sequence.num_cached)
        return RowPlan(
            sequence.sequence_id,
            start_pos,
            num_tokens,
            Phase.PREFILL,
            needs_logits=num_tokens == sequence.num_missing,
            is_recompute=start_pos < sequence.num_recompute_until,
            num_scored=sequence.num_scored_until(start_pos + num_tokens),
        )

    def _look_again(self, sequence: Sequence) -> None:
        """Before its first row a sequence takes what others have published since it was admitted."""
        if sequence.sequence_id in self._unstarted and self._adopt_prefix(sequence):
            self._refused = None

    def _adopt_prefix(self, sequence: Sequence) -> bool:
        if not self.config.enable_prefix_cache or sequence.num_unscored:  # what is found has no logits
            return False
        hit = self._cache.probe(sequence.sequence_id, sequence.token_ids)
        if hit.num_tokens <= sequence.num_computed:
            return False
        self._cache.adopt(sequence.sequence_id, hit)
        sequence.num_computed = hit.num_tokens
        if sequence.num_preemptions == 0:
            sequence.num_cached = hit.num_tokens
        return True

    def _hold(self) -> int:
        """Steps until a decoding sequence reaches its length or blocks could run out; stop ids may end it earlier."""
        if len(self._waiting) and self._refused != self._waiting.first.sequence_id:
            return 1
        if self._admission.has_forked_group:  # forks may come with any step, and shared blocks are copied
            return 1
        steps = min(
            sequence.request.params.max_tokens - sequence.num_output_tokens for sequence in self._running.values()
        )
        num_blocks_each = min(self._cache.num_available) // len(self._running)
        return max(1, min(steps, num_blocks_each * self._cache.config.block_size))

    # Admission

    def _admit(self, made: _Plan) -> int:
        """First come first served, nobody passes the head of the queue; returns how many started."""
        num_started = 0
        while len(self._waiting):
            head = self._waiting.first
            if head.sequence_id == self._refused or head.sequence_id in made.preempted:
                break
            if not self._clear_way(head, made):
                self._refused = head.sequence_id
                break
            self._start(head)
            num_started += 1
        return num_started

    def _start(self, sequence: Sequence) -> None:
        self._waiting.remove(sequence)
        self._adopt_prefix(sequence)
        sequence.status = SequenceStatus.RUNNING
        self._running[sequence.sequence_id] = sequence
        self._admission.promise(sequence)
        if sequence.num_preemptions == 0:
            self._unstarted.add(sequence.sequence_id)

    def _clear_way(self, head: Sequence, made: _Plan) -> bool:
        """Make room for the head if less urgent work can give it; True when it can start."""
        displaced = self._admission.displaced_by(head, running=self.running, waiting=self.waiting)
        if displaced is None:
            return not self._running and self._clear_everything()
        for rival in displaced:
            self._preempt(rival, made)
        return self._take_tails(lambda: self._admission.has_room(head))

    def _clear_everything(self) -> bool:
        """Nothing runs, so whatever is held is held by the queue: let go of it all. Then anything added fits."""
        for sequence in self._waiting.sequences:
            sequence.num_computed = self._cache.drop_tail(sequence.sequence_id, 0)
        return True

    # Blocks

    def _secure_decodes(self, made: _Plan) -> None:
        """Every decoding sequence gets its next slot, or somebody gives way."""
        can_write = self._cache.can_write
        lacking = [
            sequence
            for sequence_id, sequence in self._running.items()
            if not can_write(sequence_id, len(sequence.token_ids)) and _decodes(sequence)
        ]
        for sequence in lacking:
            while sequence.status is SequenceStatus.RUNNING and not self._has_blocks(
                sequence, sequence.num_tokens, made
            ):
                self._give_way(made)

    def _give_way(self, made: _Plan) -> None:
        """Memory ran out: one sequence goes back to the queue.

        A pinned one only when all are, beams only when nothing else runs. These can run short only where they
        share blocks of a window with others: leaving a shared block behind frees nothing.
        """
        running, group_of = self._running.values(), self._admission.group_of
        alone = [sequence for sequence in running if len(group_of(sequence)) == 1]
        able = victims(alone, max_preemptions=self.config.max_preemptions)
        able = able or victims(alone, max_preemptions=None) or victims(running, max_preemptions=None)
        self._preempt(able[0], made)
        self._admission.learn_length(MEMORY_RAN_OUT)

    def _preempt(self, sequence: Sequence, made: _Plan) -> None:
        """Back to the queue with all it holds; its tail is taken when someone needs it."""
        if len(self._admission.group_of(sequence)) > 1:
            self._restart(sequence)
        self._leave_running(sequence.sequence_id)
        sequence.status = SequenceStatus.PREEMPTED
        sequence.num_preemptions += 1
        sequence.num_recompute_until = max(sequence.num_recompute_until, sequence.num_computed)
        self._waiting.push(sequence)
        self.num_preemptions += 1
        made.preempted.append(sequence.sequence_id)
        self._refused = None

    def _restart(self, sequence: Sequence) -> None:
        """Beams grow in step and could not come back one by one: their search begins anew, in this sequence."""
        for sibling_id in tuple(self._admission.group_of(sequence)):
            if sibling_id != sequence.sequence_id:
                self._finish(self._sequences[sibling_id], None)
        sequence.num_recompute_until = sequence.num_computed
        self._cache.drop_tail(sequence.sequence_id, 0)
        self._cache.trim(sequence.sequence_id, sequence.num_prompt_tokens)
        del sequence.token_ids[sequence.num_prompt_tokens :]
        sequence.num_computed = 0

    def _has_blocks(self, sequence: Sequence, end: int, made: _Plan) -> bool:
        """Reserve up to `end`, with tails of preempted sequences if need be."""

        def reserve() -> bool:
            copies = self._cache.try_reserve(sequence.sequence_id, end=end)
            if copies is not None:
                made.copies += copies
            return copies is not None

        return self._cache.can_write(sequence.sequence_id, end) or self._take_tails(reserve)

    def _take_tails(self, enough: Callable[[], bool]) -> bool:
        """Take tails of preempted sequences, last of the queue first, block by block until `enough`."""
        if enough():
            return True
        for sequence in reversed(self._waiting.sequences):
            while num_entries := self._cache.num_entries(sequence.sequence_id):
                sequence.num_computed = self._cache.drop_tail(sequence.sequence_id, num_entries - 1)
                if enough():
                    return True
        return False


def _decodes(sequence: Sequence) -> bool:
    """Only the newest verified token is missing; `phase_of` says the same of the row."""
    num_computed = sequence.num_computed
    return num_computed >= sequence.num_prompt_tokens and len(sequence.token_ids) - num_computed == 1
