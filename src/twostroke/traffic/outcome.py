"""What became of one request, as its client saw it: moments and counts. Durations follow the definitions of metrics:

TTFT from sending to the first chunk with text, TPOT between the first and the last, E2E to the stream's end. A value
that does not exist is None.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from twostroke.traffic.event_stream import Chunk


@dataclass(slots=True, kw_only=True)
class Outcome:
    """One request. Times are seconds on the generator's clock; an outcome with an `error` counts in no other number."""

    place: int
    wanted_prompt: int
    wanted_output: int
    sent_s: float = 0.0  # when sending began, connecting included
    due_s: float | None = None  # when it should have been; None in a closed loop
    end_s: float = 0.0
    text_times: list[float] = field(default_factory=list)  # of chunks with text, reasoning included
    text_tokens: list[int] = field(default_factory=list)  # tokens in each, where the server counts along
    choice_times: list[float] = field(default_factory=list)  # of chunks with choices, texts or not
    num_empty: int = 0  # chunks without text: who speaks, the end, usage
    num_comments: int = 0
    prompt_tokens: int | None = None  # by the server's usage, as the next
    output_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    error: str | None = None  # its kind
    problem: str = ""  # its words

    def take(self, time_s: float, chunk: Chunk) -> None:
        """One chunk, as it came."""
        before = self.output_tokens or 0
        if chunk.usage is not None:
            self.prompt_tokens = chunk.usage.get("prompt_tokens")
            self.output_tokens = chunk.usage.get("completion_tokens")
            self.cached_tokens = (chunk.usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        if chunk.has_choices:
            self.choice_times.append(time_s)
        self.finish_reason = chunk.finish_reason or self.finish_reason
        if not (chunk.text or chunk.reasoning):
            self.num_empty += 1
            return
        self.text_times.append(time_s)
        if chunk.usage is not None and self.output_tokens is not None:
            self.text_tokens.append(self.output_tokens - before)

    @property
    def num_tokens(self) -> int:
        """By the server's count, else one a chunk."""
        return len(self.text_times) if self.output_tokens is None else self.output_tokens

    @property
    def late_s(self) -> float | None:
        """How much later than due it was sent: the generator's own fault."""
        return None if self.due_s is None else self.sent_s - self.due_s

    @property
    def ttft_s(self) -> float | None:
        return self.text_times[0] - self.sent_s if self.text_times else None

    @property
    def e2e_s(self) -> float:
        return self.end_s - self.sent_s

    @property
    def decode_s(self) -> float | None:
        """From the first chunk with text to the last; None where there is one at most."""
        return self.text_times[-1] - self.text_times[0] if len(self.text_times) > 1 else None

    @property
    def tpot_s(self) -> float | None:
        return self.decode_s / (self.num_tokens - 1) if self.decode_s is not None and self.num_tokens > 1 else None

    @property
    def itls_s(self) -> list[float]:
        """Gaps between tokens: k tokens of one chunk get a k-th of the gap before it each.

        Where the server does not count along, the tokens are spread evenly over the chunks after the first.
        """
        gaps = gaps_of(self.text_times)
        if len(self.text_tokens) == len(self.text_times):
            shares = [max(1, count) for count in self.text_tokens[1:]]
        else:
            shares = spread_evenly(max(len(gaps), self.num_tokens - 1), len(gaps))
        return [gap / share for gap, share in zip(gaps, shares, strict=True) for _ in range(share)]


def gaps_of(times_s: Sequence[float]) -> list[float]:
    """Between neighbours."""
    return [later - earlier for earlier, later in pairwise(times_s)]


def spread_evenly(total: int, parts: int) -> list[int]:
    """`total` in `parts` whole numbers that differ by 1 at most."""
    return [total * (part + 1) // parts - total * part // parts for part in range(parts)]
