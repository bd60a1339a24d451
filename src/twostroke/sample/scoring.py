"""How likely a model held tokens that are given: what it would have reported, had it drawn them itself.

`Sampler.score` calls it. Each token is drawn with all others masked out, as a report is of the raw logits: so a score
has the bits of the log-probability that decoding the same token reports.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twostroke import _native
from twostroke._native import SamplingState
from twostroke.core.step import ScoredToken, TokenLogprob
from twostroke.sample.logprobs import best_logprobs


def score_tokens(
    native: _native.Sampler, logits: NDArray[np.float32], token_ids: Sequence[int], *, vocab_size: int, num_best: int
) -> list[ScoredToken]:
    """Scores of `token_ids` [rows], one by each row of `logits` [rows, vocab_size or more], with `num_best` others.

    A token of logit -inf has no log-probability that JSON could hold: None. Raises ValueError for logits that are none.
    """
    _, broken, reports = native.sample(logits, [_forced(token_id, vocab_size, num_best) for token_id in token_ids])
    found: dict[int, tuple[float | None, tuple[TokenLogprob, ...]]] = {}
    for index, logprob, best in reports:
        found[index] = logprob, tuple([TokenLogprob(token_id, value) for token_id, value in best])
    for index, best_logit in broken:
        row = logits[index, :vocab_size]
        if best_logit != -np.inf or not np.isfinite(row.max()):
            raise ValueError(f"no token before {token_ids[index]} can be scored: a logit is {row.max()}")
        found[index] = None, best_logprobs(row, num_best)
    return [
        ScoredToken(token_id, found[index][0], _rank(logits[index, :vocab_size], token_id), found[index][1])
        for index, token_id in enumerate(token_ids)
    ]


def _forced(token_id: int, vocab_size: int, num_best: int) -> SamplingState:
    """A state that can draw this token alone."""
    state = SamplingState(
        (),
        seed=0,
        choice_index=0,
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        repetition_penalty=1.0,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        num_logprobs=num_best,
    )
    words = np.zeros(-(-vocab_size // 32), np.uint32)
    words[token_id // 32] = 1 << token_id % 32
    state.allow(words)
    return state


def _rank(logits: NDArray[np.float32], token_id: int) -> int:
    """Its place among all, the likeliest 1, of equals the lower id first."""
    own = logits[token_id]
    return int(np.count_nonzero(logits > own) + np.count_nonzero(logits[:token_id] == own)) + 1
