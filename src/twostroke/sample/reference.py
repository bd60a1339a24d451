"""The definition of sampling: one row at a time, slow and obvious, in NumPy. The native sampler is held to it.

Order: bans (a grammar's mask, end tokens that come too early), logit bias, penalties, temperature, top-k,
top-p, min-p, then the argmax over the survivors of score + Gumbel noise (Gumbel-max: Maddison et al. 2014),
which is a draw from their softmax. Temperature 0 is the plain argmax, lowest id on ties. Tests alone call this.
"""

from collections.abc import Sequence

import numpy as np

from twostroke.core.step import TokenLogprob
from twostroke.params import SamplingParams
from twostroke.sample.arithmetic import Floats
from twostroke.sample.filters import Places, keep_min_p, keep_top_k, keep_top_p
from twostroke.sample.logprobs import best_logprobs, log_softmax
from twostroke.sample.penalties import biased, penalised, without
from twostroke.sample.random import NoiseKey, gumbel, words_of

# Beyond these a temperature acts like the limit it tends to: float32 could not hold the quotient.
MIN_TEMPERATURE = 1e-30
MAX_TEMPERATURE = 1e30


def choose_token(
    logits: Floats,
    prompt: Sequence[int],
    output: Sequence[int],
    *,
    params: SamplingParams,
    key: NoiseKey,
    banned: Places | None = None,
) -> int | None:
    """The next token after `prompt` and `output`; None for a row that is broken by NaN, inf or nothing but -inf.

    `banned` are ids that may not be drawn, whatever their logit; None where all may.
    """
    if not np.isfinite(logits.max()):
        return None
    logits = biased(without(logits, banned), params.logit_bias)
    if not np.isfinite(logits.max()):
        return None
    logits = penalised(logits, prompt, output, params=params)
    if params.temperature == 0:
        return int(logits.argmax())
    ranking, scores = survivors(logits, params=params)
    totals = scores + gumbel(words_of(key, len(logits)))[ranking]
    return int(ranking[totals == totals.max()].min())


def survivors(logits: Floats, *, params: SamplingParams) -> tuple[Places, Floats]:
    """Ids that may be drawn, in the order of the ranking, and their scores."""
    ranking = np.argsort(-logits, kind="stable")
    scores = scores_of(logits, temperature=params.temperature)[ranking]
    if params.top_k is not None and params.top_k > 0:
        kept = keep_top_k(scores, params.top_k)
        ranking, scores = ranking[kept], scores[kept]
    if params.top_p < 1.0:
        kept = keep_top_p(scores, params.top_p)
        ranking, scores = ranking[kept], scores[kept]
    if params.min_p > 0.0:
        kept = keep_min_p(scores, params.min_p)
        ranking, scores = ranking[kept], scores[kept]
    return ranking, scores


def scores_of(logits: Floats, *, temperature: float) -> Floats:
    """(logit - maximum) * 1/T, each step rounded to float32."""
    inverse = np.float32(1.0 / min(max(temperature, MIN_TEMPERATURE), MAX_TEMPERATURE))
    with np.errstate(over="ignore"):
        return np.asarray((logits - logits.max()) * inverse, dtype=np.float32)


def report(logits: Floats, token_id: int, *, num_best: int) -> tuple[float, tuple[TokenLogprob, ...]]:
    """Log-probability of the token and the best alternatives, from the model's own logits."""
    return float(log_softmax(logits)[token_id]), best_logprobs(logits, num_best)
