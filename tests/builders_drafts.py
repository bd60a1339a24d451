"""A speculator for tests that knows every answer and says how much of it to guess right."""

import random
from collections.abc import Mapping, Sequence as Seq

from twostroke.core.event import Speculation
from twostroke.core.sequence import Sequence
from twostroke.core.step import RowPlan
from twostroke.core.step_cost import StepCost
from twostroke.params import SamplingParams

Answers = Mapping[tuple[tuple[int, ...], SamplingParams], Seq[int]]  # (prompt, params) -> tokens


class Forced:
    """Always drafts `length` tokens: the right ones but for a share of wrong ones. It knows each answer."""

    def __init__(self, answers: Answers, *, length: int, wrong: float, seed: int = 0) -> None:
        self._answers = answers
        self._length = length
        self._wrong = wrong
        self._rng = random.Random(seed)
        self.num_drafted = 0
        self.num_accepted = 0

    def draft(self, decoding: Seq[Sequence], cost: StepCost) -> Mapping[int, tuple[int, ...]]:
        return {each.sequence_id: self._guess(each) for each in decoding}

    def _guess(self, sequence: Sequence) -> tuple[int, ...]:
        answer = self._answers[sequence.request.prompt_token_ids, sequence.request.params]
        rest = [*answer[sequence.num_output_tokens :], *([0] * self._length)][: self._length]
        return tuple([(each + 1) % 256 if self._rng.random() < self._wrong else each for each in rest])

    def learn(self, rows: Seq[RowPlan], num_grown: Mapping[int, int], *, cost: StepCost, wall_s: float) -> None:
        for row in rows:
            if row.draft_token_ids:
                self.num_drafted += len(row.draft_token_ids)
                self.num_accepted += num_grown.get(row.sequence_id, 1) - 1

    def forget(self, sequence_id: int) -> Speculation | None:
        return Speculation(self.num_drafted, self.num_accepted, None)
