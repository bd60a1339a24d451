"""Cells timed as the engine's users meet them, alternating with a peer in one run.

Ours goes through the doors of `LLM`: scheduler, sampler and hand-over are inside the times. A peer is timed
around its evaluation alone, as its own bench does.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from twostroke.core.event import Event, TokenEvent
from twostroke.errors import RequestError
from twostroke.measure.cell import Cell, Kind
from twostroke.measure.peer import Peer
from twostroke.params import SamplingParams

if TYPE_CHECKING:
    from twostroke.llm import LLM

GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, lowest and highest of at least one number."""

    median: float
    lowest: float
    highest: float


def spread(values: Sequence[float]) -> Spread | None:
    """None of no number."""
    return Spread(median(values), min(values), max(values)) if values else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rates of a cell in tokens per second, ours beside a peer's, in the order they were measured."""

    cell: Cell
    ours_per_s: tuple[float, ...]
    theirs_per_s: tuple[float, ...] = ()
    refusal: str | None = None  # why the peer has no rates

    @property
    def ratios(self) -> tuple[float, ...]:
        """Of pairs of runs that followed each other; none without a peer's rates."""
        return tuple(ours / theirs for ours, theirs in zip(self.ours_per_s, self.theirs_per_s, strict=False))


def compare(llm: "LLM", cell: Cell, *, repeat: int, peer: Peer | None) -> Comparison:
    """One uncounted pair to warm up, then `repeat` pairs in turn."""
    refusal = None if peer is None else peer.refusal(cell)
    asked = peer if refusal is None else None
    rng = random.Random(0)
    ours_s: list[float] = []
    theirs_s: list[float] = []
    for _ in range(repeat + 1):
        ours_s.append(measure_ours(llm, cell, rng))
        if asked is not None:
            theirs_s.append(asked.measure(cell))
    return Comparison(
        cell=cell,
        ours_per_s=tuple(cell.num_tokens / time_s for time_s in ours_s[1:]),
        theirs_per_s=tuple(cell.num_tokens / time_s for time_s in theirs_s[1:]),
        refusal=refusal,
    )


def measure_ours(llm: "LLM", cell: Cell, rng: random.Random, *, wish: SamplingParams = GREEDY) -> float:
    """Seconds of one measurement; random prompts, so that no repeat finds another one's blocks.

    wish: how tokens are chosen; the length of the answers is the cell's.
    """
    heads = [_random_ids(llm, cell.depth, rng) for _ in range(cell.batch)]
    prompts = [head + _random_ids(llm, cell.prompt, rng) for head in heads]
    if cell.kind is Kind.REQUESTS:
        return _requests_seconds(llm, prompts, _wish_of(wish, max_tokens=cell.generate))
    if cell.kind is Kind.PREFILL:
        for head in filter(None, heads):
            _run(llm, [head], _wish_of(wish, max_tokens=1))  # its blocks stay findable
        return max(run.first_s for run in _run(llm, prompts, _wish_of(wish, max_tokens=1)))
    starts = [head or _random_ids(llm, 1, rng) for head in heads]
    runs = _run(llm, starts, _wish_of(wish, max_tokens=cell.generate + 1))
    return _decode_seconds(runs, num_tokens=cell.num_tokens)


def _wish_of(wish: SamplingParams, *, max_tokens: int) -> SamplingParams:
    return replace(wish, max_tokens=max_tokens, ignore_eos=True)


def _requests_seconds(llm: "LLM", prompts: Sequence[list[int]], params: SamplingParams) -> float:
    start_s = llm.now()
    llm.generate(prompts, params)
    return llm.now() - start_s


@dataclass(slots=True)
class _Run:
    times: list[float] = field(default_factory=list)  # of its tokens, after the start of all

    @property
    def first_s(self) -> float:
        return self.times[0]


def _decode_seconds(runs: Sequence[_Run], *, num_tokens: int) -> float:
    """Time for `num_tokens` at the rate from the last first token on: before it, some sequences did not decode."""
    start_s = max(run.first_s for run in runs)
    counted = [time_s for run in runs for time_s in run.times if time_s > start_s]
    return (max(counted) - start_s) * num_tokens / len(counted)


def _run(llm: "LLM", prompts: Sequence[list[int]], params: SamplingParams) -> list[_Run]:
    """Submit all at once; times are on the engine's clock, from the common arrival."""
    runs = [_Run() for _ in prompts]
    arrival_s = llm.now()

    def listener(run: _Run) -> Callable[[Event], None]:
        def hear(event: Event) -> None:
            if isinstance(event, TokenEvent):
                run.times.append(event.time_s - arrival_s)

        return hear

    handles = [
        llm.submit(prompt, params, on_event=listener(run), arrival_s=arrival_s)
        for prompt, run in zip(prompts, runs, strict=True)
    ]
    for handle in handles:
        result = handle.result()
        if result.error is not None:
            raise RequestError(f"a measured request failed: {result.error}")
    return runs


def _random_ids(llm: "LLM", count: int, rng: random.Random) -> list[int]:
    return [rng.randrange(llm.program.vocab_size) for _ in range(count)]
