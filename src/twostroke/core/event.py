"""What a request's listener hears, in order: tokens, then one finish."""

from dataclasses import dataclass

from twostroke.core.account import Account
from twostroke.core.sequence import FinishReason
from twostroke.core.step import TokenLogprob


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


@dataclass(frozen=True, slots=True)
class Speculation:
    """What drafts brought one request. `gain` is decode time per token without drafts / with them.

    Both are measured in steps of this request that were alike but for the drafts; None until there were both.
    """

    drafted: int
    accepted: int
    gain: float | None


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One output token; `text` is what became showable with it (often nothing, never half a character)."""

    request_id: str
    token_id: int
    text: str
    time_s: float
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()


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
    account: Account
    seed: int
    error: str | None = None
    stop_reason: str | int | None = None
    speculation: Speculation | None = None  # where drafts were asked for
    beams: tuple[Beam, ...] = ()  # of a beam search, best first; the tokens told before are the first one's


Event = TokenEvent | FinishEvent
