"""One token per row of logits. Owns the sampled ids; called by the engine's step, once per step.

All rows are drawn in one native call without the GIL (native/sample_row.cpp), with the help of other threads where
that pays. What a draw is, `reference.py` defines. Never looks at a neighbouring row.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twostroke import _native
from twostroke._native import Candidates, SamplingState
from twostroke.core.request import Request
from twostroke.core.step import DeadEnd, SampledToken, ScoredToken, TokenLogprob
from twostroke.core.strategy import AnswerGrammar
from twostroke.sample.ranking import rank_allowed
from twostroke.sample.scoring import score_tokens

__all__ = ["NO_TOKEN", "Sampler", "SamplingRow", "SamplingState"]

NO_TOKEN = -1  # token_id of a row that failed
NONE_LEFT = DeadEnd("no token may be drawn: all are forbidden by the request's grammar, bad_words or n-grams")
_ANY_TOP_K = 2**31 - 1  # larger than any vocabulary: off, like every larger one


class SamplingRow(NamedTuple):
    """One row of logits and the state of the sequence it belongs to."""

    sequence_id: int
    state: SamplingState
    grammar: AnswerGrammar | None = None
    num_ranked: int = 0  # where somebody else chooses: the candidates among what the grammar allows

    def grow(self, token_id: int) -> None:
        """The sequence grew by this token."""
        self.state.append(token_id)
        if self.grammar is not None:
            self.grammar.advance(token_id)


class Sampler:
    """Chooses among the first `vocab_size` logits of a row; further columns are padding of the model's head."""

    def __init__(self, vocab_size: int, *, isa: str | None = None, pool: _native.Pool | None = None) -> None:
        """`isa` None takes the fastest this machine can run; a pool helps the caller's thread with much work."""
        self.vocab_size = vocab_size
        self._native = _native.Sampler(vocab_size, isa=isa or _native.usable_isas()[0], pool=pool)
        self._candidates = Candidates(vocab_size, num_threads=1 if pool is None else pool.num_threads)

    def start(self, request: Request, *, choice_index: int | None = None) -> SamplingState:
        """The state of a new sequence, a choice of its request; the caller appends each token it grows by."""
        params = request.params
        return SamplingState(
            request.prompt_token_ids,
            seed=request.seed,
            choice_index=request.choice_index if choice_index is None else choice_index,
            temperature=params.temperature,
            top_k=min(max(params.top_k or 0, 0), _ANY_TOP_K),
            top_p=params.top_p,
            min_p=params.min_p,
            repetition_penalty=params.repetition_penalty,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            num_logprobs=params.logprobs,
            logit_bias=params.logit_bias,
            late_ids=sorted(request.stop_token_ids) if params.min_tokens else (),
            num_late=params.min_tokens,
            penalty_last_n=params.penalty_last_n,
            typical_p=params.typical_p,
            top_n_sigma=params.top_n_sigma,
            dynatemp_range=params.dynatemp_range,
            dynatemp_exponent=params.dynatemp_exponent,
            xtc_probability=params.xtc_probability,
            xtc_threshold=params.xtc_threshold,
            mirostat_tau=params.mirostat_tau or 0.0,
            mirostat_eta=params.mirostat_eta,
            dry_multiplier=params.dry_multiplier,
            dry_base=params.dry_base,
            dry_allowed_length=params.dry_allowed_length,
            dry_penalty_last_n=params.dry_penalty_last_n,
            dry_breakers=request.dry_breakers,
            no_repeat_ngram_size=params.no_repeat_ngram_size,
            bad_words=request.bad_words,
            order=params.sampler_order,
        )

    def start_ranking(self, request: Request, *, num_candidates: int) -> SamplingState:
        """The state of a sequence whose next token somebody else chooses among the best `num_candidates`.

        They come as the raw `top_logprobs` of its row, whatever the request's own wishes are.
        """
        return SamplingState(
            request.prompt_token_ids,
            seed=request.seed,
            choice_index=0,
            temperature=0.0,
            top_k=0,
            top_p=1.0,
            min_p=0.0,
            repetition_penalty=1.0,
            presence_penalty=0.0,
            frequency_penalty=0.0,
            num_logprobs=num_candidates,
        )

    def score(self, logits: NDArray[np.float32], token_ids: Sequence[int], *, num_best: int) -> list[ScoredToken]:
        """How likely each row of `logits` holds its token; see scoring.py. Raises ValueError for broken logits."""
        return score_tokens(self._native, logits, token_ids, vocab_size=self.vocab_size, num_best=num_best)

    def close(self) -> None:
        """Let go of the threads; it cannot sample any more. May be called twice."""
        self.__dict__.pop("_native", None)

    def ask(self, rows: Sequence[SamplingRow | None]) -> Candidates | None:
        """What a head is to hand on for these to be drawn from, instead of all logits; None where every row needs all.

        A row of None does. What is asked is good until the next time.
        """
        states = [None if row is None or not _has_mask(row) else row.state for row in rows]
        return self._candidates if self._candidates.plan(states) else None

    def sample(
        self,
        logits: NDArray[np.float32],
        rows: Sequence[SamplingRow],
        *,
        at: Sequence[int] | None = None,
        candidates: Candidates | None = None,
    ) -> list[SampledToken]:
        """One token per row; a broken row gets an error, alone.

        `logits` [any, vocab or more]; each row draws from the one named in `at`, or all of them in turn. Where
        `candidates` were asked for and came, it draws from them and gives the same token.
        """
        masks, given_up = _set_masks(rows)
        token_ids, broken, reports = self._native.sample(logits, [row.state for row in rows], at, candidates)
        sources = range(len(rows)) if at is None else at
        tokens = [SampledToken(row.sequence_id, token_id) for row, token_id in zip(rows, token_ids, strict=True)]
        for index, best_logit in broken:
            largest = self._largest(logits, candidates, sources[index])
            tokens[index] = _broken(rows[index], given_up.get(index) or _problem(best_logit, largest))
        for index, logprob, best in reports:
            top = tuple([TokenLogprob(token_id, value) for token_id, value in best])
            if rows[index].num_ranked and index in masks:
                known = logits[sources[index], : self.vocab_size]
                top = rank_allowed(known, masks[index], best=top[0], num_ranked=rows[index].num_ranked)
            tokens[index] = tokens[index]._replace(logprob=logprob, top_logprobs=top)
        return tokens

    def _largest(self, logits: NDArray[np.float32], candidates: Candidates | None, source: int) -> float:
        """The largest logit of a row, whether it may come or not."""
        if candidates is None or candidates.wants_all(source):
            return float(logits[source, : self.vocab_size].max())
        return candidates.top(source)


def _problem(best_logit: float, largest: float) -> str:
    """The model's fault, or what the request forbids left nothing of what the model had."""
    if best_logit != -np.inf:
        return f"a logit is {best_logit}"
    return "no token may be drawn: every logit is -inf" if largest == -np.inf else NONE_LEFT


def _has_mask(row: SamplingRow) -> bool:
    """Let its grammar say what may come next. False where it gave up, as is told when the row is sampled."""
    return not _set_masks([row])[1]


def _set_masks(rows: Sequence[SamplingRow]) -> tuple[dict[int, NDArray[np.uint32]], dict[int, str]]:
    """Let grammars say what may come next; rows whose grammar gave up may draw nothing and have its reason."""
    masks: dict[int, NDArray[np.uint32]] = {}
    given_up: dict[int, str] = {}
    for index, row in enumerate(rows):
        if row.grammar is not None:
            try:
                masks[index] = np.frombuffer(row.grammar.allowed(), np.uint32)
                row.state.allow(masks[index])
            except ValueError as error:
                given_up[index] = DeadEnd(f"its grammar gave up: {error}")
                row.state.allow(np.zeros(1, np.uint32))
    return masks, given_up


def _broken(row: SamplingRow, problem: str) -> SampledToken:
    position = row.state.position
    told = f"{problem} at position {position}: no token can be chosen"
    return SampledToken(row.sequence_id, NO_TOKEN, error=DeadEnd(told) if isinstance(problem, DeadEnd) else told)
