"""Speculators for tests: one that knows every answer and how much of it to guess right, one with a scripted model."""

import random
from collections.abc import Mapping, Sequence as Seq

import numpy as np
import numpy.typing as npt

from tests.builders import VOCAB, ScriptedReader
from tests.builders_cost import make_cost
from twostroke.cache.cache import KVCache
from twostroke.cache.config import CacheConfig
from twostroke.core.clock import VirtualClock
from twostroke.core.event import Speculation
from twostroke.core.sequence import Sequence
from twostroke.core.step import RowPlan
from twostroke.core.step_cost import StepCost
from twostroke.core.strategy import DraftModel
from twostroke.engine.bind import Binder
from twostroke.engine.cost_fit import StepCostFit
from twostroke.engine.draft_model import ModelDrafter
from twostroke.engine.kv_store import KVSize
from twostroke.params import SamplingParams
from twostroke.program.reader import KVSpec
from twostroke.sample.sampler import Sampler
from twostroke.strategy.ngram import NgramDrafter

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

    def has_nothing(self, num_running: int) -> bool:
        return False

    def draft(self, decoding: Seq[Sequence], cost: StepCost) -> Mapping[int, tuple[int, ...]]:
        return {each.sequence_id: self._guess(each) for each in decoding}

    def _guess(self, sequence: Sequence) -> tuple[int, ...]:
        answer = self._answers[sequence.request.prompt_token_ids, sequence.request.params]
        rest = [*answer[sequence.num_output_tokens :], *([0] * self._length)][: self._length]
        return tuple([(each + 1) % 256 if self._rng.random() < self._wrong else each for each in rest])

    def learn(
        self, rows: Seq[RowPlan], num_grown: Mapping[int, int], *, cost: StepCost, wall_s: float, draft_s: float
    ) -> None:
        for row in rows:
            if row.draft_token_ids:
                self.num_drafted += len(row.draft_token_ids)
                self.num_accepted += num_grown.get(row.sequence_id, 1) - 1

    def release(self, sequence_id: int) -> None:
        pass

    def forget(self, sequence_id: int) -> Speculation | None:
        return Speculation(self.num_drafted, self.num_accepted, None)

    @property
    def refused_share(self) -> float:
        return 0.0


class Eager:
    """Always asks a draft model for `length` tokens of everyone, whatever it costs."""

    def __init__(self, model: DraftModel, *, length: int) -> None:
        self.model = model
        self._length = length
        self.num_drafted = 0
        self.num_accepted = 0

    def has_nothing(self, num_running: int) -> bool:
        return False

    def draft(self, decoding: Seq[Sequence], cost: StepCost) -> Mapping[int, tuple[int, ...]]:
        return self.model.propose([(each, self._length) for each in decoding if self.model.why_not(each) is None])

    def learn(
        self, rows: Seq[RowPlan], num_grown: Mapping[int, int], *, cost: StepCost, wall_s: float, draft_s: float
    ) -> None:
        for row in rows:
            if row.draft_token_ids:
                self.num_drafted += len(row.draft_token_ids)
                self.num_accepted += num_grown.get(row.sequence_id, 1) - 1

    def release(self, sequence_id: int) -> None:
        self.model.forget(sequence_id)

    def forget(self, sequence_id: int) -> Speculation | None:
        self.model.forget(sequence_id)
        return Speculation(self.num_drafted, self.num_accepted, None)

    @property
    def refused_share(self) -> float:
        return 0.0


class EagerLookup(Eager):
    """Always takes what the text itself guesses, up to `length` tokens."""

    def __init__(self, *, length: int) -> None:
        super().__init__(make_drafter(), length=length)
        self.lookup = NgramDrafter()

    def draft(self, decoding: Seq[Sequence], cost: StepCost) -> Mapping[int, tuple[int, ...]]:
        guesses = {each.sequence_id: tuple(self.lookup.propose(each, self._length)) for each in decoding}
        return {sequence_id: guess for sequence_id, guess in guesses.items() if guess}

    def forget(self, sequence_id: int) -> Speculation | None:
        self.lookup.forget(sequence_id)
        return super().forget(sequence_id)


class Contrary(ScriptedReader):
    """Likes best what the right model likes least: always wrong where tokens are the likeliest."""

    def law(self, context: Seq[int]) -> npt.NDArray[np.float32]:
        return -super().law(context)


class Parrot(ScriptedReader):
    """Says the last token again, for ever."""

    def law(self, context: Seq[int]) -> npt.NDArray[np.float32]:
        logits = super().law(context)
        logits[context[-1]] += 1000
        return logits


class Doubtful(ScriptedReader):
    """Right after contexts of odd length, wrong after the others."""

    def law(self, context: Seq[int]) -> npt.NDArray[np.float32]:
        return super().law(context) if len(context) % 2 else -super().law(context)


def make_drafter(
    reader: type[ScriptedReader] = ScriptedReader,
    *,
    clock: VirtualClock | None = None,
    num_blocks: int = 96,
    block_size: int = 4,
    context: int = 10_000,
    max_step_tokens: int = 64,
    cost: StepCost | None = None,
    asks_candidates: bool = False,
) -> ModelDrafter:
    """A scripted model that reads along; next to free unless told, its steps take a ScriptedReader's time."""
    clock = clock or VirtualClock()
    cache = KVCache(CacheConfig(block_size=block_size, num_blocks=(num_blocks,), windows=(None,)))
    return ModelDrafter(
        reader=reader(num_blocks=num_blocks, block_size=block_size, clock=clock),
        cache=cache,
        binder=Binder(cache, num_groups=1, max_tokens=max_step_tokens, max_rows=32, max_blocks=num_blocks),
        sampler=Sampler(VOCAB),
        candidates_from=1 if asks_candidates else None,
        clock=clock,
        fit=StepCostFit(cost or make_cost(base_s=1e-5), is_measured=True),
        kv_size=KVSize(
            spec=KVSpec(precision="f32", block_size=block_size, num_blocks=(num_blocks,)),
            context=context,
            block_bytes=(block_size * 8,),
        ),
        max_step_tokens=max_step_tokens,
    )
