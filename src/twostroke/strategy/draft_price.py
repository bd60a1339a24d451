"""What drafted tokens cost by StepCost and how many of them should pay: pure arithmetic, asked by the speculation.

A step in the making is priced as drafts join it: asked often, so no row is priced twice.
"""

from collections.abc import Callable, Sequence as Seq
from dataclasses import dataclass

from twostroke.core.sequence import Sequence
from twostroke.core.step_cost import StepCost


@dataclass(slots=True)
class DraftedStep:
    """One decode step: a token of each sequence, and the drafts that have joined it."""

    cost: StepCost
    num_sequences: int
    num_tokens: int  # each of them needs logits
    rows_s: float

    @staticmethod
    def of(decoding: Seq[Sequence], cost: StepCost) -> "DraftedStep":
        """Without drafts."""
        rows_s = sum(cost.row_seconds(each.num_computed, 1) for each in decoding)
        return DraftedStep(cost, len(decoding), len(decoding), rows_s)

    @property
    def seconds(self) -> float:
        return self._seconds(self.num_tokens, self.rows_s)

    def least_extra_s(self) -> float:
        """Seconds by which the step is longer with one drafted token of whichever sequence, attention left out."""
        return self._seconds(self.num_tokens + 1, self.rows_s) - self.seconds

    def extra_s(self, sequence: Sequence, num_drafted: int) -> float:
        """Seconds by which the step is longer with so many drafted tokens of a sequence that has none yet."""
        return self._seconds(self.num_tokens + num_drafted, self._rows_with(sequence, num_drafted)) - self.seconds

    def add(self, sequence: Sequence, num_drafted: int) -> None:
        """They join it."""
        self.rows_s = self._rows_with(sequence, num_drafted)
        self.num_tokens += num_drafted

    def _rows_with(self, sequence: Sequence, num_drafted: int) -> float:
        start_pos, row_seconds = sequence.num_computed, self.cost.row_seconds
        return self.rows_s - row_seconds(start_pos, 1) + row_seconds(start_pos, 1 + num_drafted)

    def _seconds(self, num_tokens: int, rows_s: float) -> float:
        return self.cost.seconds_of(num_tokens=num_tokens, num_sampled=num_tokens, rows_s=rows_s)


def best_count(odds: float, *, token_s: float, price: Callable[[int], float], most: int) -> tuple[int, float]:
    """The number of drafted tokens that should gain most, and the gain in seconds; 0 where none gains.

    A right token saves `token_s`; the next one can be right only if those before it were. One and `most` are looked
    at first: where neither gains, those between do not, as the price per token falls or rises but does not do both.
    """
    if most == 0 or max(_gain(odds, 1, token_s, price), _gain(odds, most, token_s, price)) <= 0:
        return 0, 0.0
    gain_s, count = max((_gain(odds, count, token_s, price), -count) for count in range(1, most + 1))
    return (-count, gain_s) if gain_s > 0 else (0, 0.0)


def expected_right(odds: float, num_drafted: int) -> float:
    """Of so many drafted tokens."""
    return float(num_drafted) if odds >= 1 else odds * (1 - odds**num_drafted) / (1 - odds)


def _gain(odds: float, count: int, token_s: float, price: Callable[[int], float]) -> float:
    return expected_right(odds, count) * token_s - price(count)


def round_seconds(cost: StepCost, *, start_pos: int, num_sequences: int) -> float:
    """A sequence's share of one round of a draft model: a step in which so many like it guess a token each."""
    rows_s = num_sequences * cost.row_seconds(start_pos, 1)
    return cost.seconds_of(num_tokens=num_sequences, num_sampled=num_sequences, rows_s=rows_s) / num_sequences


def reading_seconds(cost: StepCost, *, num_tokens: int, num_unread: int) -> float:
    """What a draft model takes to read all but the newest of its unread tokens, on top of its first round."""
    if num_unread <= 1:
        return 0.0
    start_pos = num_tokens - num_unread
    whole_s = cost.seconds_of(num_tokens=num_unread, num_sampled=1, rows_s=cost.row_seconds(start_pos, num_unread))
    newest_s = cost.seconds_of(num_tokens=1, num_sampled=1, rows_s=cost.row_seconds(num_tokens - 1, 1))
    return whole_s - newest_s
