"""Scores of given tokens: equal to the definition, alone or among others, and honest about logits that are none."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from twostroke.core.step import ScoredToken
from twostroke.sample.logprobs import best_logprobs, log_softmax
from twostroke.sample.sampler import Sampler

VOCAB = 300
SAMPLER = Sampler(VOCAB)


def some_logits(seed: int, *, rows: int = 1) -> NDArray[np.float32]:
    """Rows with ties, and padding of the model's head that beats every token."""
    logits = np.random.default_rng(seed).normal(size=(rows, VOCAB + 20)).astype(np.float32).round(1)
    logits[:, VOCAB:] = 100.0
    return logits


@given(st.integers(0, 10**6), st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=5), st.integers(0, 20))
def test_a_score_is_the_definitions_whoever_is_beside_it(seed: int, token_ids: list[int], num_best: int) -> None:
    logits = some_logits(seed, rows=len(token_ids))
    together = SAMPLER.score(logits, token_ids, num_best=num_best)
    for row, token_id, score in zip(logits, token_ids, together, strict=True):
        known = row[:VOCAB]
        rank = np.argsort(-known, kind="stable").tolist().index(token_id) + 1
        assert score == ScoredToken(token_id, log_softmax(known)[token_id], rank, best_logprobs(known, num_best))
        assert SAMPLER.score(row[None], [token_id], num_best=num_best) == [score]


def test_a_token_of_no_probability_has_no_logarithm_and_the_others_are_told() -> None:
    logits = some_logits(1)
    logits[0, 7] = -np.inf
    (score,) = SAMPLER.score(logits, [7], num_best=3)
    assert (score.logprob, score.rank) == (None, VOCAB)
    assert score.top_logprobs == best_logprobs(logits[0, :VOCAB], 3)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_none_are_an_error(value: float) -> None:
    logits = some_logits(1, rows=2)
    logits[1, 7] = value
    with pytest.raises(ValueError, match="no token before 9 can be scored: a logit is"):
        SAMPLER.score(logits, [3, 9], num_best=0)
