"""Decision and outcome of one pass of the engine, as two plain records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from twostroke.core.phase import Phase
from twostroke.core.sequence import FinishReason, Sequence


class RowPlan(NamedTuple):
    """One sequence's share of a step: tokens [start_pos, start_pos + num_tokens).

    A tuple, as every step makes one per row: a frozen dataclass takes more than twice as long. So are the
    tokens below.
    """

    sequence_id: int
    start_pos: int
    num_tokens: int
    phase: Phase
    needs_logits: bool  # the row reaches the newest token, so the next one is sampled
    is_recompute: bool = False
    draft_token_ids: tuple[int, ...] = ()  # the last of `num_tokens`: guesses to verify, one logits row each
    num_scored: int = 0  # the next token of so many is in the prompt and wants its log-probability

    @property
    def num_logits(self) -> int:
        """Rows of logits it needs, those of its last tokens: one per token that is scored or that it may grow by."""
        return self.num_scored + (1 + len(self.draft_token_ids) if self.needs_logits else 0)

    @property
    def without_drafts(self) -> "RowPlan":
        """The same row with its sure tokens alone."""
        if not self.draft_token_ids:
            return self
        return self._replace(num_tokens=self.num_tokens - len(self.draft_token_ids), draft_token_ids=())


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy-on-write: the bytes of block `source` go to `target` before the step runs."""

    group: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step computes. `hold` is for how many steps the plan stays right if nothing arrives."""

    step_id: int
    rows: tuple[RowPlan, ...]
    copies: tuple[BlockCopy, ...] = ()
    preempted: tuple[int, ...] = ()  # sequence ids that lost blocks to this plan
    hold: int = 1

    @property
    def num_tokens(self) -> int:
        return sum(row.num_tokens for row in self.rows)


class TokenLogprob(NamedTuple):
    """Raw log-softmax of one token, before temperature and masks."""

    token_id: int
    logprob: float


class DeadEnd(str):
    """An error that a request's own wishes led to: its grammar broke a limit, or what it forbids left no token."""


class SampledToken(NamedTuple):
    """The next token of one sequence; `error` is set instead when its row could not be sampled."""

    sequence_id: int
    token_id: int
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()
    error: str | None = None


class ScoredToken(NamedTuple):
    """A token of a prompt as the model saw it coming: raw log-softmax, its place in the ranking, the best others.

    The first token of a prompt follows nothing: it has neither. Nor has one of logit -inf a log-probability.
    """

    token_id: int
    logprob: float | None = None
    rank: int | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()


class Fork(NamedTuple):
    """`child` goes on beside its parent: it shares what the parent had computed with this step."""

    parent_id: int
    child: Sequence


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step brought: the tokens, the sequences that begin with it, those that end with it and why.

    `finished` holds ends decided outside the scheduler (stop string, group, error); the scheduler adds
    stop ids and length itself. None is the end of a sequence that its group outran; it may be forked before.
    """

    plan: StepPlan
    tokens: tuple[SampledToken, ...]
    finished: Mapping[int, FinishReason | None] = field(default_factory=dict)
    forks: tuple[Fork, ...] = ()
