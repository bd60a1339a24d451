"""The definition of sampling: one row at a time, slow and obvious, in NumPy. The native sampler is held to it.

Order: bans (a grammar's mask, end tokens that come too early, repeated n-grams, bad words), logit bias, the samplers
in use as the request orders them, mirostat, then the argmax over the survivors of score + Gumbel noise (Gumbel-max:
Maddison et al. 2014), which is a draw from their softmax. Temperature 0 is the plain argmax after penalties and DRY,
lowest id on ties. Tests alone call this.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from twostroke.core.step import TokenLogprob
from twostroke.params import SamplingParams
from twostroke.sample.arithmetic import Floats
from twostroke.sample.filters import (
    Places,
    dynamic_temperature,
    exclude_top_choices,
    keep_expected,
    keep_min_p,
    keep_top_k,
    keep_top_n_sigma,
    keep_top_p,
    keep_typical,
    surprise_of,
)
from twostroke.sample.logprobs import best_logprobs, log_softmax
from twostroke.sample.penalties import biased, penalised, without
from twostroke.sample.random import NoiseKey, Purpose, gumbel, uniform, words_of
from twostroke.sample.repetition import TokenIds, bad_ends, dry_penalties, lessened, repeated_ends

# Beyond these a temperature acts like the limit it tends to: float32 could not hold the quotient.
MIN_TEMPERATURE = 1e-30
MAX_TEMPERATURE = 1e30

Change = Callable[[Floats], Floats]


class Choice(NamedTuple):
    token_id: int
    surprise: float  # in bits, among the survivors


@dataclass(frozen=True, kw_only=True)
class Spelled:
    """A request's texts as token ids: of its bad words and of what DRY does not reach over."""

    bad_words: Sequence[TokenIds] = ()
    breakers: Sequence[TokenIds] = ()


NO_WORDS = Spelled()


def choose_token(
    logits: Floats,
    prompt: Sequence[int],
    output: Sequence[int],
    *,
    params: SamplingParams,
    key: NoiseKey,
    banned: Places | None = None,
    spelled: Spelled = NO_WORDS,
) -> int | None:
    """The next token after `prompt` and `output`; None for a row that is broken by NaN, inf or nothing but -inf.

    `banned` are ids that may not be drawn, whatever their logit; None where all may.
    """
    choice = choose(logits, prompt, output, params=params, key=key, banned=banned, spelled=spelled)
    return None if choice is None else choice.token_id


def choose(
    logits: Floats,
    prompt: Sequence[int],
    output: Sequence[int],
    *,
    params: SamplingParams,
    key: NoiseKey,
    banned: Places | None = None,
    spelled: Spelled = NO_WORDS,
    surprise_limit: float | None = None,
) -> Choice | None:
    """The same with its surprise. `surprise_limit` is mirostat's, which the caller keeps: see `next_limit`."""
    if not np.isfinite(logits.max()):
        return None
    history = [*prompt, *output]
    ends = repeated_ends(history, params.no_repeat_ngram_size) | bad_ends(history, spelled.bad_words)
    bans = np.array(sorted(ends), np.intp)
    logits = biased(without(without(logits, banned), bans), params.logit_bias)
    if not np.isfinite(logits.max()):
        return None
    lessen = dry_penalties(history, params=params, breakers=spelled.breakers) if params.dry_multiplier else []
    changes: dict[str, Change] = {
        "penalties": lambda row: penalised(row, prompt, output, params=params),
        "dry": lambda row: lessened(row, lessen),
    }
    if params.temperature == 0:
        for name in params.sampler_order:
            if name in changes:
                logits = changes[name](logits)
        return Choice(int(logits.argmax()), 0.0)
    ranking, scores = survivors(logits, params=params, key=key, changes=changes)
    if params.mirostat_tau is not None:
        assert surprise_limit is not None, "mirostat goes by a limit that its caller keeps"
        kept = keep_expected(scores, surprise_limit)
        ranking, scores = ranking[kept], scores[kept]
    totals = scores + gumbel(words_of(key, len(logits)))[ranking]
    token_id = int(ranking[totals == totals.max()].min())
    return Choice(token_id, float(surprise_of(scores[ranking == token_id], scores)[0]))


def first_limit(params: SamplingParams) -> float | None:
    """Mirostat's limit before the first token, in bits; None where a request does not wish for mirostat."""
    return None if params.mirostat_tau is None else 2 * params.mirostat_tau


def next_limit(limit: float, surprise: float, *, params: SamplingParams) -> float:
    """Mirostat's limit after a token of this surprise (Basu et al. 2021, algorithm 2)."""
    assert params.mirostat_tau is not None, "the request does not wish for mirostat"
    return limit - params.mirostat_eta * (surprise - params.mirostat_tau)


def survivors(
    logits: Floats,
    *,
    params: SamplingParams,
    key: NoiseKey | None = None,
    changes: Mapping[str, Change] | None = None,
) -> tuple[Places, Floats]:
    """Ids that may be drawn, in the order of the ranking, and their scores.

    `key` names the draw that decides about XTC; `changes` are what penalties and DRY do to a row of logits.
    """
    ranking = np.argsort(-logits, kind="stable")
    inverse = np.float32(1.0)
    for name in (name for name in params.sampler_order if name in params.samplers):
        scores = _scores(logits[ranking], inverse)
        if name in (changes or {}):
            assert changes is not None
            logits = changes[name](logits)
            ranking = ranking[np.lexsort((ranking, -logits[ranking]))]
        elif name == "temperature":
            inverse = inverse_of(_temperature(scores, params))
        else:
            ranking = ranking[_kept(name, scores, ranking, params=params, key=key)]
    return ranking, _scores(logits[ranking], inverse)


def _kept(name: str, scores: Floats, ids: Places, *, params: SamplingParams, key: NoiseKey | None) -> Places:
    match name:
        case "top_k":
            return keep_top_k(scores, params.top_k or len(scores))
        case "top_p":
            return keep_top_p(scores, params.top_p)
        case "min_p":
            return keep_min_p(scores, params.min_p)
        case "typical_p":
            return keep_typical(scores, params.typical_p)
        case "top_n_sigma":
            return keep_top_n_sigma(scores, ids, params.top_n_sigma)
    assert name == "xtc", f"{name} is no filter"
    assert key is not None, "xtc is drawn"
    if uniform(key, purpose=Purpose.XTC) >= params.xtc_probability:
        return np.arange(len(scores))
    return exclude_top_choices(scores, params.xtc_threshold)


def _temperature(scores: Floats, params: SamplingParams) -> float:
    if params.dynatemp_range == 0:
        return params.temperature
    return dynamic_temperature(
        scores, temperature=params.temperature, spread=params.dynatemp_range, exponent=params.dynatemp_exponent
    )


def scores_of(logits: Floats, *, temperature: float) -> Floats:
    """(logit - maximum) * 1/T, each step rounded to float32."""
    return _scores(logits, inverse_of(temperature))


def inverse_of(temperature: float) -> np.float32:
    return np.float32(1.0 / min(max(temperature, MIN_TEMPERATURE), MAX_TEMPERATURE))


def _scores(logits: Floats, inverse: np.float32) -> Floats:
    with np.errstate(over="ignore"):
        return np.asarray((logits - logits.max()) * inverse, dtype=np.float32)


def report(logits: Floats, token_id: int, *, num_best: int) -> tuple[float, tuple[TokenLogprob, ...]]:
    """Log-probability of the token and the best alternatives, from the model's own logits."""
    return float(log_softmax(logits)[token_id]), best_logprobs(logits, num_best)
