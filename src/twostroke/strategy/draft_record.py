"""What one sequence's drafts did so far: how often they were right, and what its steps took with and without them.

Kept and read by the speculation.
"""

from dataclasses import dataclass, field

from twostroke.core.event import DraftStop, Speculation

FORGETTING = 0.9  # weight of the past with every verified draft
PRIOR_RIGHT, PRIOR_WRONG = 2.0, 1.0  # before anything is known: two right tokens for a wrong one
PACE_FORGETTING = 0.9  # weight of the past with every plain step


@dataclass(slots=True)
class Acceptance:
    """Of one kind of guess for one sequence."""

    right: float = PRIOR_RIGHT
    wrong: float = PRIOR_WRONG

    @property
    def odds(self) -> float:
        """Chance that a drafted token is right once those before it were."""
        return self.right / (self.right + self.wrong)

    def see(self, *, num_drafted: int, num_accepted: int) -> None:
        self.right = self.right * FORGETTING + num_accepted
        self.wrong = self.wrong * FORGETTING + (num_accepted < num_drafted)


@dataclass(slots=True)
class PlainPace:
    """Wall time of plain decode steps / what StepCost said of them, lately: the other side of the measured gain."""

    wall_s: float = 0.0
    cost_s: float = 0.0

    def see(self, *, wall_s: float, cost_s: float) -> None:
        self.wall_s = self.wall_s * PACE_FORGETTING + wall_s
        self.cost_s = self.cost_s * PACE_FORGETTING + cost_s

    @property
    def ratio(self) -> float | None:
        return self.wall_s / self.cost_s if self.cost_s > 0 else None


@dataclass(slots=True)
class DraftRecord:
    """One sequence."""

    lookup: Acceptance = field(default_factory=Acceptance)
    model: Acceptance = field(default_factory=Acceptance)
    guesser: Acceptance | None = None  # whose guess the present step verifies
    num_steps: int = 0
    stop: DraftStop | None = None  # why the last steps went without
    asleep_until: int = 0  # step before which the draft model is not asked again
    asleep_beside: int = 0  # while so many sequences decode
    _drafted: int = 0
    _accepted: int = 0
    _wall_s: float = 0.0
    _plain_cost_s: float = 0.0  # StepCost of as many plain steps as the tokens of these steps

    def verify(self, *, num_drafted: int, num_accepted: int) -> None:
        """A draft was verified."""
        if self.guesser is not None:
            self.guesser.see(num_drafted=num_drafted, num_accepted=num_accepted)
        self._drafted += num_drafted
        self._accepted += num_accepted

    def live_through(self, *, num_grown: int, plain_cost_s: float, wall_s: float) -> None:
        """A step of decode alone; a prefill beside it is no matter of drafts."""
        self._wall_s += wall_s
        self._plain_cost_s += num_grown * plain_cost_s

    def told(self, pace: PlainPace, *, kv_bytes: int) -> Speculation:
        """All of it, as the request hears it at its end."""
        gain = None
        if self._drafted and self._wall_s > 0 and pace.ratio is not None:
            gain = self._plain_cost_s * pace.ratio / self._wall_s
        return Speculation(self._drafted, self._accepted, gain, self.stop, kv_bytes)
