"""How much a step may hold and how much memory an answer will want: pure functions on numbers."""

from collections.abc import Iterable
from dataclasses import dataclass

from twostroke.core.step_cost import CostRow, StepCost

RATIO_STEP = 0.05  # of the output-ratio estimate: about 20 ends to forget an old load


@dataclass(frozen=True, slots=True)
class Tally:
    """What a step's rows add up to, priced by `cost`."""

    cost: StepCost
    num_tokens: int = 0
    num_sampled: int = 0
    rows_s: float = 0.0

    @staticmethod
    def of(cost: StepCost, rows: Iterable[CostRow]) -> "Tally":
        """Of these rows."""
        tally = Tally(cost)
        for row in rows:
            tally = tally.plus(start_pos=row.start_pos, num_tokens=row.num_tokens, num_logits=row.num_logits)
        return tally

    def plus(self, *, start_pos: int, num_tokens: int, num_logits: int) -> "Tally":
        """With one more row."""
        return Tally(
            self.cost,
            self.num_tokens + num_tokens,
            self.num_sampled + num_logits,
            self.rows_s + self.cost.row_seconds(start_pos, num_tokens),
        )

    @property
    def seconds(self) -> float:
        """Predicted time of the step."""
        return self.cost.seconds_of(num_tokens=self.num_tokens, num_sampled=self.num_sampled, rows_s=self.rows_s)


def chunk_within(
    tally: Tally,
    *,
    start_pos: int,
    num_missing: int,
    most: int,
    limit_s: float,
    is_scored: bool = False,
    whole_limit_s: float = 0.0,
) -> int:
    """Largest chunk from `start_pos`, up to `most` tokens, that keeps the step within `limit_s`; 0 if none does.

    A chunk with all `num_missing` tokens reaches the newest one, so it needs logits; of a scored one all tokens do.
    It may take until `whole_limit_s`: a rest of a few tokens would cost a step of its own.
    """

    def seconds(num_tokens: int) -> float:
        num_logits = num_tokens if is_scored else int(num_tokens == num_missing)
        return tally.plus(start_pos=start_pos, num_tokens=num_tokens, num_logits=num_logits).seconds

    if 0 < most == num_missing and seconds(most) <= whole_limit_s:
        return most
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if seconds(middle) <= limit_s:
            low = middle
        else:
            high = middle - 1
    return low


def next_output_ratio(ratio: float, *, fraction: float, quantile: float) -> float:
    """The estimate after an answer that used `fraction` of its max_tokens (above 1: memory ran out).

    A step towards the quantile (Robbins and Monro 1951): up by q when above the estimate, down by 1 - q
    when below, so it rests where a share q of answers lies below it.
    """
    step = RATIO_STEP * (quantile if fraction > ratio else quantile - 1)
    return min(max(ratio + step, 0.0), 1.0)
