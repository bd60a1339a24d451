"""The account of a request: facts the engine appends, shares computed when it is read, never inside a step."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from twostroke.core.ledger import Ledger, Part, Stall, StallKind
from twostroke.core.phase import Phase
from twostroke.core.step import RowPlan
from twostroke.core.step_cost import StepCost
from twostroke.core.step_shares import StepShares


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step as it happened, shared by every request that lived through it.

    start_s -- draft, plan, mask, bind, run --> logits_s -- sample --> sampled_s -- detokenize, commit --> handed_s

    `draft_s` is what the drafts took before the plan, `mask_s` what grammars took to say what may come next: a part of
    choosing it. `head_share` is the part of the head that was read. At `handed_s` the tokens go to their streams.
    """

    start_s: float
    logits_s: float
    sampled_s: float
    handed_s: float
    rows: tuple[RowPlan, ...]
    request_ids: tuple[str, ...]  # of the rows
    cost: StepCost
    draft_s: float = 0.0
    mask_s: float = 0.0
    head_share: float = 1.0
    _shares: list[StepShares] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def shares(self) -> StepShares:
        """Who took how much of it, found by the first account that asks: all of the step's requests will."""
        if not self._shares:
            self._shares.append(StepShares(self.rows, self.request_ids, cost=self.cost))
        return self._shares[0]

    def rows_of(self, request_id: str) -> tuple[RowPlan, ...]:
        """The rows of one request: one, or as many as its beams."""
        return self.shares.rows_of(request_id)


@dataclass(slots=True)
class Account:
    """The facts of one request. The engine's thread appends; anyone may read once the request ended."""

    request_id: str
    arrival_s: float
    before: Mapping[Part, float]  # parts spent before the engine saw the request
    first_token_s: float | None = None
    finish_s: float | None = None
    steps: list[tuple[StepRecord, StallKind | None]] = field(default_factory=list)
    held: set[int] = field(default_factory=set)  # of the steps, by index: what they brought could not be shown yet
    _ledgers: dict[float, Ledger] = field(default_factory=dict, init=False, repr=False, compare=False)  # read, by end

    def read(self, *, until_s: float | None = None) -> Ledger:
        """The ledger up to `until_s` (the finish by default). Once the request ended it is read only once.

        Raises AssertionError while the request still runs and no `until_s` is given.
        """
        end_s = self.finish_s if until_s is None else until_s
        assert end_s is not None, f"{self.request_id} has not finished"
        if self.finish_s is None:
            return self._read(end_s)
        if end_s not in self._ledgers:
            self._ledgers[end_s] = self._read(end_s)
        return self._ledgers[end_s]

    def _read(self, end_s: float) -> Ledger:
        parts: dict[Part, float] = defaultdict(float, self.before)
        stalls: dict[tuple[StallKind, str | None], float] = defaultdict(float)
        started_s = next((record.start_s for record, absent in self.steps if absent is None), end_s)
        started_s = min(started_s, end_s)
        parts[Part.QUEUE] += max(0.0, started_s - self.arrival_s - sum(self.before.values()))
        for index, (record, absent) in enumerate(self.steps):
            if not started_s <= record.start_s < end_s:
                continue
            if absent is not None:
                stalls[absent, None] += min(record.handed_s, end_s) - record.start_s
                continue
            self._book(record, parts=parts, stalls=stalls)
            words = Part.HOLD_BACK if index in self.held else Part.DETOKENIZE
            parts[words] += min(record.handed_s, end_s) - record.sampled_s
        booked_s = sum(parts.values()) + sum(stalls.values())
        parts[Part.OVERHEAD] += end_s - self.arrival_s - booked_s
        return Ledger(
            parts={part: parts[part] for part in Part if parts.get(part)},
            stalls=tuple(Stall(kind, time_s, by) for (kind, by), time_s in stalls.items() if time_s > 0),
        )

    def _book(
        self,
        record: StepRecord,
        *,
        parts: dict[Part, float],
        stalls: dict[tuple[StallKind, str | None], float],
    ) -> None:
        """A step this request had rows in, as far as the choice of its token."""
        wall_s = record.logits_s - record.start_s - record.draft_s - record.mask_s
        own_s, lost = record.shares.of(self.request_id, wall_s=wall_s)
        rows = record.rows_of(self.request_id)
        parts[Part.DECODE if rows[0].phase is Phase.DECODE else Part.PREFILL] += own_s
        if any(row.draft_token_ids for row in rows):
            speculate_s = own_s * speculative_share(record.cost, rows)
            parts[Part.DECODE] -= speculate_s
            parts[Part.SPECULATE] += speculate_s
        if record.draft_s > 0:
            own_draft_s = record.draft_s * drafting_share(record.rows, rows)
            parts[Part.SPECULATE] += own_draft_s
            stalls[StallKind.DECODE_OF_OTHERS, None] += record.draft_s - own_draft_s
        for key, time_s in lost.items():
            stalls[key] += time_s
        is_first = self.first_token_s is None or record.start_s < self.first_token_s  # prefill may come again later
        parts[Part.FIRST_SAMPLE if is_first else Part.SAMPLE] += record.sampled_s - record.logits_s + record.mask_s


def speculative_share(cost: StepCost, rows: tuple[RowPlan, ...]) -> float:
    """Of the time of rows that verify drafts, what they take beyond the same rows with their one sure token."""
    whole_s = cost.seconds(rows)
    return 1 - cost.seconds(row.without_drafts for row in rows) / whole_s if whole_s > 0 else 0.0


def drafting_share(rows: tuple[RowPlan, ...], own: tuple[RowPlan, ...]) -> float:
    """Of the time drafts take before a step: by drafted tokens; where none came of it, evenly over decoding rows."""
    num_drafted, num_own = (sum(len(row.draft_token_ids) for row in each) for each in (rows, own))
    if not num_drafted:
        num_drafted, num_own = (sum(row.phase is Phase.DECODE for row in each) for each in (rows, own))
    return num_own / num_drafted if num_drafted else 1 / len(rows)
