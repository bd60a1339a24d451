"""Penalties on tokens that were already there: counted token by token, applied to a copy of the logits."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from twostroke.params import SamplingParams

_LARGEST = float(np.finfo(np.float32).max)


class TokenCounts:
    """Distinct tokens of one sequence and how often each was generated (0: only in the prompt)."""

    def __init__(self, prompt_token_ids: Iterable[int] = ()) -> None:
        distinct = sorted(set(prompt_token_ids))
        capacity = max(16, 2 * len(distinct))
        self._slots = {token_id: slot for slot, token_id in enumerate(distinct)}
        self._token_ids = np.zeros(capacity, dtype=np.intp)
        self._token_ids[: len(distinct)] = distinct
        self._counts = np.zeros(capacity, dtype=np.float64)

    def append(self, token_id: int) -> None:
        """Count one generated token."""
        slot = self._slots.setdefault(token_id, len(self._slots))
        if slot == len(self._token_ids):
            self._token_ids = np.concatenate([self._token_ids, np.zeros_like(self._token_ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._token_ids[slot] = token_id
        self._counts[slot] += 1

    @property
    def token_ids(self) -> NDArray[np.intp]:
        return self._token_ids[: len(self._slots)]

    @property
    def counts(self) -> NDArray[np.float64]:
        return self._counts[: len(self._slots)]


def has_penalties(params: SamplingParams) -> bool:
    """Whether any penalty would change a logit."""
    return params.repetition_penalty != 1.0 or params.presence_penalty != 0.0 or params.frequency_penalty != 0.0


def penalised(logits: NDArray[np.float32], counts: TokenCounts, params: SamplingParams) -> NDArray[np.float32]:
    """A copy of `logits` [vocab] with the penalties of `params`.

    Repetition (Keskar et al. 2019): positive logits of tokens seen in prompt or answer are divided,
    negative ones multiplied. Then OpenAI's: less frequency x count, less presence once, answer only.
    """
    result = logits.copy()
    seen = counts.token_ids
    before = logits[seen].astype(np.float64)
    with np.errstate(over="ignore"):
        after = np.where(before < 0, before * params.repetition_penalty, before / params.repetition_penalty)
    after -= params.frequency_penalty * counts.counts + params.presence_penalty * (counts.counts > 0)
    after = np.clip(after, -_LARGEST, _LARGEST)  # a huge penalty must not look like a ban or a broken logit
    result[seen] = np.where(np.isfinite(before), after, before)
    return result
