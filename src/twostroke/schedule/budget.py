"""How much a step may hold and how much memory an answer will want: pure functions on numbers."""

from typing import NamedTuple

from twostroke.core.step_cost import StepCost

RATIO_STEP = 0.05  # of the output-ratio estimate: about 20 ends to forget an old load


class Tally(NamedTuple):
    """Totals of a step's rows, what StepCost prices."""

    num_rows: int = 0
    num_tokens: int = 0
    num_kv: int = 0
    num_pairs: int = 0

    def plus(self, *, start_pos: int, num_tokens: int) -> "Tally":
        """With one more row."""
        pairs = num_tokens * start_pos + num_tokens * (num_tokens + 1) // 2 if num_tokens > 1 else 0
        return Tally(
            self.num_rows + 1,
            self.num_tokens + num_tokens,
            self.num_kv + start_pos + num_tokens,
            self.num_pairs + pairs,
        )

    def seconds(self, cost: StepCost) -> float:
        """Predicted time of the step."""
        return cost.seconds_of(
            num_rows=self.num_rows, num_tokens=self.num_tokens, num_kv=self.num_kv, num_pairs=self.num_pairs
        )


def chunk_within(cost: StepCost, tally: Tally, *, start_pos: int, most: int, limit_s: float) -> int:
    """Largest chunk from `start_pos`, up to `most` tokens, that keeps the step within `limit_s`; 0 if none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if tally.plus(start_pos=start_pos, num_tokens=middle).seconds(cost) <= limit_s:
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
