"""What repetitions forbid: by hand, against the publications and other libraries, natively as by the definition."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.sample.published import dry
from tests.sample.sampling_builders import make_logits, make_request
from twostroke.params import SamplingParams
from twostroke.sample.repetition import bad_ends, dry_penalties, lessened, power, repeated_ends
from twostroke.sample.sampler import NO_TOKEN, Sampler, SamplingRow

SIZE = 8
histories = st.lists(st.integers(0, 3), max_size=40)


def greedy(history: list[int], **wish: Any) -> int:
    """The best token after `history` of a row where the best is 0, then 1, ..."""
    sampler = Sampler(SIZE)
    state = sampler.start(make_request(prompt=history or [SIZE - 1], **wish))
    (token,) = sampler.sample(make_logits([-0.5 * i for i in range(SIZE)]), [SamplingRow(0, state)])
    return token.token_id


@pytest.mark.parametrize(
    ("history", "n", "ends"),
    [
        ([1, 2, 3, 1, 2], 3, {3}),
        ([1, 2, 3, 1, 2], 2, {3}),
        ([1, 2, 3, 1, 2], 1, {1, 2, 3}),
        ([1, 2, 3, 1, 2], 4, set()),
        ([1, 2, 3, 1, 2, 4, 1, 2], 3, {3, 4}),
        ([1, 1, 1], 3, {1}),
        ([1, 2], 3, set()),
        ([], 1, set()),
        ([1, 2, 3, 1, 2], 0, set()),
    ],
)
def test_the_end_of_an_n_gram_that_was_there_is_forbidden(history: list[int], n: int, ends: set[int]) -> None:
    assert repeated_ends(history, n) == ends


def test_a_bad_word_is_forbidden_at_its_last_token_alone() -> None:
    words = [(1, 2, 3), (5,)]
    assert bad_ends([], words) == {5}
    assert bad_ends([1], words) == {5}
    assert bad_ends([0, 1, 2], words) == {5, 3}
    assert bad_ends([1, 2, 3], words) == {5}
    assert bad_ends([2], words) == {5}
    assert greedy([4], bad_ids=[(0,), (4, 1)]) == 2
    assert greedy([4, 1], bad_ids=[(4, 1, 0), (1, 2)]) == 1


def test_when_everything_is_forbidden_the_row_says_so() -> None:
    assert greedy([0], bad_ids=[(i,) for i in range(SIZE)]) == NO_TOKEN
    assert greedy(list(range(SIZE)), no_repeat_ngram_size=1) == NO_TOKEN


def test_dry_grows_with_the_length_and_begins_at_the_allowed_one() -> None:
    wish: dict[str, Any] = {"dry_multiplier": 1.0, "dry_base": 2.0}
    for length, expected in [(1, []), (2, [(6, 1.0)]), (3, [(6, 2.0)]), (4, [(6, 4.0)])]:
        history = [*[1, 2, 3, 4][-length:], 6, 0, *[1, 2, 3, 4][-length:]]
        assert dry_penalties(history, params=SamplingParams(**wish)) == expected
    assert dry_penalties([1, 6, 0, 1], params=SamplingParams(dry_allowed_length=1, **wish)) == [(6, 1.0)]


def test_dry_looks_no_further_than_its_window_nor_over_a_breaker() -> None:
    history = [1, 2, 3, 6, 0, 1, 2, 3]
    wish: dict[str, Any] = {"dry_multiplier": 1.0, "dry_base": 2.0}

    def of(breakers: tuple[tuple[int, ...], ...] = (), **more: Any) -> list[tuple[int, float]]:
        return dry_penalties(history, params=SamplingParams(**wish, **more), breakers=breakers)

    assert of(dry_penalty_last_n=8) == [(6, 2.0)]
    assert of(dry_penalty_last_n=7) == [(6, 1.0)]  # the first 1 is out of sight
    assert of(dry_penalty_last_n=6) == []
    assert of(dry_penalty_last_n=0) == []
    assert of(((1,),)) == [(6, 1.0)]
    assert of(((2,),)) == of(((3,),)) == of(((2, 3),)) == []
    assert of(((6,),)) == []  # a breaker ends a repetition: it is not held back
    assert of(((6, 7),)) == [(6, 2.0)]


def test_powers_are_those_of_arithmetic_and_end_at_infinity() -> None:
    assert [power(1.75, n) for n in range(4)] == [1.0, 1.75, 1.75**2, 1.75**3]
    assert power(1.0, 10**6) == 1.0
    assert power(1e200, 3) == np.inf


def test_a_penalty_makes_nothing_impossible_and_revives_nothing() -> None:
    row = lessened(make_logits([1.0, -np.inf, 3.0])[0], [(0, np.inf), (1, 5.0), (2, 1.0), (9, 1.0)])
    assert np.isfinite(row[0])
    assert row[1:].tolist() == [-np.inf, 2.0]


@given(histories, st.integers(1, 4), st.sampled_from([1.0, 1.75, 3.0]), st.sets(st.integers(0, 3), max_size=1))
def test_dry_is_that_of_its_publication(history: list[int], allowed: int, base: float, breakers: set[int]) -> None:
    params = SamplingParams(dry_multiplier=0.8, dry_base=base, dry_allowed_length=allowed)
    ours = dict(dry_penalties(history, params=params, breakers=[(each,) for each in breakers]))
    assert ours == pytest.approx(dry(history, 0.8, base, allowed, breakers=breakers))


@given(histories, st.integers(0, 4), st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)))
def test_the_native_history_forbids_what_the_definition_does(
    history: list[int], n: int, words: list[tuple[int, ...]]
) -> None:
    """Greedy takes the lowest id that is left; the history grows token by token behind a prompt of one."""
    ends = repeated_ends([SIZE - 1, *history], n) | bad_ends([SIZE - 1, *history], words)
    sampler = Sampler(SIZE)
    state = sampler.start(make_request(prompt=[SIZE - 1], no_repeat_ngram_size=n, bad_ids=words))
    for token_id in history:
        state.append(token_id)
    (token,) = sampler.sample(make_logits([-0.5 * i for i in range(SIZE)]), [SamplingRow(0, state)])
    assert token.token_id == min(set(range(SIZE)) - ends)


def test_a_long_history_costs_one_pass() -> None:
    """The same token ten thousand times over: a search from every place would take minutes."""
    history = [0] * 10_000
    assert greedy(history, no_repeat_ngram_size=5) == 1
    assert greedy(history, dry_multiplier=1.0, dry_base=1.001) == 1


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(10))
def test_forbidden_tokens_are_those_of_transformers(seed: int) -> None:
    torch = pytest.importorskip("torch")
    process = pytest.importorskip("transformers.generation.logits_process")
    rng = np.random.default_rng(seed)
    history = rng.integers(0, 4, 30).tolist()
    scores = torch.zeros(1, SIZE)
    for n in range(1, 5):
        theirs = process.NoRepeatNGramLogitsProcessor(n)(torch.tensor([history]), scores)[0]
        assert repeated_ends(history, n) == set(np.flatnonzero(theirs.isinf().numpy()).tolist())
    words = [rng.integers(0, 4, size).tolist() for size in (1, 2, 2, 2, 3, 3, 3, 3, 40)]
    theirs = process.NoBadWordsLogitsProcessor(words)(torch.tensor([history]), scores)[0]
    assert bad_ends(history, words) == set(np.flatnonzero(theirs.isinf().numpy()).tolist())
