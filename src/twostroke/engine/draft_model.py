"""A second model of the same vocabulary that guesses tokens: it reads along, several sequences in one step.

It has KV blocks of its own, kept in step with what was accepted: a refused guess is overwritten. A guess is the token
it would draw itself, with the noise and the wishes of that position; a grammar it does not ask. It never decides how
many guesses are worth their time or which are right. Called by the speculation, on the engine's thread.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence as Seq
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from twostroke._native import Candidates
from twostroke.cache.cache import KVCache
from twostroke.core.clock import Clock
from twostroke.core.event import NoDraft
from twostroke.core.phase import Phase
from twostroke.core.request import Request
from twostroke.core.sequence import Sequence
from twostroke.core.step import RowPlan, StepPlan
from twostroke.core.step_cost import StepCost
from twostroke.engine.bind import Binder, Text
from twostroke.engine.cost_fit import StepCostFit
from twostroke.engine.kv_store import KVSize
from twostroke.errors import KernelError
from twostroke.program.reader import Reader
from twostroke.sample.sampler import Sampler, SamplingRow, SamplingState
from twostroke.schedule.budget import Tally, chunk_within

logger = logging.getLogger("twostroke")

READING_S = 0.020  # a long text is read in chunks of this time: nobody's next token waits longer for it
MIN_CHUNK = 16  # tokens that are read whatever they take, of all long texts together
WARM_CHUNK, WARM_STEPS = 16, 8  # steps at load whose times stand in for a dyno's
WARM_ID = -1  # sequence id of the text that they read


@dataclass(frozen=True, slots=True)
class _Text:
    """Tokens to read, nobody's."""

    token_ids: list[int]


@dataclass(slots=True)
class _Follower:
    """What it knows of one sequence: its tokens and, behind them, guesses."""

    request: Request  # without its wish for reports
    token_ids: list[int]
    num_computed: int
    num_sure: int  # tokens that were no guesses when last compared
    sampling: SamplingState
    num_told: int = 0  # tokens of the answer, guesses included, that `sampling` knows

    @property
    def num_unread(self) -> int:
        return len(self.token_ids) - self.num_computed


@dataclass(slots=True, kw_only=True)
class ModelDrafter:
    """Implements core.strategy.DraftModel."""

    reader: Reader
    cache: KVCache
    binder: Binder
    sampler: Sampler  # the model's own: the vocabulary is the same
    clock: Clock
    fit: StepCostFit
    kv_size: KVSize
    max_step_tokens: int
    candidates_from: int | None = None  # see Engine
    total_s: float = 0.0
    _followers: dict[int, _Follower] = field(default_factory=dict)
    _full: set[int] = field(default_factory=set)  # sequences for which the store had no room
    _has_failed: bool = False

    def cost(self) -> StepCost:
        """See core.strategy.DraftModel."""
        return self.fit.cost()

    def why_not(self, sequence: Sequence) -> NoDraft | None:
        """See core.strategy.DraftModel."""
        if self._has_failed:
            return NoDraft.FAILED
        if sequence.num_tokens >= self.kv_size.context:
            return NoDraft.CONTEXT
        return NoDraft.MEMORY if sequence.sequence_id in self._full else None

    def num_unread(self, sequence: Sequence) -> int:
        """See core.strategy.DraftModel."""
        return self._follow(sequence).num_unread

    def held_bytes(self, sequence_id: int) -> int:
        """See core.strategy.DraftModel."""
        if sequence_id not in self._followers:
            return 0
        held = self.cache.num_held_by(sequence_id)
        return sum(count * size for count, size in zip(held, self.kv_size.block_bytes, strict=True))

    def forget(self, sequence_id: int) -> None:
        """See core.strategy.DraftModel."""
        self._full.clear()  # there may be room now
        if self._followers.pop(sequence_id, None) is not None:
            self.cache.free(sequence_id)

    def propose(self, wishes: Seq[tuple[Sequence, int]]) -> Mapping[int, tuple[int, ...]]:
        """See core.strategy.DraftModel. A step that fails ends its drafting, nothing else."""
        try:
            limits = self._limits(wishes)
            guesses: dict[int, list[int]] = {sequence_id: [] for sequence_id in limits}
            rows = self._first_rows(limits)
            while rows:
                rows = self._round(rows, guesses, limits)
        except KernelError as error:
            logger.error("the draft model failed, decoding goes on without it: %s", error)
            self._has_failed = True
            return {}
        return {sequence_id: tuple(guess) for sequence_id, guess in guesses.items()}

    def _limits(self, wishes: Seq[tuple[Sequence, int]]) -> dict[int, int]:
        """How many guesses each may have for which there is room, and that room."""
        limits: dict[int, int] = {}
        for sequence, limit in wishes:
            follower = self._follow(sequence)
            limit = min(limit, self.kv_size.context - sequence.num_tokens)
            if limit > 0 and self._reserve(sequence.sequence_id, len(follower.token_ids) + limit - 1):
                limits[sequence.sequence_id] = limit
        return limits

    def warm_up(self) -> None:
        """Run a few steps, so that their cost is known before anything depends on it."""
        token_ids = [1] * (WARM_CHUNK + WARM_STEPS)
        self.cache.open(WARM_ID)
        if len(token_ids) <= self.kv_size.context and self._reserve(WARM_ID, len(token_ids)):
            texts = {WARM_ID: _Text(token_ids)}
            self._run([RowPlan(WARM_ID, 0, WARM_CHUNK, Phase.PREFILL, True)], texts)
            for position in range(WARM_CHUNK, len(token_ids)):
                self._run([RowPlan(WARM_ID, position, 1, Phase.DECODE, True)], texts)
        self.cache.free(WARM_ID)

    def _follow(self, sequence: Sequence) -> _Follower:
        """Bring what is known of a sequence up to its tokens: what was guessed wrong is forgotten."""
        follower = self._followers.get(sequence.sequence_id)
        if follower is None:
            return self._begin(sequence)
        known, token_ids = follower.token_ids, sequence.token_ids
        num_equal = follower.num_sure
        while num_equal < min(len(known), len(token_ids)) and known[num_equal] == token_ids[num_equal]:
            num_equal += 1
        if follower.num_computed > num_equal:
            follower.num_computed = num_equal
            self.cache.trim(sequence.sequence_id, num_equal)
        known[num_equal:] = token_ids[num_equal:]
        follower.num_sure = len(known)
        follower.num_computed = min(follower.num_computed, len(known) - 1)
        self.cache.commit(sequence.sequence_id, known, num_computed=follower.num_computed)
        if follower.num_told > num_equal - sequence.num_prompt_tokens:
            self._untell(follower, num_equal)
        return follower

    def _untell(self, follower: _Follower, num_tokens: int) -> None:
        """Let its wishes know so many tokens and no more; those that look back begin anew, which long texts feel."""
        if follower.request.params.looks_back:
            follower.sampling, follower.num_told = self.sampler.start(follower.request), 0
        else:
            follower.sampling.position = num_tokens
            follower.num_told = num_tokens - len(follower.request.prompt_token_ids)

    def _begin(self, sequence: Sequence) -> _Follower:
        """A text read before is found in the cache."""
        self.cache.open(sequence.sequence_id, salt=sequence.request.salt)
        hit = self.cache.probe(sequence.sequence_id, sequence.token_ids)
        if hit.num_tokens:
            self.cache.adopt(sequence.sequence_id, hit)
        request = _without_reports(sequence.request)
        follower = _Follower(
            request,
            list(sequence.token_ids),
            num_computed=hit.num_tokens,
            num_sure=sequence.num_tokens,
            sampling=self.sampler.start(request),
        )
        self._followers[sequence.sequence_id] = follower
        return follower

    def _reserve(self, sequence_id: int, end: int) -> bool:
        copies = self.cache.try_reserve(sequence_id, end=end)
        if copies is None:
            self._full.add(sequence_id)
            return False
        for copy in copies:
            self.reader.copy_block(copy.group, copy.source, copy.target)
        return True

    def _first_rows(self, limits: Mapping[int, int]) -> list[RowPlan]:
        """All that is unread, in chunks of what fits a step and its time; the shortest first, and those whole."""
        tally, rows, num_owed = Tally(self.cost()), [], MIN_CHUNK
        for sequence_id in sorted(limits, key=lambda each: self._followers[each].num_unread):
            follower = self._followers[sequence_id]
            start_pos, num_unread = follower.num_computed, follower.num_unread
            most = min(num_unread, self.max_step_tokens - tally.num_tokens)
            within = chunk_within(tally, start_pos=start_pos, num_missing=num_unread, most=most, limit_s=READING_S)
            is_long = num_unread > MIN_CHUNK
            num_tokens = max(within, min(most, num_owed if is_long else num_unread))
            if num_tokens <= 0:
                break
            num_owed -= min(num_tokens, num_owed) if is_long else 0
            is_read = num_tokens == num_unread
            rows.append(RowPlan(sequence_id, start_pos, num_tokens, Phase.PREFILL, needs_logits=is_read))
            tally = tally.plus(start_pos=start_pos, num_tokens=num_tokens, num_logits=int(is_read))
        return rows

    def _round(self, rows: Seq[RowPlan], guesses: Mapping[int, list[int]], limits: Mapping[int, int]) -> list[RowPlan]:
        """One step, a guess for each sequence that was read to its end; the rows of those that guess on."""
        guessing = [self._sampling_row(row.sequence_id) for row in rows if row.needs_logits]
        asks = self.candidates_from is not None and len(guessing) >= self.candidates_from
        candidates = self.sampler.ask(guessing) if guessing and asks else None
        logits = self._run(rows, self._followers, candidates)
        for row in rows:
            self._followers[row.sequence_id].num_computed += row.num_tokens
        tokens = self.sampler.sample(logits, guessing, candidates=candidates) if guessing else []
        going_on = []
        for token in tokens:
            sequence_id, follower = token.sequence_id, self._followers[token.sequence_id]
            if token.error is not None:
                continue
            guesses[sequence_id].append(token.token_id)
            start_pos = len(follower.token_ids)
            follower.token_ids.append(token.token_id)
            is_end = token.token_id in follower.request.stop_token_ids
            if len(guesses[sequence_id]) < limits[sequence_id] and not is_end:
                going_on.append(RowPlan(sequence_id, start_pos, 1, Phase.DECODE, needs_logits=True))
        return going_on

    def _sampling_row(self, sequence_id: int) -> SamplingRow:
        """It knows every token so far."""
        follower = self._followers[sequence_id]
        first = len(follower.request.prompt_token_ids) + follower.num_told
        for token_id in follower.token_ids[first:]:
            follower.sampling.append(token_id)
        follower.num_told += len(follower.token_ids) - first
        return SamplingRow(sequence_id, follower.sampling)

    def _run(
        self, rows: Seq[RowPlan], texts: Mapping[int, Text], candidates: Candidates | None = None
    ) -> npt.NDArray[np.float32]:
        start_s = self.clock.now()
        self.total_s += self.cost().seconds(rows)
        logits = self.reader.run(self.binder.bind(StepPlan(0, tuple(rows)), texts, candidates=candidates))
        self.fit.observe(rows, wall_s=self.clock.now() - start_s)
        return logits


def _without_reports(request: Request) -> Request:
    """The same wishes of a token; nobody hears what is told about a guess."""
    if request.params.logprobs is None:
        return request
    return dataclasses.replace(request, params=dataclasses.replace(request.params, logprobs=None))
