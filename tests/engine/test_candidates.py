"""Which rows of a step are drawn from candidates: by what each asks for, and with the tokens of all logits."""

from typing import Any

import pytest

from tests.builders import Bench
from tests.builders_drafts import Eager, Forced, make_drafter
from tests.engine.test_wanted import TEXT, Fixed, Guessing, Spelled
from twostroke.params import BeamSearch, SamplingParams
from twostroke.program.program import BoundStep

PROMPT = (1, 2, 3)
GREEDY = SamplingParams(max_tokens=6)
FEW: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0, "top_k": 5},
    {"temperature": 1.0, "top_k": 40, "top_p": 0.8, "min_p": 0.01, "repetition_penalty": 1.2},
    {"temperature": 1.0, "top_k": 40, "typical_p": 0.8},
    {"presence_penalty": 1.0, "logit_bias": ((9, 2.0),)},
    {"min_tokens": 3, "bad_words": ()},
]
ALL: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 1.0, "top_k": 200},
    {"logprobs": 0},
    {"temperature": 1.0, "top_k": 5, "logprobs": 2},
    {"temperature": 1.0, "mirostat_tau": 3.0},
    {"dry_multiplier": 0.8},
    {"no_repeat_ngram_size": 2},
    {"beam": BeamSearch(width=2)},
]


class Watch:
    """A bench that keeps for each step which of its rows had candidates."""

    def __init__(self, **options: Any) -> None:
        self.bench = Bench(asks_candidates=True, **options)
        self.asked: list[list[bool]] = []
        run = self.bench.reader.run

        def watched(step: BoundStep) -> Any:
            given = step.candidates
            rows = range(len(step.selected))
            self.asked.append([given is not None and not given.wants_all(row) for row in rows])
            return run(step)

        self.bench.reader.run = watched  # type: ignore[method-assign]

    def add(self, prompt: Any = PROMPT, *, grammar: Any = None, **wishes: Any) -> Any:
        return self.bench.add(prompt, params=SamplingParams(**{"max_tokens": 6, **wishes}), grammar=grammar)[1]


@pytest.mark.parametrize("wish", FEW, ids=str)
def test_the_best_few_are_enough(wish: dict[str, Any]) -> None:
    watch, plain = Watch(), Bench()
    listener = watch.add(**wish)
    _, expected = plain.add(PROMPT, params=SamplingParams(**{"max_tokens": 6, **wish}))
    watch.bench.run()
    plain.run()
    assert watch.asked == [[True]] * 6
    assert listener.token_ids == expected.token_ids


def test_a_step_of_few_rows_asks_for_nothing() -> None:
    watch = Watch()
    watch.bench.engine._candidates_from = 3
    for length in (3, 5, 7):
        watch.add(max_tokens=length)
    watch.bench.run()
    assert watch.asked == [[True] * 3] * 3 + [[False] * 2] * 2 + [[False]] * 2


@pytest.mark.parametrize("wish", ALL, ids=str)
def test_who_needs_more_gets_all_logits(wish: dict[str, Any]) -> None:
    watch = Watch()
    watch.add(**wish)
    watch.bench.run()
    assert not any(any(step) for step in watch.asked)


def test_rows_of_both_kinds_share_a_step() -> None:
    wishes = [*FEW[:4], *ALL[:4]]
    watch, plain = Watch(), Bench()
    listeners = [watch.add(**wish) for wish in wishes]
    expected = [plain.add(PROMPT, params=SamplingParams(**{"max_tokens": 6, **wish}))[1] for wish in wishes]
    watch.bench.run()
    plain.run()
    assert watch.asked == [[True] * 4 + [False] * 4] * 6
    assert [each.tokens for each in listeners] == [each.tokens for each in expected]


def test_rows_of_a_prompt_that_are_scored_have_all_their_logits_and_the_last_one_need_not() -> None:
    watch, plain = Watch(), Bench()
    listener = watch.add(range(40), prompt_logprobs=1)
    _, expected = plain.add(range(40), params=SamplingParams(max_tokens=6, prompt_logprobs=1))
    watch.bench.run()
    plain.run()
    assert watch.asked[0] == [False] * len(watch.asked[0])
    assert watch.asked[1] == [False] * (len(watch.asked[1]) - 1) + [True]
    assert watch.asked[2:] == [[True]] * 5
    assert listener.finish == expected.finish
    assert listener.token_ids == expected.token_ids


def test_steps_without_logits_ask_for_nothing() -> None:
    watch = Watch()
    watch.add([1] * 70)  # three chunks
    watch.bench.run()
    assert watch.asked[:3] == [[], [], [True]]


@pytest.mark.parametrize("wish", [{}, {"temperature": 1.0, "top_k": 3}])
def test_a_grammar_masks_the_ranking(wish: dict[str, Any]) -> None:
    ids = [5, 70, 71, 200]
    watch, plain = Watch(), Bench()
    listener = watch.add(grammar=Fixed(tuple(ids)), **wish)
    params = SamplingParams(**{"max_tokens": 6, **wish})
    _, expected = plain.add(PROMPT, params=params, grammar=Fixed(tuple(ids)))
    watch.bench.run()
    plain.run()
    assert watch.asked == [[True]] * 6
    assert listener.token_ids == expected.token_ids
    assert set(listener.token_ids) <= set(ids)


def test_a_grammar_that_gives_up_or_allows_nothing_fails_alone_and_with_its_own_words() -> None:
    watch = Watch()
    tired = watch.add(grammar=Fixed((5,), lasts=2))
    stuck = watch.add(grammar=Fixed(()))
    fine = watch.add(grammar=Fixed((9,)))
    watch.bench.run()
    assert "its grammar gave up: too deep" in tired.finish.error
    assert "no token may be drawn: all are forbidden" in stuck.finish.error
    assert fine.token_ids == [9] * 6


def test_a_broken_row_fails_alone() -> None:
    watch = Watch()
    watch.bench.reader.nan_after = 77
    broken, fine = watch.add([77]), watch.add()
    watch.bench.run()
    assert "a logit is nan" in broken.finish.error
    assert len(fine.token_ids) == 6


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({}, True),
        ({"temperature": 1.0, "top_k": 4}, True),
        ({"logit_bias": ((9, 2.0),)}, True),
        ({"repetition_penalty": 1.2}, False),  # a draft that is right is penalised behind itself
    ],
)
def test_positions_behind_drafts_are_drawn_from_candidates_where_no_draft_changes_them(
    wish: dict[str, Any], expected: bool
) -> None:
    params = SamplingParams(**{"max_tokens": 12, **wish})
    plain = Bench()
    _, alone = plain.add(PROMPT, params=params)
    plain.run()
    forced = Forced({(PROMPT, params): alone.token_ids}, length=3, wrong=0.3)
    watch = Watch(speculator=forced)
    listener = watch.add(**{**wish, "max_tokens": 12})
    watch.bench.run()
    assert listener.token_ids == alone.token_ids
    assert forced.num_accepted > 0
    behind = [step for step in watch.asked if len(step) > 1]
    assert behind
    assert all(set(step) == {expected} for step in behind)


def test_behind_drafts_a_grammar_masks_other_tokens_so_all_logits_are_needed() -> None:
    watch = Watch(speculator=Guessing(TEXT[1:4]))
    listener = watch.add(grammar=Spelled(TEXT), max_tokens=5)
    watch.bench.engine.step()
    watch.bench.engine.step()
    assert watch.asked == [[True], [False] * 4]
    watch.bench.run()
    plain = Bench()
    _, alone = plain.add(PROMPT, params=SamplingParams(max_tokens=5), grammar=Spelled(TEXT))
    plain.run()
    assert listener.token_ids == alone.token_ids


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(max_tokens=6, temperature=1.0, top_k=3, seed=4)])
def test_a_draft_model_guesses_the_same_from_candidates(params: SamplingParams) -> None:
    answers, counts = [], []
    for asks in (False, True):
        eager = Eager(make_drafter(asks_candidates=asks), length=3)
        bench = Bench(num_blocks=96, speculator=eager, asks_candidates=asks)
        listeners = [bench.add(prompt, params=params)[1] for prompt in (PROMPT, (9, 8), (5,) * 9)]
        bench.run()
        answers.append([each.token_ids for each in listeners])
        counts.append((eager.num_drafted, eager.num_accepted))
    assert answers[0] == answers[1]
    assert counts[0] == counts[1]
    assert counts[0][1] > 0
