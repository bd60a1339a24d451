"""Beam search as the transformers library defines it: pure arithmetic on candidates.

The engine calls it through core.strategy.Chooser, once per step of its group; it never sees logits or blocks.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence as Seq
from typing import NamedTuple

from twostroke.core.request import Request
from twostroke.core.sequence import FinishReason, Sequence
from twostroke.core.step import TokenLogprob
from twostroke.core.strategy import Growth, Hypothesis


class _Candidate(NamedTuple):
    """A sequence one token longer, ordered best first: by score, then by beam, then by id."""

    loss: float  # minus the sum of log-probabilities
    beam: int
    token_id: int


class BeamChooser:
    """The beams of one request.

    Of all continuations the best max(2, 1 + number of stop ids) * width are looked at. One that ends (stop id, stop
    string, or max_tokens reached) is kept as finished if it ranks among the first `width`, and lost otherwise; the best
    `width` of the others run on. A finished answer scores (sum of log-probabilities) / length ** length_penalty, its
    stop id included, the prompt not. The best `width` finished are remembered.
    """

    def __init__(self, request: Request, *, text_of: Callable[[Seq[int]], str]) -> None:
        """`text_of` is the text of an answer; asked only where stop strings are to be found in it."""
        assert request.params.beam is not None, f"{request.request_id} asks for no beam search"
        self._beam = request.params.beam
        self._max_tokens = request.params.max_tokens
        self._penalty = request.params.repetition_penalty
        self._stop_token_ids = request.stop_token_ids
        self._stop_strings = request.params.stop
        self._text_of = text_of
        self._num_kept = max(2, 1 + len(request.stop_token_ids)) * self._beam.width
        # A penalty moves tokens the text has down the ranking: so many more have to be seen.
        most_seen = len(set(request.prompt_token_ids)) + self._max_tokens if self._penalty != 1.0 else 0
        self._num_candidates = self._num_kept + most_seen
        self._losses: list[float]  # of the running beams, in the order of the group
        self._finished: list[Hypothesis]  # best first
        self.restart()

    @property
    def num_candidates(self) -> int:
        return self._num_candidates

    def choose(self, group: Seq[Sequence], candidates: Seq[Seq[TokenLogprob]]) -> tuple[Growth, ...]:
        """See core.strategy.Chooser."""
        assert len(group) == len(self._losses), f"{len(group)} sequences for {len(self._losses)} beams"
        length = group[0].num_output_tokens + 1
        ranked = heapq.nsmallest(self._num_kept, self._continuations(group, candidates))
        running: list[_Candidate] = []
        for place, each in enumerate(ranked):
            token_ids = (*group[each.beam].output_token_ids, each.token_id)
            reason = self._end_of(token_ids)
            if reason is None:
                running.append(each)
            elif place < self._beam.width:
                self._finished.append(Hypothesis(token_ids, self._score(each.loss, length), reason))
        del running[self._beam.width :]
        self._finished.sort(key=lambda hypothesis: -hypothesis.score)  # stable: of equals the earlier stays
        del self._finished[self._beam.width :]
        if not running or not self._can_improve(running[0].loss, length=length):
            running = []
        self._losses = [each.loss for each in running]
        return tuple([Growth(group[each.beam].sequence_id, each.token_id) for each in running])

    def restart(self) -> None:
        """See core.strategy.Chooser."""
        self._losses = [0.0]
        self._finished = []

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """See core.strategy.Chooser."""
        return tuple(self._finished[: self._beam.num_return])

    def _continuations(self, group: Seq[Sequence], candidates: Seq[Seq[TokenLogprob]]) -> Iterator[_Candidate]:
        for beam, (sequence, best) in enumerate(zip(group, candidates, strict=True)):
            loss, penalty = self._losses[beam], self._penalty
            seen = frozenset(sequence.token_ids) if penalty != 1.0 else frozenset()
            for token_id, logprob in best:
                yield _Candidate(loss - (logprob * penalty if token_id in seen else logprob), beam, token_id)

    def _end_of(self, token_ids: tuple[int, ...]) -> FinishReason | None:
        if token_ids[-1] in self._stop_token_ids:
            return FinishReason.STOP
        if self._stop_strings:
            text = self._text_of(token_ids)
            if any(stop in text for stop in self._stop_strings):
                return FinishReason.STOP
        return FinishReason.LENGTH if len(token_ids) == self._max_tokens else None

    def _score(self, loss: float, length: int) -> float:
        return -loss / float(length**self._beam.length_penalty)

    def _can_improve(self, best_loss: float, *, length: int) -> bool:
        """Whether a running beam may still beat the worst answer; a guess where length_penalty rewards length."""
        if len(self._finished) < self._beam.width:
            return True
        if self._beam.early_stopping is True or self._beam.width == 1:  # one beam is greedy, as in the library
            return False
        if self._beam.early_stopping == "never" and self._beam.length_penalty > 0:
            length = self._max_tokens
        return self._score(best_loss, length) > self._finished[-1].score
