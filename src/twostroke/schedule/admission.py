"""Who may start, and beside whom: blocks and rows promised to running groups against what is there.

A group is a sequence, or the beams of one request: promised all they can ever need, as their order in a step and
with it their blocks cannot be cut. Keeps what each running group was admitted for and how long answers turn out to
be; the scheduler asks, and moves sequences itself. Changes neither the cache nor a sequence.
"""

import math
from collections.abc import Iterable, Sequence as Seq
from dataclasses import dataclass

from twostroke.cache.cache import KVCache
from twostroke.core.sequence import Sequence
from twostroke.errors import CapacityError, PromptError
from twostroke.schedule.budget import next_output_ratio
from twostroke.schedule.config import SchedulerConfig
from twostroke.schedule.preempt import outranked

FIRST_OUTPUT_RATIO = 0.5  # of max_tokens; adapts within some dozens of answers
MEMORY_RAN_OUT = math.inf  # counts as an answer longer than any estimate


@dataclass(slots=True)
class _Promise:
    """What a running group was admitted for, and who of it runs."""

    blocks: tuple[int, ...]  # per KV group
    num_rows: int
    sequence_ids: list[int]


class Admission:
    """The promises of one scheduler over its cache."""

    def __init__(self, cache: KVCache, config: SchedulerConfig) -> None:
        self._cache = cache
        self._config = config
        self._max_chunk = min(config.max_chunk_tokens, config.max_step_tokens)
        self._promises: dict[int, _Promise] = {}  # by group
        self._output_ratio = FIRST_OUTPUT_RATIO

    def check_fit(self, sequence: Sequence) -> None:
        """Raise CapacityError, with the arithmetic, for a sequence that could not even run alone."""
        num_prompt, max_tokens = sequence.num_prompt_tokens, sequence.request.params.max_tokens
        if num_prompt == 0:
            raise PromptError("the prompt has 0 tokens: it needs at least 1")
        limit = self._config.context_length
        if limit is not None and num_prompt + max_tokens > limit:
            raise CapacityError(
                f"prompt of {num_prompt} tokens + max_tokens {max_tokens} = {num_prompt + max_tokens}, the context "
                f"holds {limit}: {_fix(limit - num_prompt, 'a larger context')}"
            )
        config, width = self._cache.config, _width(sequence)
        if width > self._config.max_rows:
            raise CapacityError(
                f"{width} beams need as many rows of a step, it has {self._config.max_rows}: "
                f"use {self._config.max_rows} beams or fewer",
                field="width",
            )
        needs = self._most(sequence)
        for group, (need, total) in enumerate(zip(needs, config.num_blocks, strict=True)):
            if need > total:
                fits = total // width * config.block_size + 1 - num_prompt
                beams, fewer = (f" for {width} beams", "fewer beams or ") if width > 1 else ("", "")
                raise CapacityError(
                    f"prompt of {num_prompt} tokens + max_tokens {max_tokens}{beams} needs {need} KV blocks of "
                    f"{config.block_size} tokens, KV group {group} has {total}: {_fix(fits, f'{fewer}more KV memory')}"
                )

    def promise(self, sequence: Sequence) -> None:
        """It starts: what its group was admitted for is set aside until its last sequence is released."""
        self._promises[sequence.group_id] = _Promise(self._wanted(sequence), _width(sequence), [sequence.sequence_id])

    def join(self, child: Sequence) -> None:
        """It runs beside others of its group, on their promise."""
        self._promises[child.group_id].sequence_ids.append(child.sequence_id)

    def release(self, sequence: Sequence) -> None:
        """It runs no more, whatever it may still hold."""
        members = self._promises[sequence.group_id].sequence_ids
        members.remove(sequence.sequence_id)
        if not members:
            del self._promises[sequence.group_id]

    def group_of(self, sequence: Sequence) -> Seq[int]:
        """Ids of the running sequences of its group, in the order in which they began."""
        return self._promises[sequence.group_id].sequence_ids

    @property
    def has_forked_group(self) -> bool:
        return any(len(promise.sequence_ids) > 1 for promise in self._promises.values())

    def has_room(self, sequence: Sequence, *, giving: Iterable[int] = ()) -> bool:
        """Whether its wanted blocks fit beside what running sequences were promised, once `giving` let go."""
        giving = tuple(giving)
        held, idle = self._cache.num_held_by(sequence.sequence_id), (0,) * self._cache.num_groups
        if self._config.enable_prefix_cache and not sequence.num_unscored:
            hit = self._cache.probe(sequence.sequence_id, sequence.token_ids)
            if hit.num_tokens > sequence.num_computed:
                held, idle = hit.num_held, hit.num_idle
        freed = self._cache.num_freed_by(giving)
        owed = self._owed(
            each for each in self._promises.values() if not any(member in giving for member in each.sequence_ids)
        )
        available = self._cache.num_available
        return all(
            wanted - held[group] <= available[group] + freed[group] - idle[group] - owed[group]
            for group, wanted in enumerate(self._wanted(sequence))
        )

    def displaced_by(self, head: Sequence, *, running: Seq[Sequence], waiting: Seq[Sequence]) -> list[Sequence] | None:
        """Running sequences to preempt, beside all that waits, so that `head` can start; None where nothing helps."""
        config = self._config
        num_rows = _width(head) + sum(promise.num_rows for promise in self._promises.values())
        if num_rows <= config.max_rows and self.has_room(head):
            return []
        holders = [sequence.sequence_id for sequence in waiting if sequence is not head]
        displaced: list[Sequence] = []
        alone = [sequence for sequence in running if len(self.group_of(sequence)) == 1]
        rivals = iter(
            outranked(alone, by=head, max_preemptions=config.max_preemptions, ageing_s=config.priority_ageing_s)
        )
        while num_rows > config.max_rows or not self.has_room(
            head, giving=(*holders, *(each.sequence_id for each in displaced))
        ):
            rival = next(rivals, None)
            if rival is None:
                return None
            displaced.append(rival)
            num_rows -= self._promises[rival.group_id].num_rows
        return displaced

    def learn_length(self, fraction: float) -> None:
        """An answer took this share of its max_tokens: later ones are admitted for as much."""
        self._output_ratio = next_output_ratio(
            self._output_ratio, fraction=fraction, quantile=self._config.output_quantile
        )

    def _wanted(self, sequence: Sequence) -> tuple[int, ...]:
        """Blocks per group to admit it for: what it knows and a quantile of outputs; all it can ever need if pinned."""
        if _width(sequence) > 1 or sequence.num_preemptions >= self._config.max_preemptions:
            return self._most(sequence)
        longest = _longest(sequence)
        num_left = math.ceil(self._output_ratio * (longest - sequence.num_tokens))
        longest = min(longest, sequence.num_tokens + max(num_left, 0))
        return self._cache.peak_blocks(longest, max_chunk=self._max_chunk)

    def _most(self, sequence: Sequence) -> tuple[int, ...]:
        """Blocks per KV group that its request can ever hold."""
        return self._cache.peak_blocks_of_beams(
            sequence.num_prompt_tokens, _longest(sequence), width=_width(sequence), max_chunk=self._max_chunk
        )

    def _owed(self, promises: Iterable[_Promise]) -> list[int]:
        """Blocks per KV group that these were promised and do not hold yet."""
        owed = [0] * self._cache.num_groups
        for promise in promises:
            held = self._cache.num_held_together(promise.sequence_ids)
            for group, promised in enumerate(promise.blocks):
                owed[group] += max(promised - held[group], 0)
        return owed


def _longest(sequence: Sequence) -> int:
    """Most tokens it can ever have computed: the last one is sampled and never computed."""
    return sequence.num_prompt_tokens + max(sequence.request.params.max_tokens - 1, 0)


def _width(sequence: Sequence) -> int:
    """Sequences its request may grow to, so rows of a step."""
    return sequence.request.params.num_sequences


def _fix(num_fitting: int, otherwise: str) -> str:
    if num_fitting < 1:
        return f"shorten the prompt or use {otherwise}"
    return f"max_tokens of {num_fitting} fits, or use {otherwise}"
