"""What happened in each phase of one request, as facts: doors show these, nobody computes them again."""

from dataclasses import dataclass, field
from enum import StrEnum

from twostroke.chat.answer import ChatAnswer
from twostroke.core.account import Account
from twostroke.core.event import Beam, KVUsage, Speculation, Timing, Usage
from twostroke.core.ledger import Ledger
from twostroke.core.sequence import FinishReason
from twostroke.core.step import ScoredToken, TokenLogprob


class Bound(StrEnum):
    """The largest share of a phase's time names it."""

    COMPUTE = "compute"
    BANDWIDTH = "bandwidth"
    OVERHEAD = "overhead"


@dataclass(frozen=True, slots=True)
class PhaseUse:
    """One phase of one request. Rates are None where no token or no time was spent.

    `utilisation` is the share of the measured peak of the resource in `bound_by`; under `overhead` it
    is the larger of the two shares. None until the peaks are measured.
    """

    tokens: int
    time_s: float
    tokens_per_s: float | None
    bound_by: Bound | None
    utilisation: float | None
    tpot_s: float | None = None  # decode only


@dataclass(frozen=True, slots=True)
class Result:
    """One finished answer. `error` is set when `finish_reason` is error; the text so far is kept.

    Printed it is what a person reads: where its time went and what each token was worth is there to be asked for.
    """

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    timing: Timing
    kv: KVUsage
    account: Account = field(repr=False)
    seed: int
    logprobs: tuple[float | None, ...] = field(default=(), repr=False)
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...] = field(default=(), repr=False)
    prompt_logprobs: tuple[ScoredToken, ...] = field(default=(), repr=False)  # where asked for: one per prompt token
    error: str | None = None
    stop_reason: str | int | None = None  # the stop string, pattern or id that ended it
    speculation: Speculation | None = None  # where drafts were asked for
    embedding: bytes = field(default=b"", repr=False)  # of a request for one, as in FinishEvent
    beams: tuple[Beam, ...] = ()  # of a beam search, best first; text and token_ids are the first one's
    answer: ChatAnswer | None = None  # of a chat: what its text is made of

    @property
    def ledger(self) -> Ledger:
        """Where every millisecond went, read from the account when it is asked for first."""
        return self.account.read()

    @property
    def ttft_ledger(self) -> Ledger | None:
        """The same account, closed at the first token; None where there was none."""
        first_s = self.account.first_token_s
        return None if first_s is None else self.account.read(until_s=first_s)


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """Both phases of a result, judged against the measured peaks of this machine."""

    prefill: PhaseUse
    decode: PhaseUse
