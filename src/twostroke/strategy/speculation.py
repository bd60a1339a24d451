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
        rows = {each.sequence_id: _plain(each) for each in decoding}
        drafts: dict[int, tuple[int, ...]] = {}
        purse_s = self._purse_s
        for sequence in decoding:
            record = self._records.setdefault(sequence.sequence_id, _Record())
            record.num_steps += 1
            guess = tuple(self.drafter.propose(sequence, MAX_DRAFT))
            if not guess or purse_s <= 0:
                continue
            num_taken, extra_s = _worth(record, rows, sequence.sequence_id, guess, cost)
            if num_taken and record.num_steps % CONTROL_EVERY == 0:
                continue
            if not num_taken and record.num_steps % PROBE_EVERY == 0:
                num_taken, extra_s = 1, _extra(rows, sequence.sequence_id, guess[:1], cost)
            if not num_taken or extra_s * (1 - record.odds) > purse_s:
                continue
            purse_s -= extra_s * (1 - record.odds)
            drafts[sequence.sequence_id] = guess[:num_taken]
            rows[sequence.sequence_id] = _with(rows[sequence.sequence_id], guess[:num_taken])
        return drafts

    def learn(self, rows: Seq[RowPlan], num_grown: Mapping[int, int], *, cost: StepCost, wall_s: float) -> None:
        """See core.strategy.Speculator."""
        step_s = cost.seconds(rows)
        self.total_s += step_s
        self._purse_s += PURSE_SHARE * step_s
        plain = [row._replace(num_tokens=1, draft_token_ids=()) if row.draft_token_ids else row for row in rows]
        plain_s = cost.seconds(plain)
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


def _worth(
    record: _Record, rows: Mapping[int, RowPlan], sequence_id: int, guess: tuple[int, ...], cost: StepCost
) -> tuple[int, float]:
    """The number of drafted tokens with the best expected gain in time, and the seconds of verifying them; 0: none."""
    token_s = cost.seconds(rows.values()) / len(rows)
    best, odds, expected = (0, 0.0, 0.0), record.odds, 0.0
    for count in range(1, len(guess) + 1):
        expected += odds**count
        extra_s = _extra(rows, sequence_id, guess[:count], cost)
        if (gain_s := expected * token_s - extra_s) > best[2]:
            best = (count, extra_s, gain_s)
    return best[:2]


def _extra(rows: Mapping[int, RowPlan], sequence_id: int, guess: tuple[int, ...], cost: StepCost) -> float:
    """Seconds by which a step with this draft is longer."""
    changed = {**rows, sequence_id: _with(rows[sequence_id], guess)}
    return cost.seconds(changed.values()) - cost.seconds(rows.values())


def _plain(sequence: Sequence) -> RowPlan:
    return RowPlan(sequence.sequence_id, sequence.num_computed, 1, Phase.DECODE, needs_logits=True)


def _with(row: RowPlan, guess: tuple[int, ...]) -> RowPlan:
    return row._replace(num_tokens=1 + len(guess), draft_token_ids=guess)
