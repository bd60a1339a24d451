"""Samplers written down again from their publications, plainly, in float64: what the definition is compared with.

Each takes logits and returns which ids stay, or the logits that follow; nothing here is shared with the sources.
"""

import math
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float64]
Kept = set[int]


def probabilities(logits: Row) -> Row:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def ranking(logits: Row) -> list[int]:
    return sorted(range(len(logits)), key=lambda i: (-logits[i], i))


def only(logits: Row, kept: Collection[int]) -> Row:
    result = np.full_like(logits, -np.inf)
    for i in kept:
        result[i] = logits[i]
    return result


def typical(logits: Row, mass: float) -> Kept:
    """Meister et al. 2022, equation 6: the smallest set nearest to the entropy that has the mass."""
    p = probabilities(logits)
    entropy = -sum(x * math.log(x) for x in p if x > 0)
    off = {i: abs(-math.log(p[i]) - entropy) for i in range(len(p)) if p[i] > 0}
    kept: Kept = set()
    total = 0.0
    for i in sorted(off, key=lambda i: (off[i], -p[i], i)):
        kept.add(i)
        total += p[i]
        if total >= mass:
            break
    return kept


def top_n_sigma(logits: Row, n: float) -> Kept:
    """Tang et al. 2024, algorithm 1, with the deviation of all possible tokens."""
    values = logits[np.isfinite(logits)]
    return {i for i, x in enumerate(logits) if x >= values.max() - n * values.std()}


def xtc(logits: Row, threshold: float) -> Kept:
    """p-e-w 2024: of the tokens that reach the threshold all but the least likely go."""
    p = probabilities(logits)
    order = [i for i in ranking(logits) if p[i] > 0]
    top = [i for i in order if p[i] >= threshold]
    return set(order) - set(top[:-1])


def dynamic_temperature(logits: Row, temperature: float, spread: float, exponent: float) -> float:
    """kalomaze 2023."""
    p = probabilities(logits)
    p = p[p > 0]
    entropy = -float((p * np.log(p)).sum())
    low, high = max(0.0, temperature - spread), temperature + spread
    return float(low + (high - low) * (entropy / math.log(len(p))) ** exponent)


def mirostat(logits: Row, mu: float) -> Kept:
    """Basu et al. 2021, algorithm 2: what surprises more than mu goes."""
    p = probabilities(logits)
    order = ranking(logits)
    return {i for i in order if p[i] > 0 and -math.log2(p[i]) <= mu} | {order[0]}


def next_mu(logits: Row, mu: float, token: int, *, tau: float, eta: float) -> float:
    surprise = -math.log2(probabilities(only(logits, mirostat(logits, mu)))[token])
    return mu - eta * (surprise - tau)


def dry(
    tokens: Sequence[int], multiplier: float, base: float, allowed: int, *, breakers: Collection[int] = ()
) -> dict[int, float]:
    """p-e-w 2024: for every token that followed the same words before, by how many of them."""
    penalties: dict[int, float] = {}
    for candidate in set(tokens):
        best = 0
        for size in range(1, len(tokens)):
            tail = list(tokens[-size:])
            if any(token in breakers for token in tail):
                break
            seen = [list(tokens[at : at + size + 1]) for at in range(len(tokens) - size)]
            if [*tail, candidate] in seen:
                best = size
        if best >= allowed and candidate not in breakers:
            penalties[candidate] = multiplier * base ** (best - allowed)
    return penalties
