"""One growing answer. The scheduler alone writes the counters; everyone else reads them."""

from dataclasses import dataclass, field
from enum import StrEnum

from twostroke.core.request import Request


class SequenceStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(slots=True)
class Sequence:
    """Tokens known and tokens computed; their difference is the work that is left.

    |<------ prompt ------>|<- output ->|
    |<-- num_computed -->|<- missing -->|
    0                                   num_tokens
    """

    sequence_id: int
    request: Request
    token_ids: list[int]
    num_computed: int = 0
    num_cached: int = 0  # prompt tokens found in the prefix cache at first admission
    num_scored: int = 0  # prompt tokens behind the first whose log-probability is known, where it was asked for
    num_preemptions: int = 0
    status: SequenceStatus = SequenceStatus.WAITING
    finish_reason: FinishReason | None = None  # none of a finished one: its group outran it
    num_recompute_until: int = 0  # positions below this were computed before and lost to preemption
    choice_index: int = 0
    group_id: int = -1  # the first sequence of its request: beams are one group; by default its own id
    num_prompt_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_prompt_tokens = len(self.request.prompt_token_ids)
        if self.group_id < 0:
            self.group_id = self.sequence_id

    @classmethod
    def from_request(cls, request: Request, *, sequence_id: int) -> "Sequence":
        """A sequence that knows its prompt and has computed nothing."""
        return cls(
            sequence_id=sequence_id,
            request=request,
            token_ids=list(request.prompt_token_ids),
            choice_index=request.choice_index,
        )

    def child(self, token_id: int, *, sequence_id: int) -> "Sequence":
        """A sequence of the same group with the same tokens and one more; what is computed it shares once forked."""
        token_ids = [*self.token_ids, token_id]
        return Sequence(sequence_id, self.request, token_ids, choice_index=self.choice_index, group_id=self.group_id)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_missing(self) -> int:
        return len(self.token_ids) - self.num_computed

    @property
    def num_unscored(self) -> int:
        """Prompt tokens whose log-probability was asked for and is not known yet."""
        return 0 if self.request.params.prompt_logprobs is None else self.num_prompt_tokens - 1 - self.num_scored

    def num_scored_until(self, end: int) -> int:
        """Tokens not yet scored that a row from the computed ones to `end` scores: each by the one before it."""
        if not self.num_unscored:
            return 0
        return max(min(end, self.num_prompt_tokens - 1) - max(self.num_computed, self.num_scored), 0)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def is_finished(self) -> bool:
        return self.status is SequenceStatus.FINISHED
