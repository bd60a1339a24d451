"""What a request's listener hears, in order: tokens, then one finish."""

from dataclasses import dataclass, field
from enum import StrEnum

from twostroke.core.account import Account
from twostroke.core.sequence import FinishReason
from twostroke.core.step import ScoredToken, TokenLogprob


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of one request by the definitions of the metrics; None where there is no value."""

    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float
    first_text_s: float | None


@dataclass(frozen=True, slots=True)
class KVUsage:
    """KV memory a request held when it ended."""

    tokens: int
    bytes: int
    blocks: int
    waste_ratio: float  # reserved but unused slots / reserved slots


@dataclass(frozen=True, slots=True)
class Beam:
    """One answer of a beam search; a stop id it ends in shows no text."""

    text: str
    token_ids: tuple[int, ...]
    score: float  # sum of log-probabilities / length ** length_penalty
    finish_reason: FinishReason
    stop_reason: str | int | None = None  # as in FinishEvent


class NoDraft(StrEnum):
    """Why a step drafted nothing for a sequence."""

    NO_GUESS = "no_guess"  # the newest tokens stood nowhere in the text before, and no model was asked
    COST = "cost"  # a drafted token should cost more than it saves
    SHARE = "share"  # refused drafts have had their share of all work
    READING = "reading"  # the draft model has yet to read the text
    CONTEXT = "context"  # the text is longer than the draft model can read
    MEMORY = "memory"  # the draft model's KV store is full
    FAILED = "failed"  # the draft model's step failed


@dataclass(frozen=True, slots=True)
class DraftStop:
    """Why drafting stopped, and what it stood on: drafting one token pays where acceptance exceeds both shares' sum.

    The shares are StepCost of one more token / of a token without drafts: a step's, divided by its sequences.
    """

    reason: NoDraft
    acceptance: float  # chance that a drafted token is right, as lately seen; before that, as assumed
    verify_share: float  # 0 where there was nothing to price
    draft_share: float  # of the draft model; 0 where the guess comes from the text
    num_sequences: int  # decoding in that step


@dataclass(frozen=True, slots=True)
class Speculation:
    """What drafts brought one request. `gain` is the time of its decode without drafts / with them.

    The time without is StepCost at the pace of plain decode steps measured lately; None until there were both.
    """

    drafted: int
    accepted: int
    gain: float | None
    stop: DraftStop | None = None  # where the last steps drafted nothing
    kv_bytes: int = 0  # what the draft model held of it at its end


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One output token; `text` is what became showable with it (often nothing, never half a character).

    `prompt_logprobs` comes with the first event of a request that asked for it, one of every prompt token.
    """

    request_id: str
    token_id: int
    text: str
    time_s: float
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[ScoredToken, ...] = ()


@dataclass(frozen=True, slots=True)
class FinishEvent:
    """The end of a request; exactly one per request, always last. `text` is the rest held back until now.

    `stop_reason` is what the request named and met: the stop string or pattern, or the id among its
    stop_token_ids; None for the model's own end token and every other end.
    """

    request_id: str
    reason: FinishReason
    text: str
    usage: Usage
    timing: Timing
    kv: KVUsage
    account: Account = field(repr=False)
    seed: int
    error: str | None = None
    stop_reason: str | int | None = None
    speculation: Speculation | None = None  # where drafts were asked for
    beams: tuple[Beam, ...] = ()  # of a beam search, best first; the tokens told before are the first one's
    prompt_logprobs: tuple[ScoredToken, ...] = field(default=(), repr=False)  # of an answer without a token
    embedding: bytes = field(default=b"", repr=False)  # of a request for one: float32, little-endian, unit length


Event = TokenEvent | FinishEvent
