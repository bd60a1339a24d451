"""Times whole steps of the real program at chosen shapes, beside a read and a dot loop timed in turn with them.

The parts run fused, as they do in the engine. Cache blocks are filled with real keys and values first:
memory nobody wrote is one page of zeros, which no read has to fetch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, median_low
from typing import NamedTuple

import numpy as np

from twostroke.core.clock import Clock
from twostroke.measure.dyno_shapes import Limits, Shape
from twostroke.measure.peaks import Probe
from twostroke.program.cost import Row
from twostroke.program.program import BoundStep
from twostroke.program.reader import Reader

FILL_TOKENS = 512  # computed, then copied to every block
VISIT_S = 0.010  # a short step runs several times in a row
MAX_RUNS = 5  # of one visit
MIN_ROUNDS, MAX_ROUNDS = 3, 9
CALM = 0.9  # of their usual rates: loops below it were disturbed, and so was the step beside them
MAX_STEP_S = 1.0  # a longer step would eat the time of all others: it is left out
DOT_ROUNDS = 200_000  # of the probe: about a millisecond, as long as the read


@dataclass(frozen=True, slots=True)
class Timing:
    """Median over the rounds in which the machine was calm."""

    shape: Shape
    seconds: float


@dataclass(frozen=True, slots=True)
class Timings:
    """Every shape that was timed, and how fast the machine read and multiplied meanwhile."""

    steps: tuple[Timing, ...]
    read_bytes_per_s: float
    dot_ops_per_s: float
    num_rounds: int


class Visit(NamedTuple):
    """One look at a shape, and the reference loops right after it."""

    seconds: float
    read_bytes_per_s: float
    dot_ops_per_s: float


def calm_visits(visits: Sequence[Sequence[Visit]]) -> list[Sequence[Visit]]:
    """Of each shape the visits of an undisturbed machine: a neighbour that slows a step slows the loops beside it.

    Where fewer than a third were calm, all count: then the disturbance is the machine.
    """
    read = _usual([visit.read_bytes_per_s for seen in visits for visit in seen])
    dot = _usual([visit.dot_ops_per_s for seen in visits for visit in seen])
    kept: list[Sequence[Visit]] = []
    for seen in visits:
        calm = [v for v in seen if v.read_bytes_per_s >= CALM * read and v.dot_ops_per_s >= CALM * dot]
        kept.append(calm if 3 * len(calm) >= len(seen) else seen)
    return kept


def _usual(rates: list[float]) -> float:
    """The upper quartile: what the machine does when left alone."""
    return sorted(rates)[3 * len(rates) // 4]


class StepBench:
    """Binds shapes to a reader's own cache blocks and runs them."""

    def __init__(self, reader: Reader, limits: Limits, *, vocab_size: int, clock: Clock) -> None:
        self._reader = reader
        self._limits = limits
        self._vocab_size = vocab_size
        self._clock = clock
        self._rng = np.random.default_rng(0)

    def fill(self, shapes: Sequence[Shape]) -> None:
        """Write every block that the shapes will read."""
        limits = self._limits
        tokens = min(FILL_TOKENS, limits.max_tokens, limits.context)
        tokens = min(tokens, *(num * limits.block_size for num in limits.num_blocks))
        self._reader.run(self.bind((Row(0, tokens, needs_logits=False),)))
        written = max(1, tokens // limits.block_size)
        for index, group in enumerate(limits.groups):
            most = max(sum(limits.held(row, group) for row in shape) for shape in shapes)
            for block in range(written, most):
                self._reader.copy_block(index, block % written, block)

    def bind(self, shape: Shape) -> BoundStep:
        """Random tokens; every row has blocks of its own, as many as a real one would hold."""
        starts = np.cumsum([0, *(row.num_tokens for row in shape)]).astype(np.int32)
        return BoundStep(
            token_ids=self._rng.integers(0, self._vocab_size, int(starts[-1])).astype(np.int32),
            row_starts=starts,
            row_positions=np.array([row.start_pos for row in shape], np.int32),
            block_tables=tuple(self._table(shape, index) for index in range(len(self._limits.groups))),
            selected=np.array(
                [end - 1 for row, end in zip(shape, starts[1:], strict=True) if row.needs_logits], np.int32
            ),
        )

    def _table(self, shape: Shape, index: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
        limits, group = self._limits, self._limits.groups[index]
        ends = [-(-(row.start_pos + row.num_tokens) // limits.block_size) for row in shape]
        table, at = np.full((len(shape), max(ends)), -1, np.int32), 0
        for r, (row, end) in enumerate(zip(shape, ends, strict=True)):
            first = limits.first_block(row, group)
            table[r, first:end] = np.arange(at, at + end - first)
            at += end - first
        return table

    def seconds(self, step: BoundStep) -> float:
        """One run."""
        start_s = self._clock.now()
        self._reader.run(step)
        return self._clock.now() - start_s

    def time_all(self, shapes: Sequence[Shape], *, budget_s: float, reference: Probe) -> Timings:
        """All shapes in turn, round after round while the budget lasts: what drifts meets all alike."""
        start_s = self._clock.now()
        steps = self._affordable(shapes)
        visits: list[list[Visit]] = [[] for _ in steps]
        round_s = 0.0
        for number in range(MAX_ROUNDS):
            began_s = self._clock.now()
            if number >= MIN_ROUNDS and began_s + round_s > start_s + budget_s:
                break
            for (_, step), seen in zip(steps, visits, strict=True):
                seconds = self._visit(step)
                read = self._rate(reference.read)
                seen.append(Visit(seconds, read, self._rate(lambda: reference.compute("int8", DOT_ROUNDS))))
            round_s = self._clock.now() - began_s
        calm = calm_visits(visits)
        return Timings(
            steps=tuple(
                Timing(shape, median(visit.seconds for visit in seen))
                for (shape, _), seen in zip(steps, calm, strict=True)
            ),
            read_bytes_per_s=median(visit.read_bytes_per_s for seen in calm for visit in seen),
            dot_ops_per_s=median(visit.dot_ops_per_s for seen in calm for visit in seen),
            num_rounds=len(visits[0]),
        )

    def time_one(self, shape: Shape, *, repeats: int) -> float:
        """Median of a few runs after one that warms up."""
        step = self.bind(shape)
        self._reader.run(step)
        return median(self.seconds(step) for _ in range(repeats))

    def _affordable(self, shapes: Sequence[Shape]) -> list[tuple[Shape, BoundStep]]:
        """Shapes bound, without those that took too long: a long one makes no shorter one meet the same end."""
        kept: list[tuple[Shape, BoundStep]] = []
        for shape in shapes:
            step = self.bind(shape)
            if self.seconds(step) <= MAX_STEP_S or not kept:
                kept.append((shape, step))
        return kept

    def _visit(self, step: BoundStep) -> float:
        """Middle of the runs that fit a visit, the lower of two; the first of several only wakes the threads."""
        first_s = self.seconds(step)
        if first_s > VISIT_S:
            return first_s
        return median_low(self.seconds(step) for _ in range(max(2, min(MAX_RUNS, int(VISIT_S / max(first_s, 1e-9))))))

    def _rate(self, work: Callable[[], int]) -> float:
        start_s = self._clock.now()
        amount = work()
        return amount / max(self._clock.now() - start_s, 1e-9)
