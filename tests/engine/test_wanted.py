"""Which part of the head a step reads: what its rows may draw, unless somebody looks at the rest."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.builders import VOCAB, Bench
from tests.builders_drafts import Answers, Forced
from twostroke.core.account import StepRecord
from twostroke.params import BeamSearch, SamplingParams
from twostroke.program.program import BoundStep

WORDS = VOCAB // 32
GREEDY = SamplingParams(max_tokens=4)


@dataclass
class Fixed:
    """A grammar in which the same tokens may always come, until it gives up."""

    ids: tuple[int, ...]
    lasts: int = 1000  # tokens
    num_asked: int = 0
    came: list[int] = field(default_factory=list)

    def allowed(self) -> bytes:
        self.num_asked += 1
        if len(self.came) >= self.lasts:
            raise ValueError("too deep")
        return words_of(self.ids).tobytes()

    def advance(self, token_id: int) -> None:
        self.came.append(token_id)

    def behind(self, token_id: int) -> "Fixed":
        return Fixed(self.ids, self.lasts, came=[*self.came, token_id])

    def fork(self) -> "Fixed":
        return Fixed(self.ids, self.lasts)


def words_of(ids: Iterable[int]) -> npt.NDArray[np.uint32]:
    words = [0] * WORDS
    for token_id in ids:
        words[token_id // 32] |= 1 << token_id % 32
    return np.frombuffer(struct.pack(f"<{WORDS}I", *words), np.uint32)


def is_exactly(wanted: npt.NDArray[np.uint32] | None, ids: Iterable[int]) -> bool:
    return wanted is not None and np.array_equal(wanted, words_of(ids))


class Watch:
    """A bench that keeps what each step wanted of the head, and the records of the steps."""

    def __init__(self, **options: Any) -> None:
        self.bench = Bench(**options)
        self.wanted: list[npt.NDArray[np.uint32] | None] = []
        self.records: list[StepRecord] = []
        run = self.bench.reader.run
        self.bench.engine.observe_steps(self.records.append)

        def watched(step: BoundStep) -> npt.NDArray[np.float32]:
            self.wanted.append(None if step.wanted is None else step.wanted.copy())
            return run(step)

        self.bench.reader.run = watched  # type: ignore[method-assign]

    def add(self, ids: Sequence[int] | None, *, prompt: Sequence[int] = (1, 2, 3), **wishes: Any) -> Any:
        grammar = wishes.pop("grammar", None) or (Fixed(tuple(ids)) if ids is not None else None)
        params = SamplingParams(**{"max_tokens": 4, **wishes})
        return self.bench.add(prompt, params=params, grammar=grammar)[1]

    def run(self) -> None:
        self.bench.run()


def test_a_step_of_grammars_reads_what_any_of_its_rows_may_draw() -> None:
    watch = Watch()
    first, second = watch.add([5, 70]), watch.add([71, 200])
    watch.run()
    assert all(is_exactly(each, [5, 70, 71, 200]) for each in watch.wanted)
    assert set(first.token_ids) <= {5, 70}
    assert set(second.token_ids) <= {71, 200}
    assert {record.head_share for record in watch.records} == {3 / WORDS}


@pytest.mark.parametrize(
    "wishes", [{"logprobs": 0}, {"logprobs": 3}, {"beam": BeamSearch(width=2)}, {"prompt_logprobs": 0}]
)
def test_who_looks_at_other_logits_gets_the_whole_head(wishes: dict[str, Any]) -> None:
    watch = Watch()
    watch.add([5, 70], **wishes)
    watch.run()
    if "prompt_logprobs" in wishes:  # of the prompt alone
        assert watch.wanted[0] is None
        assert all(each is not None for each in watch.wanted[1:])
    else:
        assert watch.wanted == [None] * len(watch.wanted)
        assert {record.head_share for record in watch.records} == {1.0}


def test_one_free_row_wants_all() -> None:
    watch = Watch()
    watch.add([5], max_tokens=6)
    watch.add(None, max_tokens=3)
    watch.run()
    assert watch.wanted[:3] == [None] * 3
    assert all(is_exactly(each, [5]) for each in watch.wanted[3:])
    assert len(watch.wanted) == 6


class Spelled:
    """Lets the letters of a text come one by one, each beside one other."""

    def __init__(self, ids: Sequence[int], *, place: int = 0, gives_up_at: int = 1000) -> None:
        self.ids, self.place, self.gives_up_at = tuple(ids), place, gives_up_at

    def may_come(self) -> list[int]:
        return [self.ids[self.place], self.ids[self.place] ^ 32]

    def allowed(self) -> bytes:
        if self.place >= self.gives_up_at:
            raise ValueError("too deep")
        return words_of(self.may_come()).tobytes()

    def advance(self, token_id: int) -> None:
        assert token_id in self.may_come(), "what may not come was foreseen"
        self.place += 1

    def behind(self, token_id: int) -> "Spelled":
        there = self.fork()
        there.advance(token_id)
        return there

    def fork(self) -> "Spelled":
        return Spelled(self.ids, place=self.place, gives_up_at=self.gives_up_at)


class Guessing(Forced):
    """Drafts the same ids whatever came."""

    def __init__(self, guess: Sequence[int]) -> None:
        super().__init__({}, length=len(guess), wrong=0.0)
        self._ids = tuple(guess)

    def _guess(self, sequence: Any) -> tuple[int, ...]:
        return self._ids


TEXT = (70, 5, 200, 130, 9, 77)


@pytest.mark.parametrize(
    ("guess", "places"),
    [
        ((5, 200, 130), [1, 2, 3, 4]),
        ((5 ^ 32, 200), [1, 2, 3]),
        ((5, 99, 130), [1, 2]),
        ((99,), [1]),
        ((5, 10**6), [1, 2]),
    ],
)
def test_what_may_come_behind_drafts_is_wanted_as_far_as_they_may_come(guess: Sequence[int], places: list[int]) -> None:
    watch = Watch(speculator=Guessing(guess))
    watch.add(None, grammar=Spelled(TEXT), max_tokens=5)
    watch.bench.engine.step()
    watch.bench.engine.step()
    assert is_exactly(watch.wanted[1], {each for place in places for each in (TEXT[place], TEXT[place] ^ 32)})


def test_a_grammar_that_gives_up_behind_a_draft_wants_the_whole_head_and_goes_on_without_it() -> None:
    watch = Watch(speculator=Guessing((5, 200)))
    listener = watch.add(None, grammar=Spelled(TEXT, gives_up_at=3), max_tokens=5)
    watch.bench.engine.step()
    assert is_exactly(watch.wanted[0], [TEXT[0], TEXT[0] ^ 32])
    watch.bench.engine.step()
    assert watch.wanted[1] is None
    watch.run()
    assert len(listener.token_ids) == 3
    assert "its grammar gave up" in listener.finish.error


@pytest.mark.parametrize("wrong", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("length", [1, 3])
def test_drafts_of_narrowed_rows_change_no_answer(wrong: float, length: int) -> None:
    wishes: list[dict[str, Any]] = [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.6}]

    def answers(speculator: Forced | None) -> list[tuple[Any, list[int]]]:
        watch = Watch(speculator=speculator)
        listeners = [watch.add(range(60, 75), max_tokens=12, **each) for each in wishes]
        watch.run()
        return [(each, listener.token_ids) for each, listener in zip(wishes, listeners, strict=True)]

    plain = answers(None)
    known: Answers = {((1, 2, 3), SamplingParams(**{"max_tokens": 12, **each})): ids for each, ids in plain}
    forced = Forced(known, length=length, wrong=wrong)
    assert answers(forced) == plain
    assert forced.num_drafted > 0
    assert (forced.num_accepted > 0) == (wrong < 1.0)


def test_steps_without_logits_want_nothing_special() -> None:
    watch = Watch()
    watch.add([5], prompt=[1] * 70)  # three chunks
    watch.run()
    kinds = [each is not None and each.any() for each in watch.wanted]
    assert kinds[2:] == [True] * 4


def test_a_grammar_that_gives_up_or_allows_nothing_fails_alone_and_with_its_own_words() -> None:
    watch = Watch()
    tired = watch.add(None, grammar=Fixed((5,), lasts=2))
    stuck = watch.add([])
    fine = watch.add([9])
    watch.run()
    assert "its grammar gave up: too deep" in tired.finish.error
    assert "no token may be drawn: all are forbidden" in stuck.finish.error
    assert fine.token_ids == [9] * 4


def test_answers_are_those_of_the_whole_head(monkeypatch: pytest.MonkeyPatch) -> None:
    def texts() -> list[list[int]]:
        watch = Watch()
        wishes: list[dict[str, Any]] = [
            {},
            {"temperature": 1.0, "seed": 3},
            {"temperature": 1.0, "top_p": 0.5, "seed": 4},
            {"temperature": 1.0, "top_k": 3, "min_p": 0.1, "seed": 5},
            {"temperature": 1.0, "typical_p": 0.7, "seed": 6},
            {"temperature": 1.0, "mirostat_tau": 3.0, "seed": 7},
            {"repetition_penalty": 1.5, "logit_bias": ((70, 2.0), (9, 50.0))},
        ]
        listeners = [watch.add(range(60, 75), max_tokens=12, **each) for each in wishes]
        watch.run()
        return [each.token_ids for each in listeners]

    narrow = texts()
    monkeypatch.setattr("twostroke.engine.wanted.WantedTokens.of", lambda *args: None)
    assert narrow == texts()


def test_masks_take_time_that_is_sampling() -> None:
    watch = Watch()

    class Slow(Fixed):
        def allowed(self) -> bytes:
            watch.bench.clock.advance(0.5)
            return super().allowed()

    watch.add(None, grammar=Slow((5,)))
    watch.run()
    assert {record.mask_s for record in watch.records} == {0.5}
