"""A StepCost kept true by the engine's own steps: where it starts, and how fast this machine is now.

It starts as the dyno measured it, or, where no dyno ran, as assumed from what the program counts. The
steps scale it, its reads and its arithmetic each by a running median, so one late step moves nothing.
Steps that depart far from what was measured are told once.
"""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from twostroke.core.step import RowPlan
from twostroke.core.step_cost import Law, StepCost

logger = logging.getLogger("twostroke")

WINDOW = 31  # steps remembered per pace: long enough for a steady median, short enough to follow a noisy machine
PRIOR_OPS_PER_S = 50e9  # one slow core without vector dot products
PRIOR_BYTES_PER_S = 5e9
PRIOR_SHARPNESS = 1.5  # from kernels of other machines, until these are measured
BASE_S = 100e-6  # plan, bind and barriers of a step with nothing in it
ROW_S = 10e-6  # Python per row, the stated bound
LEARN_STEPS = 8  # a full window moves slowly: no need to price every step
DRIFT = 1.5  # a pace beyond it, up or down, is no longer the machine that was measured


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What a step costs in operations and bytes, from the program alone."""

    weight_bytes: float  # read once per step, the head's left out
    token_ops: float  # linear operations of one token, the head's left out
    head_bytes: float  # read once per step in which a row needs logits
    head_ops: float  # operations per row that needs logits
    kv_bytes: float  # read per stored position
    pair_ops: float  # operations per query-key pair
    windows: tuple[tuple[int | None, float], ...] = ((None, 1.0),)  # per KV group, its share of the attention


def assumed_cost(counts: StepCounts) -> StepCost:
    """What a slow machine would take; the first steps correct it."""

    def law(num_bytes: float, ops: float) -> Law:
        return Law(num_bytes / PRIOR_BYTES_PER_S, ops / PRIOR_OPS_PER_S, PRIOR_SHARPNESS)

    return StepCost(
        base_s=BASE_S,
        row_s=ROW_S,
        sample_s=ROW_S,
        linear=law(counts.weight_bytes, counts.token_ops),
        head=law(counts.head_bytes, counts.head_ops),
        attention=law(counts.kv_bytes, counts.pair_ops),
        windows=counts.windows,
    )


@dataclass(slots=True)
class Pace:
    """How many times as long as at the start, lately. A measured start counts as a full window of steps."""

    is_measured: bool
    now: float = 1.0
    _ratios: deque[float] = field(init=False)

    def __post_init__(self) -> None:
        self._ratios = deque([1.0] * WINDOW if self.is_measured else [], maxlen=WINDOW)

    @property
    def is_full(self) -> bool:
        return len(self._ratios) == WINDOW

    def add(self, ratio: float) -> None:
        self._ratios.append(ratio)

    def refit(self) -> None:
        if self._ratios:
            self.now = median(self._ratios)

    @property
    def departs(self) -> bool:
        """From what was measured."""
        return self.is_measured and not 1 / DRIFT <= self.now <= DRIFT


@dataclass(slots=True)
class StepCostFit:
    """`cost()` is the StepCost that holds now."""

    start: StepCost
    is_measured: bool = False
    num_steps: int = 0
    has_drifted: bool = False
    reads: Pace = field(init=False)
    arithmetic: Pace = field(init=False)
    _cost: StepCost = field(init=False)

    def __post_init__(self) -> None:
        self.reads, self.arithmetic = Pace(self.is_measured), Pace(self.is_measured)
        self._cost = self.start

    def cost(self) -> StepCost:
        """The same object until the pace moves."""
        return self._cost

    def observe(self, rows: Sequence[RowPlan], *, wall_s: float, head_share: float = 1.0) -> None:
        """Learn from one step: how it compares with the start goes to the side that bounds it at the present pace.

        Of a step that read a part of the head that part is priced.
        """
        self.num_steps += 1
        likely = self.reads if rows[-1].num_tokens == 1 else self.arithmetic  # chunks come last
        if likely.is_full and self.num_steps % LEARN_STEPS:
            return
        overhead_s = self.start.base_s + self.start.row_s * len(rows)
        work_s, predicted_s = wall_s - overhead_s, self.start.seconds(rows) - overhead_s
        if head_share < 1.0:
            predicted_s -= (1.0 - head_share) * self.start.head.seconds(sum(row.num_logits for row in rows))
        if work_s <= 0 or predicted_s <= 0:
            return
        reads_s, arithmetic_s = self._cost.split(rows)
        pace = self.arithmetic if arithmetic_s > reads_s else self.reads
        pace.add(work_s / predicted_s)
        self._refit()

    def _refit(self) -> None:
        self.reads.refit()
        self.arithmetic.refit()
        self._cost = self.start.scaled(reads=self.reads.now, arithmetic=self.arithmetic.now)
        for pace, phase in ((self.arithmetic, "prefill"), (self.reads, "decode")):
            if pace.departs and not self.has_drifted:
                self.has_drifted = True
                logger.warning(
                    "steps of %s take %.2f times as long as the dyno measured: the machine is busy or has changed; "
                    "twostroke dyno checks it and measures again",
                    phase,
                    pace.now,
                )
