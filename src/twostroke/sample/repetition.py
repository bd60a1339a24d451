"""What repetitions of a sequence forbid or make less likely: n-grams, bad words, DRY. The definition, slow and obvious.

Pure functions on token ids, prompt and answer in one list; native/token_history.cpp is held to them.
"""

from collections.abc import Sequence

import numpy as np

from twostroke.params import SamplingParams
from twostroke.sample.arithmetic import Floats

TokenIds = Sequence[int]

_LARGEST = float(np.finfo(np.float32).max)


def repeated_ends(history: TokenIds, n: int) -> set[int]:
    """Tokens that would complete an n-gram that is already there; none for n = 0 (Paulus et al. 2017, 2.5)."""
    if n == 0:
        return set()
    head = tuple(history[len(history) - n + 1 :]) if n > 1 else ()
    if len(head) < n - 1:
        return set()
    starts = range(len(history) - n + 1)
    return {history[start + n - 1] for start in starts if tuple(history[start : start + n - 1]) == head}


def bad_ends(history: TokenIds, bad_words: Sequence[TokenIds]) -> set[int]:
    """The last tokens of bad words whose other tokens are the newest ones."""
    return {word[-1] for word in bad_words if _ends_with(history, word[:-1])}


def dry_penalties(
    history: TokenIds, *, params: SamplingParams, breakers: Sequence[TokenIds] = ()
) -> list[tuple[int, float]]:
    """What DRY takes off which token: multiplier * base ** (length - allowed_length).

    The length is that of the longest end of the history, of at least allowed_length tokens, that stands somewhere
    earlier right before the token (p-e-w 2024, with the window and the breakers of llama.cpp). No end reaches back over
    a breaker; a breaker of one token is never made less likely.
    """
    window = params.dry_penalty_last_n
    recent = list(history if window < 0 else history[max(0, len(history) - window) :])
    limit = min(len(recent), _num_since_breaker(history, breakers))
    longest: dict[int, int] = {}
    for place in range(1, len(recent)):
        length = 0
        while length < min(limit, place) and recent[place - 1 - length] == recent[-1 - length]:
            length += 1
        if length >= params.dry_allowed_length:
            longest[recent[place]] = max(longest.get(recent[place], 0), length)
    for breaker in breakers:
        if len(breaker) == 1:
            longest.pop(breaker[0], None)
    sizes = {token_id: length - params.dry_allowed_length for token_id, length in longest.items()}
    return [(token_id, params.dry_multiplier * power(params.dry_base, size)) for token_id, size in sizes.items()]


def lessened(logits: Floats, penalties: Sequence[tuple[int, float]]) -> Floats:
    """A copy of `logits` [vocab] less `penalties`; what is impossible stays so, and nothing becomes so."""
    result = logits.copy()
    for token_id, penalty in penalties:
        if token_id < len(logits) and np.isfinite(logits[token_id]):
            result[token_id] = max(float(logits[token_id]) - min(penalty, _LARGEST), -_LARGEST)
    return result


def power(base: float, exponent: int) -> float:
    """base ** exponent by squaring: the products of the native sampler; inf where no number holds it."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


def _num_since_breaker(history: TokenIds, breakers: Sequence[TokenIds]) -> int:
    for end in range(len(history), 0, -1):
        if any(_ends_with(history[:end], breaker) for breaker in breakers):
            return len(history) - end
    return len(history)


def _ends_with(history: TokenIds, tail: TokenIds) -> bool:
    return len(tail) <= len(history) and list(history[len(history) - len(tail) :]) == list(tail)
