"""What one sequence's drafts did so far: how often they were right, and what its steps took with and without them.

Kept and read by the speculation.
"""

from dataclasses import dataclass, field

from twostroke.core.event import DraftStop, Speculation

FORGETTING = 0.9  # weight of the past with every verified draft
PRIOR_RIGHT, PRIOR_WRONG = 2.0, 1.0  # before anything is known: two right tokens for a wrong one
FIRST_REACH = 2  # the first draft of a text is most likely to be wrong: it is a short one
PACE_FORGETTING = 0.9  # weight of the past with every plain step


@dataclass(slots=True)
class Acceptance:
    """Of one kind of guess for one sequence, and whether it is worth a look now."""

    right: float = PRIOR_RIGHT
    wrong: float = PRIOR_WRONG
    reach: int = FIRST_REACH  # tokens to draft at most: twice as many after each draft that was right to its end
    asleep_until: int = 0  # step of the engine
    asleep_beside: int = 0  # while so many sequences decode

    @property
    def odds(self) -> float:
        """Chance that a drafted token is right once those before it were."""
        return self.right / (self.right + self.wrong)

    def see(self, *, num_drafted: int, num_accepted: int) -> None:
        self.right = self.right * FORGETTING + num_accepted
        self.wrong = self.wrong * FORGETTING + (num_accepted < num_drafted)
        self.reach = max(self.reach, 2 * num_drafted) if num_accepted == num_drafted else num_accepted + FIRST_REACH

    def sleep(self, step: int, *, every: int, beside: int, num_steps: int = 1) -> None:
        """It does not pay: nothing of it is looked at for `num_steps` and then up to a multiple of `every`.

        Unless the batch changes. All sequences wake in the same steps, so that the steps between can pass without a
        look.
        """
        self.asleep_until, self.asleep_beside = -(-(step + num_steps) // every) * every, beside

    def wakes(self, step: int, *, beside: int) -> int:
        """The first step from this one on in which it is worth a look, if the batch stays."""
        return step if beside != self.asleep_beside else max(step, self.asleep_until)

    def has_slept(self, step: int) -> bool:
        """To the end: it may be tried again, whatever the odds say."""
        return step >= self.asleep_until > 0


@dataclass(slots=True)
class DecodeTime:
    """Of all steps of decode alone, and what StepCost says they would have taken without drafts.

    `pace` is wall time / StepCost of plain steps, lately: the other side of the measured gain.
    """

    wall_s: float = 0.0
    plain_cost_s: float = 0.0
    _pace_wall_s: float = 0.0
    _pace_cost_s: float = 0.0

    def see(self, *, wall_s: float, plain_cost_s: float, is_plain: bool) -> None:
        self.wall_s += wall_s
        self.plain_cost_s += plain_cost_s
        if is_plain:
            self._pace_wall_s = self._pace_wall_s * PACE_FORGETTING + wall_s
            self._pace_cost_s = self._pace_cost_s * PACE_FORGETTING + plain_cost_s

    @property
    def pace(self) -> float | None:
        return self._pace_wall_s / self._pace_cost_s if self._pace_cost_s > 0 else None


@dataclass(slots=True)
class DraftRecord:
    """One sequence; it decodes from `began_wall_s` and `began_cost_s` of the engine's DecodeTime on."""

    began_wall_s: float = 0.0
    began_cost_s: float = 0.0
    lookup: Acceptance = field(default_factory=Acceptance)
    model: Acceptance = field(default_factory=Acceptance)
    guesser: Acceptance | None = None  # whose guess the present step verifies
    stop: DraftStop | None = None  # why the last steps went without
    _drafted: int = 0
    _accepted: int = 0
    _saved_cost_s: float = 0.0  # StepCost of the plain steps that accepted tokens stood in for

    def verify(self, *, num_drafted: int, num_accepted: int, plain_cost_s: float) -> None:
        """A draft was verified, in a step that would have cost so much without it; 0 where a prefill was beside it."""
        if self.guesser is not None:
            self.guesser.see(num_drafted=num_drafted, num_accepted=num_accepted)
        self._drafted += num_drafted
        self._accepted += num_accepted
        self._saved_cost_s += num_accepted * plain_cost_s

    def told(self, time: DecodeTime, *, kv_bytes: int) -> Speculation:
        """All of it, as the request hears it at its end."""
        wall_s, gain = time.wall_s - self.began_wall_s, None
        if self._drafted and wall_s > 0 and time.pace is not None:
            gain = time.pace * (time.plain_cost_s - self.began_cost_s + self._saved_cost_s) / wall_s
        return Speculation(self._drafted, self._accepted, gain, self.stop, kv_bytes)
