"""Plain decode steps in a row, in which next to nothing is done. Kept by the speculation.

Reading the weights empties the caches, so Python between two steps takes five times what it takes elsewhere: to look at
every sequence and to price every step would cost 2 % of a small model's time.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from twostroke.core.phase import Phase
from twostroke.core.step import RowPlan

PRICED_EVERY = 16  # steps: with its depth the price of a step hardly grows in so few


@dataclass(slots=True)
class PlainSpell:
    """Steps like the one priced last, counted and not yet booked; and how many more need no look at drafts."""

    num_left: int = 0
    num_skipped: int = 0  # steps without a look that the sequences have not counted yet
    num_sequences: int = 0
    num_rows: int = 0
    step_s: float = 0.0  # StepCost of each
    num_steps: int = 0
    wall_s: float = 0.0

    def sleep(self, num_steps: int, *, num_sequences: int) -> None:
        """No draft is worth a look in so many steps to come, while that many sequences run and none ends."""
        self.num_left, self.num_sequences = num_steps, num_sequences

    def skips(self, num_running: int) -> bool:
        """Whether the present step is one of these."""
        if not self.num_left or num_running != self.num_sequences:
            return False
        self.num_left -= 1
        self.num_skipped += 1
        return True

    def counted(self) -> int:
        """Steps that were skipped since this was asked last."""
        num_skipped, self.num_skipped = self.num_skipped, 0
        return num_skipped

    def begin(self, num_rows: int, *, step_s: float) -> None:
        """A plain step was booked; those like it need not be priced."""
        self.num_rows, self.step_s, self.num_steps, self.wall_s = num_rows, step_s, 0, 0.0

    def takes(self, rows: Seq[RowPlan], *, wall_s: float) -> bool:
        """Count a step without drafts, if it is like the last: as many rows, all of decode, as chunks come last."""
        if len(rows) != self.num_rows or rows[-1].phase is not Phase.DECODE or self.num_steps >= PRICED_EVERY:
            return False
        self.num_steps += 1
        self.wall_s += wall_s
        return True
