"""Rows -> seconds: the one cost model scheduler and ledger share. Frozen; written by measurement.

A step is three classes of ops, each timed by a curve over its own size: `linear` over tokens (projections
and MLP with the norms fused into them), `head` over the rows that need logits, `attention` over the
tokens of a row, per position they see.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from twostroke.causal import visible_pairs


class CostRow(Protocol):
    """What a row must tell to be priced."""

    @property
    def start_pos(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def num_logits(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Law:
    """Bytes read once for any size, and arithmetic per unit of it; the two overlap in part.

    t(n) = (read_s^p + (unit_s n)^p)^(1/p): p = 1 is one after the other, a large p the longer of the two.
    """

    read_s: float
    unit_s: float
    sharpness: float  # p

    def __post_init__(self) -> None:
        assert self.read_s >= 0, f"read_s is {self.read_s}"
        assert self.unit_s >= 0, f"unit_s is {self.unit_s}"
        assert self.sharpness >= 1, f"sharpness is {self.sharpness}"

    def split(self, size: float) -> tuple[float, float]:
        """Seconds of reads and of arithmetic, were each alone."""
        return self.read_s, self.unit_s * size

    def seconds(self, size: float) -> float:
        """Predicted time for `size` units, 0 for none."""
        if size <= 0:
            return 0.0
        reads_s, units_s = self.read_s, self.unit_s * size
        longer_s, shorter_s = (reads_s, units_s) if reads_s > units_s else (units_s, reads_s)
        if shorter_s == 0.0:
            return longer_s
        p = self.sharpness
        return float(longer_s * (1.0 + (shorter_s / longer_s) ** p) ** (1.0 / p))

    def scaled(self, *, reads: float, arithmetic: float) -> "Law":
        """On a machine whose reads and arithmetic take that many times as long."""
        return Law(self.read_s * reads, self.unit_s * arithmetic, self.sharpness)


@dataclass(frozen=True, slots=True)
class Table:
    """Measured times where no law fits: straight lines between them, the last one goes on.

    What the smallest size takes counts as reads, what is added to it as arithmetic.
    """

    points: tuple[tuple[float, float], ...]  # (size, seconds): sizes ascend, seconds never descend

    def __post_init__(self) -> None:
        assert self.points, "no points"
        for (size, seconds), (next_size, next_seconds) in zip(self.points, self.points[1:], strict=False):
            assert 0 < size < next_size, f"sizes {size}, {next_size} do not ascend"
            assert 0 <= seconds <= next_seconds, f"{seconds} s at {size}, {next_seconds} s at {next_size} descend"

    def split(self, size: float) -> tuple[float, float]:
        """Seconds of reads and of arithmetic."""
        first_s = self.points[0][1]
        return first_s, self.seconds(size) - first_s

    def seconds(self, size: float) -> float:
        """Interpolated time for `size` units, 0 for none."""
        points = self.points
        if size <= 0:
            return 0.0
        if size <= points[0][0] or len(points) == 1:
            return points[0][1]
        right = min(bisect_right(points, size, key=lambda point: point[0]), len(points) - 1)
        (low, low_s), (high, high_s) = points[right - 1], points[right]
        return low_s + (high_s - low_s) * (size - low) / (high - low)

    def scaled(self, *, reads: float, arithmetic: float) -> "Table":
        """On a machine whose reads and arithmetic take that many times as long."""
        first_s = self.points[0][1]
        return Table(tuple((size, first_s * reads + (time_s - first_s) * arithmetic) for size, time_s in self.points))


Curve = Law | Table


@dataclass(frozen=True, slots=True)
class StepCost:
    """Predicted time of one step from the plan to the logits, and of choosing its tokens."""

    base_s: float  # a step of the engine with nothing in it
    row_s: float  # one more row
    sample_s: float  # choosing one token
    linear: Curve  # tokens of the step -> seconds
    head: Curve  # rows that need logits -> seconds
    attention: Curve  # tokens of a row -> seconds per position each of them sees
    windows: tuple[tuple[int | None, float], ...] = ((None, 1.0),)  # per KV group, its share of the attention

    def seconds(self, rows: Iterable[CostRow]) -> float:
        """Predicted seconds of a step with these rows, without sampling; 0 for no rows."""
        num_tokens = num_sampled = 0
        rows_s = 0.0
        for row in rows:
            num_tokens += row.num_tokens
            num_sampled += row.num_logits
            rows_s += self.row_seconds(row.start_pos, row.num_tokens)
        return self.seconds_of(num_tokens=num_tokens, num_sampled=num_sampled, rows_s=rows_s)

    def seconds_of(self, *, num_tokens: int, num_sampled: int, rows_s: float) -> float:
        """The same from what the rows add up to: tokens, rows that need logits, `row_seconds`."""
        if num_tokens == 0:
            return 0.0
        return self.base_s + rows_s + self.linear.seconds(num_tokens) + self.head.seconds(num_sampled)

    def row_seconds(self, start_pos: int, num_tokens: int) -> float:
        """What a row adds whoever is beside it: its overhead and its attention."""
        return self.row_s + self.attention.seconds(num_tokens) * self._positions(start_pos, num_tokens)

    def sampling_seconds(self, rows: Iterable[CostRow]) -> float:
        """Predicted seconds of choosing the tokens of a step with these rows."""
        return self.sample_s * sum(row.num_logits for row in rows)

    def split(self, rows: Iterable[CostRow]) -> tuple[float, float]:
        """Seconds of reads and of arithmetic in a step with these rows, overheads left out."""
        rows = list(rows)
        parts = [self.linear.split(sum(row.num_tokens for row in rows))]
        if num_sampled := sum(row.num_logits for row in rows):
            parts.append(self.head.split(num_sampled))
        for row in rows:
            positions = self._positions(row.start_pos, row.num_tokens)
            reads_s, arithmetic_s = self.attention.split(row.num_tokens)
            parts.append((reads_s * positions, arithmetic_s * positions))
        return sum(reads_s for reads_s, _ in parts), sum(arithmetic_s for _, arithmetic_s in parts)

    def scaled(self, *, reads: float, arithmetic: float) -> "StepCost":
        """On a machine whose reads and arithmetic take that many times as long; overheads stay."""
        return StepCost(
            base_s=self.base_s,
            row_s=self.row_s,
            sample_s=self.sample_s,
            linear=self.linear.scaled(reads=reads, arithmetic=arithmetic),
            head=self.head.scaled(reads=reads, arithmetic=arithmetic),
            attention=self.attention.scaled(reads=reads, arithmetic=arithmetic),
            windows=self.windows,
        )

    def _positions(self, start_pos: int, num_tokens: int) -> float:
        """Positions a token of the row sees, on average over its tokens and over the KV groups by their shares."""
        pairs = 0.0
        for window, share in self.windows:
            pairs += share * visible_pairs(start_pos, num_tokens, window=window)
        return pairs / num_tokens
