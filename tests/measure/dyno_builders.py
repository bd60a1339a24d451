"""A machine of known law in virtual time, and the small dyno it gives."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from twostroke.core.clock import VirtualClock
from twostroke.core.cost_file import CostKey
from twostroke.core.peaks import Peaks
from twostroke.core.step_cost import Law, StepCost
from twostroke.engine.cost_fit import StepCounts
from twostroke.measure.dyno import Dyno, PhaseTimes
from twostroke.measure.dyno_fit import fit_cost
from twostroke.measure.dyno_machine import ReadRate
from twostroke.measure.dyno_shapes import Limits, Shape, calibration_shapes
from twostroke.measure.dyno_steps import Timing
from twostroke.phase_threads import PhaseThreads
from twostroke.program.cost import Row
from twostroke.program.program import BoundStep, KVGroup

WINDOW = 512
GROUPS = (
    KVGroup(id=0, layers=(0, 1, 2, 3, 4), num_kv_heads=1, head_dim=64, window=WINDOW),
    KVGroup(id=1, layers=(5,), num_kv_heads=1, head_dim=64, window=None),
)
LIMITS = Limits(max_tokens=512, max_rows=32, context=8192, block_size=16, num_blocks=(3000, 3000), groups=GROUPS)
COUNTS = StepCounts(
    weight_bytes=66e6,
    token_ops=212e6,
    head_bytes=30e6,
    head_ops=56e6,
    kv_bytes=23e3,
    pair_ops=70e3,
    windows=((WINDOW, 5 / 6), (None, 1 / 6)),
)
TRUTH = StepCost(
    base_s=10e-6,
    row_s=5e-6,
    sample_s=8e-6,
    linear=Law(2e-3, 4.5e-4, 1.6),
    head=Law(8e-4, 1.3e-4, 1.6),
    attention=Law(7e-7, 2.4e-7, 1.7),
    windows=COUNTS.windows,
)
START = StepCost(
    base_s=10e-6,
    row_s=2e-6,
    sample_s=8e-6,
    linear=Law(66e6 / 40e9, 212e6 / 940e9, 1.5),
    head=Law(30e6 / 40e9, 56e6 / 940e9, 1.5),
    attention=Law(23e3 / 40e9, 70e3 / 940e9, 1.5),
    windows=COUNTS.windows,
)
KEY = CostKey(cpu="CPU", cores=2, isa="avx512", threads=None, build="b", model="m", precision="bf16")


def timings_of(cost: StepCost, shapes: Sequence[Shape] = calibration_shapes(LIMITS)) -> tuple[Timing, ...]:
    return tuple(Timing(shape, cost.seconds(shape)) for shape in shapes)


def make_dyno() -> Dyno:
    timings = timings_of(TRUTH)
    return Dyno(
        key=KEY,
        threads=PhaseThreads(2, 2),
        fit=fit_cost(timings, start=START),
        counts=COUNTS,
        timings=timings,
        num_rounds=5,
        reference_read_bytes_per_s=40e9,
        reference_dot_ops_per_s=900e9,
        peaks=Peaks(2, "avx512", 940e9, 470e9, 235e9, 41e9),
        reads=(ReadRate(1 << 20, 1, 90e9), ReadRate(1 << 28, 1, 20e9), ReadRate(1 << 28, 2, 40e9)),
        phases=(PhaseTimes(1, 4e-3, 0.2), PhaseTimes(2, 3e-3, 0.1)),
        disk_bytes_per_s=None,
        took_s=12.5,
    )


class LawfulReader:
    """Takes the virtual time a law says, and keeps the steps it ran."""

    def __init__(self, clock: VirtualClock, cost: StepCost = TRUTH) -> None:
        self.clock = clock
        self.cost = cost
        self.steps: list[BoundStep] = []
        self.copies: list[tuple[int, int, int]] = []
        self.slow_steps: set[int] = set()  # numbers of runs a neighbour made ten times as long

    def run(self, step: BoundStep) -> npt.NDArray[np.float32]:
        selected = set(step.selected.tolist())
        rows = [
            Row(int(pos), int(end - start), needs_logits=int(end) - 1 in selected)
            for pos, start, end in zip(step.row_positions, step.row_starts[:-1], step.row_starts[1:], strict=True)
        ]
        self.clock.advance(self.cost.seconds(rows) * (10 if len(self.steps) in self.slow_steps else 1))
        self.steps.append(step)
        return np.zeros((len(step.selected), 4), np.float32)

    def copy_block(self, group: int, source: int, target: int) -> None:
        self.copies.append((group, source, target))

    @property
    def kv_bytes_per_block(self) -> tuple[int, ...]:
        return (1, 1)

    def close(self) -> None:
        pass


class SteadyProbe:
    """Reads and multiplies at a fixed rate of virtual time."""

    def __init__(self, clock: VirtualClock, *, read_bytes_per_s: float = 40e9, ops_per_s: float = 900e9) -> None:
        self.clock = clock
        self.read_bytes_per_s = read_bytes_per_s
        self.ops_per_s = ops_per_s

    def compute(self, unit: str, rounds: int, /) -> int:
        assert unit in ("int8", "bf16", "fp32")
        self.clock.advance(rounds / self.ops_per_s)
        return rounds

    def read(self) -> int:
        self.clock.advance(1e6 / self.read_bytes_per_s)
        return 1_000_000
