"""One token per row of logits. Owns the sampled ids; called by the engine's step, once per step.

Order: penalties, temperature, top-k, top-p, min-p, then the argmax over the survivors of
logit / temperature + Gumbel noise (Gumbel-max: Maddison et al. 2014), which is a draw from their softmax.
Temperature 0 is the plain argmax, lowest id on ties. Never looks at a neighbouring row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twostroke.core.request import Request
from twostroke.core.step import SampledToken, TokenLogprob
from twostroke.params import SamplingParams
from twostroke.sample.filters import Indices, Scores, keep_min_p, keep_top_k, keep_top_p
from twostroke.sample.logprobs import best_logprobs, log_softmax
from twostroke.sample.penalties import TokenCounts, has_penalties, penalised
from twostroke.sample.random import GUMBEL_TAIL, TAIL_WORD, NoiseKey, Words, gumbel, words_of_all, words_of_some

# Beyond these a temperature acts like the limit it tends to: float32 could not hold the quotient.
MIN_TEMPERATURE = 1e-30
MAX_TEMPERATURE = 1e30
MAX_SHARED_SURVIVORS = 256  # up to here noise for all costs less than the search for tokens that can win
NO_TOKEN = -1  # token_id of a row that failed


class SamplingState:
    """What the sampler remembers of one sequence: its wishes, its noise and the tokens so far."""

    def __init__(self, request: Request, *, choice_index: int = 0) -> None:
        self.params = request.params
        self.seed = request.seed
        self.choice_index = choice_index
        self.position = len(request.prompt_token_ids)  # of the token to come
        self.has_penalties = has_penalties(request.params)
        counts_prompt = request.params.repetition_penalty != 1.0
        self.counts = TokenCounts(request.prompt_token_ids if counts_prompt else ())

    def append(self, token_id: int) -> None:
        """The sequence grew by this token."""
        self.position += 1
        if self.has_penalties:
            self.counts.append(token_id)

    @property
    def noise_key(self) -> NoiseKey:
        return NoiseKey(self.seed, self.choice_index, self.position)


@dataclass(frozen=True, slots=True)
class SamplingRow:
    """One row of logits and the state of the sequence it belongs to."""

    sequence_id: int
    state: SamplingState


@dataclass(frozen=True, slots=True)
class _Survivors:
    """What the filters left of a row. `token_ids` is None when every token survived."""

    scores: Scores
    token_ids: Indices | None = None

    @property
    def ids(self) -> Indices:
        return np.arange(len(self.scores)) if self.token_ids is None else self.token_ids

    def narrowed(self, kept: Indices) -> "_Survivors":
        return _Survivors(self.scores[kept], kept if self.token_ids is None else self.token_ids[kept])


class Sampler:
    """Chooses among the first `vocab_size` logits of a row; further columns are padding of the model's head."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def start(self, request: Request, *, choice_index: int = 0) -> SamplingState:
        """The state of a new sequence; the caller appends each token that the sequence grows by."""
        return SamplingState(request, choice_index=choice_index)

    def sample(self, logits: NDArray[np.float32], rows: Sequence[SamplingRow]) -> list[SampledToken]:
        """One token per row of `logits` [rows, vocab or more]; a broken row gets an error, alone."""
        assert len(logits) == len(rows), (len(logits), len(rows))
        if not rows:
            return []
        logits = logits[:, : self.vocab_size]
        best = logits.argmax(axis=1)  # NaN counts as the largest, so it shows up here
        best_logits = logits[np.arange(len(rows)), best]
        chosen = best.tolist()
        is_sane = np.isfinite(best_logits).tolist()
        noisy: list[tuple[int, _Survivors]] = []
        for index, row in enumerate(rows):
            state = row.state
            if not is_sane[index] or (state.params.temperature == 0 and not state.has_penalties):
                continue
            values = penalised(logits[index], state.counts, state.params) if state.has_penalties else logits[index]
            if state.params.temperature == 0:
                chosen[index] = int(values.argmax())
            else:
                noisy.append((index, _survivors(values, state.params)))
        self._draw(rows, noisy, chosen)
        return [
            self._report(row, logits[index], chosen[index]) if is_sane[index] else _broken(row, best_logits[index])
            for index, row in enumerate(rows)
        ]

    def _draw(self, rows: Sequence[SamplingRow], noisy: list[tuple[int, _Survivors]], chosen: list[int]) -> None:
        """Fill in `chosen` for the rows with noise; rows with few survivors share one run of the generator."""
        few: list[int] = []
        few_ids: list[Indices] = []
        few_scores: list[Scores] = []
        for index, survivors in noisy:
            if len(survivors.scores) > MAX_SHARED_SURVIVORS:
                chosen[index] = self._draw_alone(rows[index].state.noise_key, survivors)
            else:
                few.append(index)
                few_ids.append(survivors.ids)
                few_scores.append(survivors.scores)
        if few:
            words = words_of_some([rows[index].state.noise_key for index in few], few_ids)
            totals = np.concatenate(few_scores) + gumbel(words)
            start = 0
            for index, ids in zip(few, few_ids, strict=True):
                chosen[index] = int(ids[totals[start : start + len(ids)].argmax()])
                start += len(ids)

    def _draw_alone(self, key: NoiseKey, survivors: _Survivors) -> int:
        if 4 * len(survivors.scores) <= self.vocab_size:
            words = words_of_some([key], [survivors.ids])
        else:  # one counter serves four neighbouring ids, so all words are the cheaper ones
            words = words_of_all(key, self.vocab_size)
            if survivors.token_ids is not None:
                words = words[survivors.token_ids]
        winner = _winner(survivors.scores, words)
        return winner if survivors.token_ids is None else int(survivors.token_ids[winner])

    def _report(self, row: SamplingRow, logits: NDArray[np.float32], token_id: int) -> SampledToken:
        num_best = row.state.params.logprobs
        if num_best is None:
            return SampledToken(row.sequence_id, token_id)
        logprobs = log_softmax(logits)
        top: tuple[TokenLogprob, ...] = best_logprobs(logprobs, num_best)
        return SampledToken(row.sequence_id, token_id, logprob=float(logprobs[token_id]), top_logprobs=top)


def _survivors(logits: NDArray[np.float32], params: SamplingParams) -> _Survivors:
    temperature = np.float32(min(max(params.temperature, MIN_TEMPERATURE), MAX_TEMPERATURE))
    with np.errstate(over="ignore"):
        result = _Survivors((logits - logits.max()) / temperature)
    if params.top_k is not None and 0 < params.top_k < len(logits):
        result = result.narrowed(keep_top_k(result.scores, params.top_k))
    if params.top_p < 1.0:
        result = result.narrowed(keep_top_p(result.scores, params.top_p))
    if params.min_p > 0.0:
        result = result.narrowed(keep_min_p(result.scores, params.min_p))
    return result


def _winner(scores: Scores, words: Words) -> int:
    """Index of the largest score + noise, lowest on ties.

    Noise costs two logarithms, so it is computed only where it can matter: beside the token with the
    best score, for tokens close to it or with an extreme word. The others cannot win.
    """
    best = int(scores.argmax())
    bar = scores[best] + float(gumbel(words[best : best + 1])[0]) - GUMBEL_TAIL
    able = np.flatnonzero((scores >= bar - 1e-3) | (words > TAIL_WORD))  # 1e-3 covers float32 rounding of the bar
    if len(able) == 0:
        return best
    return int(able[(scores[able] + gumbel(words[able])).argmax()])


def _broken(row: SamplingRow, best_logit: np.float32) -> SampledToken:
    problem = "every logit is -inf" if best_logit == -np.inf else f"a logit is {best_logit}"
    position = row.state.position
    return SampledToken(row.sequence_id, NO_TOKEN, error=f"{problem} at position {position}: no token can be chosen")
