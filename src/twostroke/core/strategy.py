"""Seams for what lives above the engine: draft tokens, what a grammar allows, the choice among candidates."""

from collections.abc import Mapping, Sequence as Seq
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from twostroke.core.event import NoDraft, Speculation
from twostroke.core.sequence import FinishReason, Sequence
from twostroke.core.step import RowPlan, TokenLogprob
from twostroke.core.step_cost import StepCost


class Drafter(Protocol):
    """Guesses the next tokens of a sequence, cheaply; wrong guesses cost time and change nothing."""

    def propose(self, sequence: Sequence, limit: int) -> Seq[int]:
        """At most `limit` tokens that may follow; none where it has no idea."""

    def forget(self, sequence_id: int) -> None:
        """The sequence has ended."""


class DraftModel(Protocol):
    """A second, cheaper model of the same vocabulary; reads along and guesses for several sequences at once."""

    def cost(self) -> StepCost:
        """Of its own steps, as they are now."""

    def why_not(self, sequence: Sequence) -> NoDraft | None:
        """Why it can guess nothing for a sequence; None where it can."""

    def num_unread(self, sequence: Sequence) -> int:
        """Tokens it has to read for its first guess, at least the newest one."""

    def propose(self, wishes: Seq[tuple[Sequence, int]]) -> Mapping[int, tuple[int, ...]]:
        """Guesses by sequence id, at most as many as wished for; none for those it could not read to the end yet."""

    @property
    def total_s(self) -> float:
        """StepCost of all its steps."""

    def held_bytes(self, sequence_id: int) -> int:
        """KV memory a sequence has here."""

    def forget(self, sequence_id: int) -> None:
        """Let go of all a sequence has here; it may come back."""


class Speculator(Protocol):
    """Decides how many tokens of whose drafts are worth verifying; called on the engine's thread."""

    def has_nothing(self, num_running: int) -> bool:
        """Before plan, in place of `draft` where True: in this step nothing is worth a look, if so many run."""

    def draft(self, decoding: Seq[Sequence], cost: StepCost) -> Mapping[int, tuple[int, ...]]:
        """Before plan: drafts by sequence id, for those of the decoding sequences, one at least, for which they pay."""

    def learn(
        self, rows: Seq[RowPlan], num_grown: Mapping[int, int], *, cost: StepCost, wall_s: float, draft_s: float
    ) -> None:
        """After commit: what the step's rows were and, where drafts were among them, how much each sequence grew.

        `wall_s` to its logits, of which `draft_s` went to `draft`; 0 where that was not called.
        """

    def release(self, sequence_id: int) -> None:
        """The sequence waits for memory: hold none for it."""

    def forget(self, sequence_id: int) -> Speculation | None:
        """The sequence has ended; what drafts brought it, None where none were tried."""

    @property
    def refused_share(self) -> float:
        """StepCost of refused drafts / of all steps so far."""


class AnswerGrammar(Protocol):
    """What may come next in one answer; asked and told on the engine's thread, once per token."""

    def allowed(self) -> bytes:
        """A bit per token id, id i in bit i % 32 of little-endian word i // 32. Raises ValueError when it gave up."""

    def advance(self, token_id: int) -> None: ...
    def behind(self, token_id: int) -> "AnswerGrammar":
        """The place behind a token that may come next; what is asked there is known when it comes."""
        ...

    def fork(self) -> "AnswerGrammar":
        """One of its own for an answer that goes another way from here."""


class Growth(NamedTuple):
    """One sequence of a group as the next step sees it: this parent, one token longer."""

    parent_id: int
    token_id: int


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One finished answer of a group; the score orders answers, the higher the better."""

    token_ids: tuple[int, ...]  # without the prompt, with the stop id it may end in
    score: float
    reason: FinishReason  # stop or length


class Chooser(Protocol):
    """Decides for a whole group, between sampler and commit; one per request, remembers its group."""

    @property
    def num_candidates(self) -> int:
        """How many of the best next tokens it must see of every sequence."""

    def choose(self, group: Seq[Sequence], candidates: Seq[Seq[TokenLogprob]]) -> tuple[Growth, ...]:
        """The group after this step, in the order in which it wants to see it next; empty when it is done.

        `candidates` are those of `group`, in its order, best first. The first growth of a parent extends it,
        further ones fork it; a parent without one is dropped.
        """

    def restart(self) -> None:
        """Memory ran out and the group begins anew with its prompt: forget everything."""

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """What has finished so far of what was asked for, best first."""
