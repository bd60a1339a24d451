"""Small rows and requests for the sampler's tests; the chi-square judge and its odds."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twostroke._native import Candidates
from twostroke.core.request import Request
from twostroke.params import SamplingParams
from twostroke.sample.sampler import Sampler, SamplingRow

FALSE_ALARM = 1e-4  # odds that an honest sampler fails one chi-square test; the seeds are fixed, so it never flickers
FALSE_ALARM_Z = 3.719  # the normal quantile of those odds


def make_request(
    *,
    prompt: Sequence[int] = (1, 2, 3),
    seed: int = 7,
    request_id: str = "r",
    end_ids: Sequence[int] = (),
    bad_ids: Sequence[Sequence[int]] = (),
    breakers: Sequence[Sequence[int]] = (),
    **params: Any,
) -> Request:
    return Request(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        params=SamplingParams(**params),
        arrival_s=0.0,
        seed=seed,
        stop_token_ids=frozenset(end_ids),
        bad_words=tuple(map(tuple, bad_ids)),
        dry_breakers=tuple(map(tuple, breakers)),
    )


def make_row(sampler: Sampler, *, sequence_id: int = 0, choice_index: int = 0, **request: Any) -> SamplingRow:
    return SamplingRow(sequence_id, sampler.start(make_request(**request), choice_index=choice_index))


def mask_of(allowed: Sequence[int], vocab_size: int) -> NDArray[np.uint32]:
    """Bits of the allowed ids, id i in bit i % 32 of word i // 32."""
    words = np.zeros((vocab_size + 31) // 32, np.uint32)
    for token_id in allowed:
        words[token_id // 32] |= np.uint32(1) << np.uint32(token_id % 32)
    return words


def make_logits(*rows: Sequence[float]) -> NDArray[np.float32]:
    return np.array(rows, dtype=np.float32)


def draw(logits: Sequence[float], num_draws: int, *, choice_index: int = 0, **request: Any) -> NDArray[np.intp]:
    """Draws at `num_draws` positions of one sequence, taken as the rows of one batch."""
    sampler = Sampler(len(logits))
    wished = make_request(**request)
    rows = []
    for position in range(num_draws):
        state = sampler.start(wished, choice_index=choice_index)
        state.position += position
        rows.append(SamplingRow(position, state))
    matrix = np.broadcast_to(np.array(logits, dtype=np.float32), (num_draws, len(logits)))
    return np.array([token.token_id for token in sampler.sample(matrix, rows)])


def hand_on(
    candidates: Candidates, logits: NDArray[np.float32], *, isa: str, num_threads: int = 1, seed: int | None = None
) -> None:
    """All panels of `logits` [rows, vocab] as a head's threads come by them: in turn, or in an order of this seed.

    Behind the vocabulary there is padding, which is NaN.
    """
    num_panels = -(-logits.shape[1] // 32) + 1
    padded = np.full((len(logits), 32 * num_panels), np.nan, np.float32)
    padded[:, : logits.shape[1]] = logits
    rng = np.random.default_rng(seed)
    for panel in range(num_panels) if seed is None else rng.permutation(num_panels):
        tile = np.ascontiguousarray(padded[:, 32 * panel : 32 * panel + 32])
        candidates.take(tile, panel=int(panel), worker=int(rng.integers(num_threads)), isa=isa)


def chi_square_z(draws: NDArray[np.intp], law: Sequence[float]) -> float:
    """How many standard deviations too large the statistic is (Wilson, Hilferty 1931); inf for an impossible draw."""
    counts = np.bincount(draws, minlength=len(law)).astype(float)
    expected = len(draws) * np.array(law, dtype=float)
    live = expected > 0
    if counts[~live].any():
        return math.inf
    freedom = int(live.sum()) - 1
    if freedom == 0:
        return 0.0
    statistic = float(((counts[live] - expected[live]) ** 2 / expected[live]).sum())
    spread = 2.0 / (9.0 * freedom)
    return float(((statistic / freedom) ** (1 / 3) - (1.0 - spread)) / math.sqrt(spread))


def softmax(scores: Sequence[float]) -> NDArray[np.float64]:
    weights = np.exp(np.array(scores, dtype=np.float64) - max(scores))
    return np.asarray(weights / weights.sum(), dtype=np.float64)
