"""The engine: step() reads as plan, bind, run, sample, commit, hand over. One thread calls it; see worker.py."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twostroke._native import Candidates
from twostroke.cache.cache import KVCache
from twostroke.core.account import StepRecord
from twostroke.core.clock import Clock
from twostroke.core.ledger import StallKind
from twostroke.core.request import Request
from twostroke.core.sequence import FinishReason, Sequence
from twostroke.core.snapshot import Snapshot
from twostroke.core.step import Fork, SampledToken, StepPlan, StepResult, TokenLogprob
from twostroke.core.strategy import Chooser, Speculator
from twostroke.engine.beam_stream import BeamStream
from twostroke.engine.bind import Binder
from twostroke.engine.candidates import ask_candidates
from twostroke.engine.cost_fit import StepCostFit
from twostroke.engine.embedding_stream import EmbeddingStream
from twostroke.engine.kv_store import KVSize, kv_usage, kv_usage_of_beams
from twostroke.engine.live import Live, Member
from twostroke.engine.output_stream import OutputStream
from twostroke.engine.pooler import Pooler
from twostroke.engine.scores import score_prompts
from twostroke.engine.stream import Listener, TextStream
from twostroke.engine.verify import draw_tokens
from twostroke.engine.wanted import WantedTokens, Words
from twostroke.errors import CapacityError, KernelError, ParamsError
from twostroke.program.program import KVGroup
from twostroke.program.reader import Reader
from twostroke.sample.sampler import Sampler, SamplingRow
from twostroke.schedule.config import SchedulerConfig
from twostroke.schedule.scheduler import NO_DRAFTS, Scheduler

logger = logging.getLogger("twostroke")

LOGITS_CHUNK = 64  # rows of logits held at once: a vocabulary of 262,144 makes them 67 MB


class _StepTimes(NamedTuple):
    """When a step was where, and what it took beside; see StepRecord."""

    start_s: float
    logits_s: float
    sampled_s: float
    draft_s: float
    mask_s: float


class Engine:
    """Drives one loaded model. Not thread-safe: the worker's thread is its only caller.

    `speculator` may be replaced or taken away between two requests.
    """

    def __init__(
        self,
        *,
        reader: Reader,
        scheduler: Scheduler,
        cache: KVCache,
        binder: Binder,
        sampler: Sampler,
        clock: Clock,
        fit: StepCostFit,
        kv_size: KVSize,
        kv_groups: tuple[KVGroup, ...],
        new_text: Callable[[Request], TextStream],
        new_chooser: Callable[[Request], Chooser],
        speculator: Speculator | None = None,
        pooler: Pooler | None = None,
        candidates_from: int | None = None,
    ) -> None:
        """With a pooler it embeds: prompts come to vectors instead of tokens, by a binder that selects all.

        `candidates_from`: rows of logits from which on a step asks for less, where its reader can bring that.
        """
        self._reader = reader
        self._scheduler = scheduler
        self._cache = cache
        self._binder = binder
        self._sampler = sampler
        self._clock = clock
        self._fit = fit
        self._kv_size = kv_size
        self._kv_groups = kv_groups
        self._new_text = new_text
        self._new_chooser = new_chooser
        self.speculator = speculator
        self._pooler = pooler
        self._candidates_from = candidates_from
        self._wanted = WantedTokens(sampler.vocab_size)
        self._live: dict[str, Live] = {}
        self._started: dict[str, Live] = {}  # of these, who had a row already
        self._members: dict[int, Member] = {}
        self._next_sequence_id = 0
        self._observers: list[Callable[[StepRecord], None]] = []

    def observe_steps(self, observer: Callable[[StepRecord], None]) -> None:
        """Tell `observer` every step from now on, on this thread: it must return at once."""
        self._observers.append(observer)

    @property
    def has_work(self) -> bool:
        return bool(self._live)

    @property
    def limits(self) -> SchedulerConfig:
        """What a step and the queue may hold."""
        return self._scheduler.config

    def add(self, request: Request, listener: Listener) -> None:
        """Queue a request. Raises CapacityError when it could never run; nothing has changed then.

        Raises ParamsError when another request goes by its id.
        """
        if request.request_id in self._live:
            raise ParamsError(
                f"request_id is {request.request_id!r}: a running request has it, take another", field="request_id"
            )
        sequence = Sequence.from_request(request, sequence_id=self._new_sequence_id())
        live = self._begin(request, listener)
        self._scheduler.add(sequence)
        live.members.append(self._join(live, sequence))
        self._live[request.request_id] = live

    def _begin(self, request: Request, listener: Listener) -> Live:
        if request.embedding is not None:
            return Live(request, EmbeddingStream(request, listener=listener))
        if request.params.beam is None:
            return Live(request, OutputStream(request, text=self._new_text(request), listener=listener))
        chooser = self._new_chooser(request)
        stream = BeamStream(request, chooser=chooser, new_text=self._new_text, listener=listener)
        return Live(request, stream, chooser)

    def _join(self, live: Live, sequence: Sequence) -> Member:
        num_ranked = 0
        if live.chooser is None:
            state = self._sampler.start(live.request)
        else:
            num_ranked = live.chooser.num_candidates
            state = self._sampler.start_ranking(live.request, num_candidates=num_ranked)
        sampling = SamplingRow(sequence.sequence_id, state, live.request.grammar, num_ranked)
        member = Member(live, sequence, sampling)
        self._members[sequence.sequence_id] = member
        return member

    def _new_sequence_id(self) -> int:
        sequence_id = self._next_sequence_id
        self._next_sequence_id += 1
        return sequence_id

    def cancel(self, request_id: str) -> None:
        """End a request now; its blocks are free when this returns. Unknown ids have already ended."""
        live = self._live.get(request_id)
        if live is not None:
            self._stop(live, FinishReason.CANCELLED)

    def step(self) -> bool:
        """Run one step. False when there was nothing to run."""
        start_s = self._clock.now()
        drafts, draft_s = self._draft(start_s)
        plan = self._scheduler.plan(start_s, drafts)
        if plan is None:
            return False
        self._take_back(plan)
        planned_s = self._clock.now()
        wanted = self._wanted.of(plan, self._members)
        candidates = ask_candidates(self._sampler, plan, self._members, least=self._candidates_from)
        mask_s = self._clock.now() - planned_s
        logits = self._run(plan, wanted, candidates)
        logits_s = self._clock.now()
        tokens = self._sample(plan, logits, candidates)
        times = _StepTimes(start_s, logits_s, self._clock.now(), draft_s=draft_s, mask_s=mask_s)
        result = self._decide(plan, tokens)
        finished = self._scheduler.commit(result)
        head_share = self._wanted.share_of(wanted)
        self._hand_over(plan, finished, times, head_share=head_share)
        self._learn(plan, result, times, has_drafts=bool(drafts), head_share=head_share)
        return True

    def _draft(self, start_s: float) -> tuple[Mapping[int, tuple[int, ...]], float]:
        """Guesses for decoding sequences, where they should pay, and the seconds that looking took since `start_s`.

        None of a group: its sequences keep step with each other.
        """
        if self.speculator is None or self.speculator.has_nothing(self._scheduler.num_running):
            return NO_DRAFTS, 0.0
        decoding = [
            sequence
            for sequence in self._scheduler.running
            if sequence.num_missing == 1 and sequence.num_output_tokens and sequence.request.params.beam is None
        ]
        if not decoding:
            return NO_DRAFTS, 0.0
        drafts = self.speculator.draft(decoding, self._fit.cost())
        return drafts, self._clock.now() - start_s

    def _run(
        self, plan: StepPlan, wanted: Words | None, candidates: Candidates | None
    ) -> npt.NDArray[np.float32] | str:
        """Logits of the rows that need them, or what went wrong: the step's rows fail, the engine goes on."""
        try:
            for copy in plan.copies:
                self._reader.copy_block(copy.group, copy.source, copy.target)
            sequences: Mapping[int, Sequence] = {
                row.sequence_id: self._members[row.sequence_id].sequence for row in plan.rows
            }
            return self._reader.run(self._binder.bind(plan, sequences, wanted=wanted, candidates=candidates))
        except KernelError as error:
            logger.error("step %d failed: %s", plan.step_id, error)
            return str(error)

    def _sample(
        self, plan: StepPlan, logits: npt.NDArray[np.float32] | str, candidates: Candidates | None
    ) -> tuple[SampledToken, ...]:
        if isinstance(logits, str):
            return tuple(SampledToken(row.sequence_id, 0, error=logits) for row in plan.rows)
        if self._pooler is not None:
            vectors = self._pooler.take(plan, logits)
            return tuple(self._embedded(sequence_id, vector) for sequence_id, vector in vectors.items())
        failures = score_prompts(self._sampler, logits, plan, self._members)
        return (*failures, *draw_tokens(self._sampler, logits, plan, self._members, candidates=candidates))

    def _embedded(self, sequence_id: int, vector: npt.NDArray[np.float64]) -> SampledToken:
        """A prompt's vector goes to its stream; the token that stands for it ends the sequence."""
        stream = self._members[sequence_id].live.stream
        assert isinstance(stream, EmbeddingStream), f"sequence {sequence_id} waits for no vector"
        return SampledToken(sequence_id, 0, error=stream.take(vector))

    def _decide(self, plan: StepPlan, tokens: tuple[SampledToken, ...]) -> StepResult:
        """Ends that only text or a group can tell, or that went wrong; the scheduler knows the others."""
        taken: list[SampledToken] = []
        finished: dict[int, FinishReason | None] = {}
        groups: dict[str, Live] = {}
        for token in tokens:
            member = self._members[token.sequence_id]
            live = member.live
            if token.sequence_id in finished:
                continue  # behind a stop string
            if token.error is not None:
                live.error = token.error
                finished.update((each.sequence.sequence_id, FinishReason.ERROR) for each in live.members)
            elif isinstance(live.stream, BeamStream):
                groups[live.request.request_id] = live
            elif not live.request.params.max_tokens:
                finished[token.sequence_id] = FinishReason.LENGTH  # the prompt alone was asked for
            else:
                taken.append(token)
                if live.stream.accept(token):
                    finished[token.sequence_id] = FinishReason.STOP
        forks: list[Fork] = []
        candidates = {token.sequence_id: token.top_logprobs for token in tokens} if groups else {}
        for live in groups.values():
            if live.error is None:
                self._grow(live, candidates, taken=taken, forks=forks, finished=finished)
        return StepResult(plan=plan, tokens=tuple(taken), finished=finished, forks=tuple(forks))

    def _grow(
        self,
        live: Live,
        candidates: Mapping[int, tuple[TokenLogprob, ...]],
        *,
        taken: list[SampledToken],
        forks: list[Fork],
        finished: dict[int, FinishReason | None],
    ) -> None:
        """Let the chooser of a group say who goes on and with which token; or it is done, with all of them."""
        assert live.chooser is not None, f"{live.request.request_id} has no chooser"
        group = [member.sequence for member in live.members]
        grown = live.chooser.choose(group, [candidates[sequence.sequence_id] for sequence in group])
        finished.update(dict.fromkeys(sequence.sequence_id for sequence in group))
        if not grown:
            finished[group[0].sequence_id] = live.chooser.hypotheses()[0].reason
            if len(group) > 1:
                live.held = self._cache.num_held_together([sequence.sequence_id for sequence in group])
            return
        grammars = [self._members[parent_id].grammar_behind(token_id) for parent_id, token_id in grown]
        live.members = []
        for (parent_id, token_id), grammar in zip(grown, grammars, strict=True):
            parent = self._members[parent_id]
            if parent_id in finished:
                del finished[parent_id]
                taken.append(SampledToken(parent_id, token_id))
                live.members.append(parent)
            else:
                child = parent.sequence.child(token_id, sequence_id=self._new_sequence_id())
                forks.append(Fork(parent_id, child))
                live.members.append(self._join(live, child))
            live.members[-1].follow(grammar)

    def _take_back(self, plan: StepPlan) -> None:
        """Who was preempted drafts no more; a whole group goes by dropping all but one and that one's answer."""
        for sequence_id in plan.preempted:
            if self.speculator is not None:
                self.speculator.release(sequence_id)
            member = self._members[sequence_id]
            live = member.live
            if live.chooser is None or member.sequence.num_output_tokens:
                continue
            for other in live.members:
                if other is not member:
                    del self._members[other.sequence.sequence_id]
            live.members = [member]
            member.follow(live.request.grammar)
            live.chooser.restart()

    def _hand_over(self, plan: StepPlan, finished: list[Sequence], times: _StepTimes, *, head_share: float) -> None:
        """Tell tokens and ends, then write the step into the account of everyone who lived through it."""
        now_s = self._clock.now()
        lives = [self._members[row.sequence_id].live for row in plan.rows]
        record = StepRecord(
            start_s=times.start_s,
            logits_s=times.logits_s,
            sampled_s=times.sampled_s,
            handed_s=now_s,
            rows=plan.rows,
            request_ids=tuple([live.request.request_id for live in lives]),
            cost=self._fit.cost(),
            draft_s=times.draft_s,
            mask_s=times.mask_s,
            head_share=head_share,
        )
        present = dict(zip(record.request_ids, lives, strict=True))  # beams have several rows
        self._started.update(present)
        for live in present.values():
            live.stream.live_through(record, None)
            live.stream.hand_over(now_s)
        if len(self._started) > len(present):
            self._book_absent(record, present)
        self._tell_observers(record)
        self._end_finished(finished)
        for request_id, live in present.items():
            if live.stream.fault is not None and request_id in self._live:
                live.error = live.stream.fault
                self._stop(live, FinishReason.ERROR)

    def _end_finished(self, finished: list[Sequence]) -> None:
        """A sequence's end is its request's, unless its group outran it."""
        for sequence in finished:
            member = self._members.pop(sequence.sequence_id, None)
            if member is not None and sequence.finish_reason is not None:
                self._end(member.live, sequence.finish_reason)

    def _tell_observers(self, record: StepRecord) -> None:
        for observer in list(self._observers):
            try:
                observer(record)
            except Exception:
                logger.exception("an observer of steps raised: it hears no more of them")
                self._observers.remove(observer)

    def _book_absent(self, record: StepRecord, present: Mapping[str, Live]) -> None:
        """A started request without a row lost this step to the scheduler or to its preemption."""
        for request_id, live in self._started.items():
            if request_id not in present:
                kind = StallKind.PREEMPTION if live.is_preempted else StallKind.SCHEDULER
                live.stream.live_through(record, kind)

    def _stop(self, live: Live, reason: FinishReason) -> None:
        """End a request in whatever state. Its listener hears the end even when the scheduler is at fault."""
        sequence_ids = [member.sequence.sequence_id for member in live.members]
        try:
            if len(sequence_ids) > 1:
                live.held = self._cache.num_held_together(sequence_ids)
            for sequence_id in sequence_ids:
                self._scheduler.abort(sequence_id, reason=reason)
        except Exception:
            logger.exception("sequences %s could not be taken out of the schedule", sequence_ids)
        self._end(live, reason)

    def _end(self, live: Live, reason: FinishReason) -> None:
        request_id = live.request.request_id
        del self._live[request_id]
        self._started.pop(request_id, None)
        for member in live.members:
            self._members.pop(member.sequence.sequence_id, None)
            if self._pooler is not None:
                self._pooler.forget(member.sequence.sequence_id)
        if self.speculator is not None and isinstance(live.stream, OutputStream):
            live.stream.speculation = self.speculator.forget(live.members[0].sequence.sequence_id)
        sequences = [member.sequence for member in live.members]
        if live.held is None:
            kv = kv_usage(self._kv_size, self._kv_groups, num_tokens=sequences[0].num_computed)
        else:
            kv = kv_usage_of_beams(self._kv_size, held=live.held, num_tokens=[each.num_computed for each in sequences])
        try:
            live.stream.finish(sequences[0], reason, now_s=self._clock.now(), kv=kv, error=live.error)
        except Exception:  # its neighbours are yet to hear theirs
            logger.exception("request %s could not be told its end", request_id)
        live.members.clear()  # they hold each other, and with them tokens, history and grammar

    def _learn(
        self, plan: StepPlan, result: StepResult, times: _StepTimes, *, has_drafts: bool, head_share: float
    ) -> None:
        wall_s = times.logits_s - times.start_s - times.mask_s
        self._fit.observe(plan.rows, wall_s=wall_s - times.draft_s, head_share=head_share)
        self._scheduler.step_cost = self._fit.cost()
        if self.speculator is not None:
            num_grown = Counter(token.sequence_id for token in result.tokens) if has_drafts else {}
            self.speculator.learn(plan.rows, num_grown, cost=self._fit.cost(), wall_s=wall_s, draft_s=times.draft_s)

    def cancel_all(self) -> None:
        """End every request as cancelled."""
        for request_id in list(self._live):
            self.cancel(request_id)

    def fail_all(self, error: BaseException) -> None:
        """End every request after a fault that no single one of them explains."""
        for live in list(self._live.values()):
            live.error = f"the engine failed: {error!r}"
            self._stop(live, FinishReason.ERROR)

    def logits(self, token_ids: list[int], *, last: int | None = None) -> npt.NDArray[np.float32]:
        """Logits after every token, or the `last` ones, float32 [tokens, vocab], beside the schedule, from no cache.

        Raises CapacityError when running requests hold the blocks it needs.
        """
        sequence_id = self._new_sequence_id()
        self._cache.open(sequence_id)
        skipped = 0 if last is None else len(token_ids) - last
        logits = np.empty((0, 0), np.float32)
        size = min(LOGITS_CHUNK, self._scheduler.config.max_step_tokens)
        try:
            for start in range(0, len(token_ids), size):
                chunk = token_ids[start : start + size]
                end = start + len(chunk)
                if self._cache.try_reserve(sequence_id, end=end) is None:
                    raise CapacityError(
                        f"{len(token_ids)} tokens need {self._cache.blocks_for(end)} KV blocks, "
                        f"{self._scheduler.num_running} running requests leave {self._cache.num_available}: try later"
                    )
                rows = self._reader.run(self._binder.bind_all(sequence_id, chunk, start_pos=start))
                if start == 0:
                    logits = np.empty((len(token_ids) - skipped, rows.shape[1]), np.float32)
                logits[max(0, start - skipped) : max(0, end - skipped)] = rows[max(0, skipped - start) :]
                self._cache.commit(sequence_id, token_ids, num_computed=end, publish=False)
        finally:
            self._cache.free(sequence_id)
        return logits

    def progress(self, request_id: str) -> int | None:
        """Prompt tokens computed or found in the cache; None for a request that does not run."""
        live = self._live.get(request_id)
        if live is None:
            return None
        sequence = live.members[0].sequence
        return min(sequence.num_computed, sequence.num_prompt_tokens)

    def snapshot(self) -> Snapshot:
        """Counts now."""
        cache, blocks = self._cache, self._cache.counts()
        return Snapshot(
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            num_preemptions=self._scheduler.num_preemptions,
            blocks_free=blocks.free,
            blocks_cached=blocks.cached,
            blocks_held=blocks.held,
            blocks_total=blocks.total,
            prefix_queries=cache.num_queries,
            prefix_hits=cache.num_hits,
            waste_ratio=self._waste_ratio(),
            refused_draft_share=None if self.speculator is None else self.speculator.refused_share,
        )

    def _waste_ratio(self) -> float:
        reserved, wasted = 0, 0.0
        for member in self._members.values():
            usage = kv_usage(self._kv_size, self._kv_groups, num_tokens=member.sequence.num_computed)
            reserved += usage.blocks
            wasted += usage.blocks * usage.waste_ratio
        return wasted / reserved if reserved else 0.0
