"""What may be lost to guesses: a small share of all work and a part of what right ones have saved.

Every kind of guess has a purse of its own, so that one that is always wrong takes nothing from one that is right. Kept
by the speculation; amounts are seconds of StepCost, but for those of looking, which are seconds of the clock.
"""

from dataclasses import dataclass
from math import ceil

# Of all work. What drafts take beside looks and StepCost (Python around them) is not booked: half as much again.
LOOKUP_SHARE, MODEL_SHARE = 0.005, 0.005
# Of what was lent. A pause of the machine, or a long text that is read once, is not held against guesses for ever.
MOST_DEBT = 0.5
KEPT_SAVINGS_SHARE = 0.05  # of all work: earlier luck does not pay for a long bad spell


@dataclass(slots=True)
class Purse:
    """Of one kind of guess."""

    share: float  # of all work
    credit_s: float = 0.0  # given once, before anything was earned
    total_s: float = 0.0  # all work
    lost_s: float = 0.0  # of it, guessing and verifying what was refused
    balance_s: float = 0.0

    def lend(self, credit_s: float) -> None:
        """Once, for a first try that work so far would not pay for."""
        if not self.credit_s:
            self.credit_s = credit_s
            self.balance_s += credit_s

    def earn(self, step_s: float) -> None:
        """A step was run."""
        self.total_s += step_s
        self.balance_s += self.share * step_s
        self._keep()

    def pay(self, seconds: float) -> None:
        """Looking for guesses took so long, whatever came of it; never deeper than `MOST_DEBT`."""
        self.balance_s = max(self.balance_s - seconds, min(self.balance_s, -MOST_DEBT * self.credit_s))

    def settle(self, *, spent_s: float, saved_s: float, refused_share: float) -> None:
        """Guesses took and saved so much; of the tokens a share was refused."""
        self.lost_s += spent_s * refused_share
        self.balance_s += saved_s - spent_s
        self._keep()

    def num_steps_to(self, missing_s: float, *, step_s: float, most: int) -> int:
        """Steps like this until it holds so much more, if no guess saves anything before."""
        return min(ceil(missing_s / (self.share * step_s)), most) if step_s > 0 else most

    def _keep(self) -> None:
        self.balance_s = min(self.balance_s, max(KEPT_SAVINGS_SHARE * self.total_s, self.credit_s))
