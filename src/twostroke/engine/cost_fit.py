"""StepCost from the engine's own steps, until a measured profile of the machine exists.

The program tells the counts (operations and bytes per token, position and pair); the steps tell the
rates. Only the rates are fitted: three numbers, each a running median, so one late step moves nothing.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from twostroke.core.step import RowPlan
from twostroke.core.step_cost import StepCost

WINDOW = 31  # steps remembered per rate: long enough for a steady median, short enough to follow a noisy machine
PRIOR_OPS_PER_S = 50e9  # one slow core without vector dot products
PRIOR_BYTES_PER_S = 5e9
BASE_S = 100e-6  # plan, bind and barriers of a step with nothing in it
REFIT_STEPS = 8  # a full window moves slowly: no need to sort it in every step
ROW_S = 10e-6  # Python per row, the stated bound


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What a step costs in operations and bytes, from the program alone."""

    weight_bytes: float  # read once per step
    token_ops: float  # linear operations of one token, without the head
    kv_bytes: float  # read per stored position
    pair_ops: float  # operations per query-key pair


@dataclass(slots=True)
class StepCostFit:
    """Running rates; `cost()` is the StepCost they give now."""

    counts: StepCounts
    ops_per_s: float = PRIOR_OPS_PER_S
    bytes_per_s: float = PRIOR_BYTES_PER_S
    num_observed: int = 0
    _cost: StepCost = field(init=False)
    _ops_rates: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _bytes_rates: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def __post_init__(self) -> None:
        self._refit()

    def cost(self) -> StepCost:
        """The same object until the rates move."""
        return self._cost

    def _refit(self) -> None:
        if self._ops_rates:
            self.ops_per_s = median(self._ops_rates)
        if self._bytes_rates:
            self.bytes_per_s = median(self._bytes_rates)
        counts = self.counts
        self._cost = StepCost(
            base_s=BASE_S,
            weights_s=counts.weight_bytes / self.bytes_per_s,
            token_s=counts.token_ops / self.ops_per_s,
            row_s=ROW_S,
            kv_s=counts.kv_bytes / self.bytes_per_s,
            pair_s=counts.pair_ops / self.ops_per_s,
        )

    def observe(self, rows: Sequence[RowPlan], *, wall_s: float) -> None:
        """Learn from one step: the side that bounds it under the present rates takes the time."""
        work_s = wall_s - BASE_S - ROW_S * len(rows)
        if work_s <= 0:
            return
        num_tokens = sum(row.num_tokens for row in rows)
        kv_bytes = self.counts.kv_bytes * sum(row.start_pos + row.num_tokens for row in rows)
        pairs = sum(row.num_tokens * (row.start_pos + (row.num_tokens + 1) / 2) for row in rows if row.num_tokens > 1)
        ops = self.counts.token_ops * num_tokens + self.counts.pair_ops * pairs
        num_bytes = self.counts.weight_bytes + kv_bytes
        if ops / self.ops_per_s > num_bytes / self.bytes_per_s and num_tokens > len(rows):
            rates, rate = self._ops_rates, ops / work_s
        else:
            rates, rate = self._bytes_rates, num_bytes / work_s
        rates.append(rate)
        self.num_observed += 1
        if len(rates) < WINDOW or self.num_observed % REFIT_STEPS == 0:
            self._refit()
