"""The best of several answers to one prompt, as OpenAI's `best_of` has it: highest log-probability per token.

Called by LLM, by the command line and by the server's replies. Pure.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

MAX_TRIES = 64  # each is a sequence


def same_tries(name: str, num_tries: int, *, temperature: float) -> str | None:
    """Why so many tries are no choice, as an error says it; `name` is what the user called their number."""
    if num_tries == 1 or temperature > 0:
        return None
    return (
        f"{name} is {num_tries} and temperature is 0, which takes the likeliest token: all answers would be the same; "
        f"raise the temperature, say to 0.8, or leave out {name}"
    )


class Tried(NamedTuple):
    """An answer by its number, and what is known of its tokens."""

    number: int
    logprob_sum: float
    num_tokens: int

    @property
    def mean_logprob(self) -> float:
        """Of no tokens, as of an answer that was cancelled before its first, the least."""
        return self.logprob_sum / self.num_tokens if self.num_tokens else -math.inf


def likeliest(answers: Sequence[Tried], *, num_told: int) -> list[int]:
    """Numbers of the best, the very best first; of equals the earlier."""
    ranked = sorted(answers, key=lambda answer: -answer.mean_logprob)
    return [answer.number for answer in ranked[:num_told]]
