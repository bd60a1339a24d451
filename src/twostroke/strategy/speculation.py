"""How many drafted tokens to verify, zero included: as many as should pay by StepCost and by what was right so far.

A verified token costs what StepCost says the larger step takes longer; a right one saves its share of a step. Refused
drafts are paid from a purse that fills with a small share of all work and with what drafts have saved: a text without
repetition costs no more than that share. Called by the engine before plan and after commit.
"""

from collections.abc import Mapping, Sequence as Seq
from dataclasses import dataclass, field

from twostroke.core.event import Speculation
from twostroke.core.phase import Phase
from twostroke.core.sequence import Sequence
from twostroke.core.step import RowPlan
from twostroke.core.step_cost import StepCost
from twostroke.core.strategy import Drafter

MAX_DRAFT = 8  # tokens per sequence and step
PURSE_SHARE = 0.015  # of all StepCost may be lost to refused drafts
KEPT_SAVINGS_SHARE = 0.05  # of all StepCost: earlier luck does not pay for a long bad spell
CONTROL_EVERY = 32  # one step in so many goes without drafts where they pay: the other side of the measured gain
PROBE_EVERY = 16  # a sequence whose drafts do not pay is tried again with one token, if the purse allows
FORGETTING = 0.9  # weight of the past with every verified draft
PRIOR_RIGHT, PRIOR_WRONG = 2.0, 1.0  # before anything is known: two right tokens for a wrong one


@dataclass(slots=True)
class _Record:
    """One sequence: how often drafts were right lately, and what its steps took with and without them."""

    right: float = PRIOR_RIGHT
    wrong: float = PRIOR_WRONG
    drafted: int = 0
    accepted: int = 0
    num_steps: int = 0
    plain_s: float = 0.0
    plain_tokens: int = 0
    drafted_s: float = 0.0
    drafted_tokens: int = 0

    @property
    def odds(self) -> float:
        """Chance that a drafted token is right once those before it were."""
        return self.right / (self.right + self.wrong)

    def see(self, *, num_drafted: int, num_accepted: int) -> None:
        self.right = self.right * FORGETTING + num_accepted
        self.wrong = self.wrong * FORGETTING + (num_accepted < num_drafted)
        self.drafted += num_drafted
        self.accepted += num_accepted

    @property
    def gain(self) -> float | None:
        if not (self.plain_tokens and self.drafted_tokens):
            return None
        return (self.plain_s / self.plain_tokens) / (self.drafted_s / self.drafted_tokens)


@dataclass(slots=True)
class SpeculationControl:
    """The drafts of one engine."""

    drafter: Drafter
    total_s: float = 0.0  # StepCost of all steps
    lost_s: float = 0.0  # StepCost of verifying refused tokens
    _purse_s: float = 0.0
    _records: dict[int, _Record] = field(default_factory=dict)

    def draft(self, decoding: Seq[Sequence], cost: StepCost) -> Mapping[int, tuple[int, ...]]:
        """See core.strategy.Speculator."""
        if not decoding:
            return {}
        step = _Step.of(decoding, cost)
        drafts: dict[int, tuple[int, ...]] = {}
        purse_s = self._purse_s
        for sequence in decoding:
            record = self._records.setdefault(sequence.sequence_id, _Record())
            record.num_steps += 1
            guess = tuple(self.drafter.propose(sequence, MAX_DRAFT))
            if not guess or purse_s <= 0:
                continue
            num_taken, extra_s = _worth(record.odds, step, sequence, num_guessed=len(guess))
            if num_taken and record.num_steps % CONTROL_EVERY == 0:
                continue
            if not num_taken and record.num_steps % PROBE_EVERY == 0:
                num_taken, extra_s = 1, step.extra_s(sequence, 1)
            if not num_taken or extra_s * (1 - record.odds) > purse_s:
                continue
            purse_s -= extra_s * (1 - record.odds)
            drafts[sequence.sequence_id] = guess[:num_taken]
            step.add(sequence, num_taken)
        return drafts

    def learn(self, rows: Seq[RowPlan], num_grown: Mapping[int, int], *, cost: StepCost, wall_s: float) -> None:
        """See core.strategy.Speculator."""
        step_s = cost.seconds(rows)
        self.total_s += step_s
        self._purse_s += PURSE_SHARE * step_s
        plain_s = cost.seconds(row.without_drafts for row in rows)
        decodes = [row for row in rows if row.phase is Phase.DECODE]
        extra_s, num_drafted = step_s - plain_s, sum(len(row.draft_token_ids) for row in rows)
        for row in decodes:
            self._see(row, num_grown.get(row.sequence_id, 0), is_alone=len(rows) == len(decodes), wall_s=wall_s)
        if num_drafted:
            num_accepted = sum(num_grown.get(row.sequence_id, 1) - 1 for row in decodes)
            self.lost_s += extra_s * (num_drafted - num_accepted) / num_drafted
            self._purse_s += num_accepted * plain_s / len(decodes) - extra_s
        self._purse_s = min(self._purse_s, KEPT_SAVINGS_SHARE * self.total_s)

    def _see(self, row: RowPlan, num_grown: int, *, is_alone: bool, wall_s: float) -> None:
        record = self._records.get(row.sequence_id)
        if record is None or not num_grown:
            return
        if row.draft_token_ids:
            record.see(num_drafted=len(row.draft_token_ids), num_accepted=num_grown - 1)
        if not is_alone:
            return  # a prefill in the step is no matter of drafts
        if row.draft_token_ids:
            record.drafted_s += wall_s
            record.drafted_tokens += num_grown
        else:
            record.plain_s += wall_s
            record.plain_tokens += num_grown

    def forget(self, sequence_id: int) -> Speculation | None:
        """See core.strategy.Speculator."""
        self.drafter.forget(sequence_id)
        record = self._records.pop(sequence_id, None)
        if record is None:
            return None
        return Speculation(record.drafted, record.accepted, record.gain)


@dataclass(slots=True)
class _Step:
    """The decode step in the making, priced as drafts join it: asked often, so no row is priced twice."""

    cost: StepCost
    num_sequences: int
    num_tokens: int  # each of them needs logits
    rows_s: float

    @staticmethod
    def of(decoding: Seq[Sequence], cost: StepCost) -> "_Step":
        """One token of each."""
        rows_s = sum(cost.row_seconds(each.num_computed, 1) for each in decoding)
        return _Step(cost, len(decoding), len(decoding), rows_s)

    @property
    def seconds(self) -> float:
        return self._seconds(self.num_tokens, self.rows_s)

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


def _worth(odds: float, step: _Step, sequence: Sequence, *, num_guessed: int) -> tuple[int, float]:
    """The number of drafted tokens with the best expected gain in time, and the seconds of verifying them; 0: none."""
    token_s = step.seconds / step.num_sequences
    best, expected = (0, 0.0, 0.0), 0.0
    for count in range(1, num_guessed + 1):
        expected += odds**count
        extra_s = step.extra_s(sequence, count)
        if (gain_s := expected * token_s - extra_s) > best[2]:
            best = (count, extra_s, gain_s)
    return best[:2]
