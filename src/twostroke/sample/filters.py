"""Which tokens may be drawn: top-k, top-p, min-p. Pure functions, applied one after the other by the sampler.

Each takes `scores` float32 [n], logits / temperature less their maximum (so the best is 0), and returns
the indices it keeps, ascending. Where equal scores compete for the last place the lowest index wins.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float32]
Indices = NDArray[np.intp]

# How far below the best to look first: sorting a few hundred tokens is 20 times cheaper than sorting 50,000.
_MARGINS = (4.0, 8.0, 16.0)
_FEW = 512


def keep_top_k(scores: Scores, k: int) -> Indices:
    """The k best, exactly k of them also when scores tie."""
    if k >= len(scores):
        return np.arange(len(scores))
    near = next((found for found in _near_best(scores) if len(found) >= k), None)
    if near is None:
        near = np.arange(len(scores))
    values = scores[near]
    border = np.partition(values, len(values) - k)[len(values) - k]
    return _first_of_ranking(near, values, border=border, num_kept=k)


def keep_top_p(scores: Scores, top_p: float) -> Indices:
    """The fewest best tokens whose probabilities sum to at least `top_p`; never none (Holtzman et al. 2020)."""
    weights = np.exp(scores)
    wanted = top_p * weights.sum(dtype=np.float64)
    near = next((found for found in _near_best(scores) if weights[found].sum(dtype=np.float64) >= wanted), None)
    if near is None:
        near = np.arange(len(scores))
    values = scores[near]
    falling = np.sort(values)[::-1]
    mass = np.cumsum(np.exp(falling), dtype=np.float64)
    num_kept = min(int(np.searchsorted(mass, wanted)) + 1, len(falling))
    return _first_of_ranking(near, values, border=falling[num_kept - 1], num_kept=num_kept)


def keep_min_p(scores: Scores, min_p: float) -> Indices:
    """Tokens at least `min_p` times as likely as the best (Nguyen et al. 2024); 1 keeps the best alone."""
    if min_p >= 1.0:
        return np.array([scores.argmax()])
    return np.flatnonzero(scores >= math.log(min_p))


def _first_of_ranking(near: Indices, values: Scores, *, border: np.float32, num_kept: int) -> Indices:
    is_kept = values > border
    ties = np.flatnonzero(values == border)
    is_kept[ties[: num_kept - np.count_nonzero(is_kept)]] = True
    return near[is_kept]


def _near_best(scores: Scores) -> Iterator[Indices]:
    """Growing candidate sets; none for few scores, where looking costs more than sorting."""
    if len(scores) > _FEW:
        for margin in _MARGINS:
            yield np.flatnonzero(scores >= -margin)
