"""The engine: step() reads as plan, bind, run, sample, commit, hand over. One thread calls it; see worker.py."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twostroke.cache.cache import KVCache
from twostroke.core.account import StepRecord
from twostroke.core.clock import Clock
from twostroke.core.ledger import StallKind
from twostroke.core.request import Request
from twostroke.core.sequence import FinishReason, Sequence, SequenceStatus
from twostroke.core.snapshot import Snapshot
from twostroke.core.step import SampledToken, StepPlan, StepResult
from twostroke.engine.bind import Binder
from twostroke.engine.cost_fit import StepCostFit
from twostroke.engine.kv_store import KVSize, kv_usage
from twostroke.engine.stream import Listener, OutputStream, TextStream
from twostroke.errors import CapacityError, KernelError, ParamsError
from twostroke.program.program import KVGroup
from twostroke.program.reader import Reader
from twostroke.sample.sampler import Sampler, SamplingRow
from twostroke.schedule.scheduler import Scheduler

logger = logging.getLogger("twostroke")

LOGITS_CHUNK = 64  # rows of logits held at once: a vocabulary of 262,144 makes them 67 MB


@dataclass(slots=True)
class Live:
    """Everything the engine keeps for one sequence until it ends."""

    sequence: Sequence
    sampling: SamplingRow
    stream: OutputStream
    error: str | None = None


class Engine:
    """Drives one loaded model. Not thread-safe: the worker's thread is its only caller."""

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
    ) -> None:
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
        self._live: dict[int, Live] = {}
        self._started: dict[int, Live] = {}  # of these, who had a row already
        self._sequence_ids: dict[str, int] = {}
        self._next_sequence_id = 0

    @property
    def has_work(self) -> bool:
        return bool(self._live)

    def add(self, request: Request, listener: Listener) -> None:
        """Queue a request. Raises CapacityError when it could never run; nothing has changed then.

        Raises ParamsError when another request goes by its id.
        """
        if request.request_id in self._sequence_ids:
            raise ParamsError(
                f"request_id is {request.request_id!r}: a running request has it, take another", field="request_id"
            )
        sequence = Sequence.from_request(request, sequence_id=self._next_sequence_id)
        stream = OutputStream(
            request, sequence_id=sequence.sequence_id, text=self._new_text(request), listener=listener
        )
        sampling = SamplingRow(sequence.sequence_id, self._sampler.start(request))
        live = Live(sequence, sampling, stream)
        self._scheduler.add(sequence)
        self._next_sequence_id += 1
        self._live[sequence.sequence_id] = live
        self._sequence_ids[request.request_id] = sequence.sequence_id

    def cancel(self, request_id: str) -> None:
        """End a request now; its blocks are free when this returns. Unknown ids have already ended."""
        sequence_id = self._sequence_ids.get(request_id)
        if sequence_id is not None:
            self._stop(self._live[sequence_id], FinishReason.CANCELLED)

    def step(self) -> bool:
        """Run one step. False when there was nothing to run."""
        start_s = self._clock.now()
        plan = self._scheduler.plan(start_s)
        if plan is None:
            return False
        logits = self._run(plan)
        logits_s = self._clock.now()
        tokens = self._sample(plan, logits)
        sampled_s = self._clock.now()
        result = self._decide(plan, tokens)
        finished = self._scheduler.commit(result)
        self._hand_over(plan, finished, start_s=start_s, logits_s=logits_s, sampled_s=sampled_s)
        self._learn(plan, wall_s=logits_s - start_s)
        return True

    def _run(self, plan: StepPlan) -> npt.NDArray[np.float32] | str:
        """Logits of the rows that need them, or what went wrong: the step's rows fail, the engine goes on."""
        try:
            for copy in plan.copies:
                self._reader.copy_block(copy.group, copy.source, copy.target)
            sequences: Mapping[int, Sequence] = {
                row.sequence_id: self._live[row.sequence_id].sequence for row in plan.rows
            }
            return self._reader.run(self._binder.bind(plan, sequences))
        except KernelError as error:
            logger.error("step %d failed: %s", plan.step_id, error)
            return str(error)

    def _sample(self, plan: StepPlan, logits: npt.NDArray[np.float32] | str) -> tuple[SampledToken, ...]:
        if isinstance(logits, str):
            return tuple(SampledToken(row.sequence_id, 0, error=logits) for row in plan.rows)
        rows = [self._live[row.sequence_id].sampling for row in plan.rows if row.needs_logits]
        return tuple(self._sampler.sample(logits, rows)) if rows else ()

    def _decide(self, plan: StepPlan, tokens: tuple[SampledToken, ...]) -> StepResult:
        """Ends that only text can tell (stop strings) or that went wrong; the scheduler knows the others."""
        finished: dict[int, FinishReason] = {}
        for token in tokens:
            live = self._live[token.sequence_id]
            if token.error is not None:
                live.error = token.error
                finished[token.sequence_id] = FinishReason.ERROR
                continue
            live.sampling.state.append(token.token_id)
            if live.stream.accept(token):
                finished[token.sequence_id] = FinishReason.STOP
        return StepResult(plan=plan, tokens=tokens, finished=finished)

    def _hand_over(
        self, plan: StepPlan, finished: list[Sequence], *, start_s: float, logits_s: float, sampled_s: float
    ) -> None:
        """Tell tokens and ends, then write the step into the account of everyone who lived through it."""
        now_s = self._clock.now()
        record = StepRecord(
            start_s=start_s,
            logits_s=logits_s,
            sampled_s=sampled_s,
            handed_s=now_s,
            rows=plan.rows,
            request_ids=tuple([self._live[row.sequence_id].stream.request.request_id for row in plan.rows]),
            cost=self._fit.cost(),
        )
        broken = []
        for row in plan.rows:
            live = self._started.setdefault(row.sequence_id, self._live[row.sequence_id])
            live.stream.live_through(record, None)
            live.stream.hand_over(now_s)
            if live.stream.fault is not None:
                broken.append(live)
        if len(self._started) > len(plan.rows):
            self._book_absent(record)
        for sequence in finished:
            assert sequence.finish_reason is not None, f"sequence {sequence.sequence_id} has no finish reason"
            self._end(self._live[sequence.sequence_id], sequence.finish_reason)
        for live in broken:
            if live.sequence.sequence_id in self._live:
                live.error = live.stream.fault
                self._stop(live, FinishReason.ERROR)

    def _book_absent(self, record: StepRecord) -> None:
        """A started sequence without a row lost this step to the scheduler or to its preemption."""
        in_step = {row.sequence_id for row in record.rows}
        for sequence_id, live in self._started.items():
            if sequence_id not in in_step:
                is_preempted = live.sequence.status is SequenceStatus.PREEMPTED
                live.stream.live_through(record, StallKind.PREEMPTION if is_preempted else StallKind.SCHEDULER)

    def _stop(self, live: Live, reason: FinishReason) -> None:
        """End a sequence in whatever state. Its listener hears the end even when the scheduler is at fault."""
        try:
            self._scheduler.abort(live.sequence.sequence_id, reason=reason)
        except Exception:
            logger.exception("sequence %d could not be taken out of the schedule", live.sequence.sequence_id)
        self._end(live, reason)

    def _end(self, live: Live, reason: FinishReason) -> None:
        sequence = live.sequence
        del self._live[sequence.sequence_id]
        del self._sequence_ids[sequence.request.request_id]
        self._started.pop(sequence.sequence_id, None)
        usage = kv_usage(self._kv_size, self._kv_groups, num_tokens=sequence.num_computed)
        try:
            live.stream.finish(sequence, reason, now_s=self._clock.now(), kv=usage, error=live.error)
        except Exception:  # its neighbours are yet to hear theirs
            logger.exception("request %s could not be told its end", sequence.request.request_id)

    def _learn(self, plan: StepPlan, *, wall_s: float) -> None:
        self._fit.observe(plan.rows, wall_s=wall_s)
        self._scheduler.step_cost = self._fit.cost()

    def cancel_all(self) -> None:
        """End every request as cancelled."""
        for request_id in list(self._sequence_ids):
            self.cancel(request_id)

    def fail_all(self, error: BaseException) -> None:
        """End every request after a fault that no single one of them explains."""
        for live in list(self._live.values()):
            live.error = f"the engine failed: {error!r}"
            self._stop(live, FinishReason.ERROR)

    def logits(self, token_ids: list[int]) -> npt.NDArray[np.float32]:
        """Logits after every token, float32 [num_tokens, vocab], computed beside the schedule from an empty cache.

        Raises CapacityError when running requests hold the blocks it needs.
        """
        sequence_id = self._next_sequence_id
        self._next_sequence_id += 1
        self._cache.open(sequence_id)
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
                    logits = np.empty((len(token_ids), rows.shape[1]), np.float32)
                logits[start:end] = rows
                self._cache.commit(sequence_id, token_ids, num_computed=end, publish=False)
        finally:
            self._cache.free(sequence_id)
        return logits

    def progress(self, request_id: str) -> int | None:
        """Prompt tokens computed or found in the cache; None for a request that does not run."""
        sequence_id = self._sequence_ids.get(request_id)
        if sequence_id is None:
            return None
        sequence = self._live[sequence_id].sequence
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
        )
