"""Beam search on laws one can enumerate: against a plain second version, and against every answer there is."""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st

from tests.strategy_reference import Answer, Law, beam_search, log_probabilities
from twostroke.core.request import Request
from twostroke.core.sequence import FinishReason, Sequence as Growing
from twostroke.core.step import TokenLogprob
from twostroke.core.strategy import Hypothesis
from twostroke.params import BeamSearch, SamplingParams
from twostroke.strategy.beam import BeamChooser

PROMPT = (1, 2, 3)


def random_law(seed: int, *, vocab: int, sharpness: float = 2.0) -> Law:
    """Logits that depend on the whole context."""

    def law(context: Sequence[int]) -> npt.NDArray[np.float32]:
        rng = np.random.default_rng([seed, *context])
        return (sharpness * rng.standard_normal(vocab)).astype(np.float32)

    return law


def ask(
    *,
    beam: BeamSearch,
    stop_token_ids: frozenset[int] = frozenset(),
    max_tokens: int = 8,
    repetition_penalty: float = 1.0,
    stop: tuple[str, ...] = (),
) -> Request:
    params = SamplingParams(max_tokens=max_tokens, repetition_penalty=repetition_penalty, stop=stop, beam=beam)
    return Request(
        request_id="r1", prompt_token_ids=PROMPT, params=params, arrival_s=0.0, seed=0, stop_token_ids=stop_token_ids
    )


def chooser_of(request: Request) -> BeamChooser:
    """Tokens as letters, for stop strings."""
    return BeamChooser(request, text_of=lambda ids: "".join(chr(ord("a") + token_id) for token_id in ids))


def search(law: Law, request: Request) -> tuple[tuple[Hypothesis, ...], int]:
    """Drive a chooser as the engine does: candidates in, growths applied. Returns its answers and the steps it took."""
    chooser = chooser_of(request)
    numbers = itertools.count(1)
    group = [Growing.from_request(request, sequence_id=0)]
    for step in itertools.count(1):
        candidates = [best_of(law(each.token_ids), chooser.num_candidates) for each in group]
        grown = chooser.choose(group, candidates)
        if not grown:
            return chooser.hypotheses(), step
        parents = {each.sequence_id: each for each in group}
        group = [parents[parent].child(token, sequence_id=next(numbers)) for parent, token in grown]
    raise AssertionError


def best_of(logits: npt.NDArray[np.float32], count: int) -> list[TokenLogprob]:
    logprobs = log_probabilities(logits)
    return [TokenLogprob(int(i), float(logprobs[i])) for i in np.argsort(-logprobs, kind="stable")[:count]]


def assert_same(found: Sequence[Hypothesis], expected: Sequence[Answer]) -> None:
    assert [each.token_ids for each in found] == [each.token_ids for each in expected]
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], rel=1e-9)


@given(
    seed=st.integers(0, 2**16),
    width=st.integers(1, 6),
    length_penalty=st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0]),
    early_stopping=st.sampled_from([True, False, "never"]),
    num_stops=st.integers(0, 2),
    max_tokens=st.integers(1, 9),
)
def test_answers_and_scores_are_those_of_the_plain_version(
    seed: int, width: int, length_penalty: float, early_stopping: bool, num_stops: int, max_tokens: int
) -> None:
    law = random_law(seed, vocab=24)
    stops = frozenset(range(num_stops))
    beam = BeamSearch(width=width, length_penalty=length_penalty, early_stopping=early_stopping, num_return=width)
    found, _ = search(law, ask(beam=beam, stop_token_ids=stops, max_tokens=max_tokens))
    assert_same(found, beam_search(law, PROMPT, beam=beam, stop_token_ids=stops, max_tokens=max_tokens))


@pytest.mark.parametrize("seed", range(3))
def test_a_width_of_every_prefix_finds_the_best_answer_there_is(seed: int) -> None:
    law, length = random_law(seed, vocab=4), 5
    beam = BeamSearch(width=4**4, length_penalty=0.0, early_stopping="never", num_return=3)
    found, _ = search(law, ask(beam=beam, max_tokens=length))

    def total(tokens: tuple[int, ...]) -> float:
        steps = [log_probabilities(law([*PROMPT, *tokens[:i]]))[token] for i, token in enumerate(tokens)]
        return math.fsum(steps)

    best = sorted(itertools.product(range(4), repeat=length), key=lambda tokens: -total(tokens))[:3]
    assert [each.token_ids for each in found] == best
    assert found[0].score == pytest.approx(total(best[0]))


def test_a_narrow_beam_can_miss_it() -> None:
    """The exhaustive test would pass on anything if this one did not."""
    seeds = [seed for seed in range(40) if greedy_misses(random_law(seed, vocab=4))]
    assert seeds


def greedy_misses(law: Law) -> bool:
    narrow, _ = search(law, ask(beam=BeamSearch(width=1, length_penalty=0.0), max_tokens=4))
    wide, _ = search(law, ask(beam=BeamSearch(width=64, length_penalty=0.0, early_stopping="never"), max_tokens=4))
    return narrow[0].score < wide[0].score - 1e-9


@given(seed=st.integers(0, 2**16), early_stopping=st.sampled_from([True, False, "never"]))
def test_width_one_is_greedy(seed: int, early_stopping: bool) -> None:
    law = random_law(seed, vocab=12)
    beam = BeamSearch(width=1, early_stopping=early_stopping, length_penalty=2.0)
    found, _ = search(law, ask(beam=beam, stop_token_ids=frozenset({3}), max_tokens=6))
    tokens: list[int] = []
    while len(tokens) < 6 and 3 not in tokens:
        tokens.append(int(law([*PROMPT, *tokens]).argmax()))
    assert found[0].token_ids == tuple(tokens)


def test_of_equal_candidates_the_first_beam_and_the_lowest_id_come_first() -> None:
    found, _ = search(
        lambda context: np.zeros(6, np.float32), ask(beam=BeamSearch(width=3, num_return=3), max_tokens=2)
    )
    assert [each.token_ids for each in found] == [(0, 0), (0, 1), (0, 2)]


def test_an_end_beyond_the_first_beams_is_lost() -> None:
    """Token 0 ends and is third best of two beams' candidates: neither kept nor grown."""
    logits = np.log(np.array([0.2, 0.5, 0.3], np.float32))
    found, _ = search(
        lambda context: logits, ask(beam=BeamSearch(width=2, num_return=2), stop_token_ids=frozenset({0}), max_tokens=1)
    )
    assert [each.token_ids for each in found] == [(1,), (2,)]
    assert {each.reason for each in found} == {FinishReason.LENGTH}


def test_early_stopping_ends_with_the_first_full_set() -> None:
    """Every second token ends; `True` takes the first two, `never` waits for what can still win."""
    law = random_law(5, vocab=8, sharpness=0.3)
    stops = frozenset(range(4))
    steps = {}
    for early in (True, False, "never"):
        beam = BeamSearch(width=2, early_stopping=early, length_penalty=2.0)
        _, steps[early] = search(law, ask(beam=beam, stop_token_ids=stops, max_tokens=12))
    assert steps[True] < steps[False] <= steps["never"] == 12


def test_a_repetition_penalty_moves_tokens_the_text_has() -> None:
    """Token 1 is of the prompt and the likeliest: at 3 times its loss it is out of the running."""
    logits = np.log(np.array([0.1, 0.6, 0.05, 0.05, 0.2], np.float32))
    plain, _ = search(lambda context: logits, ask(beam=BeamSearch(width=1), max_tokens=1))
    moved, _ = search(lambda context: logits, ask(beam=BeamSearch(width=1), max_tokens=1, repetition_penalty=4.0))
    assert (plain[0].token_ids, moved[0].token_ids) == ((1,), (4,))
    assert moved[0].score == pytest.approx(math.log(0.2))


def test_enough_candidates_are_asked_for_to_fill_the_beams_when_all_else_is_penalised() -> None:
    request = ask(beam=BeamSearch(width=2), max_tokens=5, repetition_penalty=1.5)
    assert chooser_of(request).num_candidates == 2 * 2 + len(PROMPT) + 5
    assert chooser_of(ask(beam=BeamSearch(width=2), stop_token_ids=frozenset({1, 2}))).num_candidates == 6


def test_a_restarted_search_forgets_everything() -> None:
    law, request = random_law(9, vocab=12), ask(beam=BeamSearch(width=2), max_tokens=4)
    chooser = chooser_of(request)
    root = Growing.from_request(request, sequence_id=0)
    candidates = [best_of(law(root.token_ids), chooser.num_candidates)]
    first = chooser.choose([root], candidates)
    chooser.restart()
    assert chooser.choose([root], candidates) == first
    assert not chooser.hypotheses()


def every_answer(law: Law, *, vocab: int, ends: Callable[[tuple[int, ...]], bool], length: int) -> list[Answer]:
    """All answers there are, by the sum of their log-probabilities, best first."""
    found: list[Answer] = []
    open_ones: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    for _ in range(length):
        grown = [
            ((*tokens, token), total + float(log_probabilities(law([*PROMPT, *tokens]))[token]))
            for tokens, total in open_ones
            for token in range(vocab)
        ]
        found += [Answer(tokens, total) for tokens, total in grown if ends(tokens) or len(tokens) == length]
        open_ones = [(tokens, total) for tokens, total in grown if not ends(tokens)]
    return sorted(found, key=lambda answer: -answer.score)


@pytest.mark.parametrize("seed", range(4))
def test_a_stop_string_ends_a_beam_where_it_is_complete_and_it_competes_by_its_score(seed: int) -> None:
    """Letters a to d; "bc" lies in two tokens. Wide enough to see every answer there is."""
    law = random_law(seed, vocab=4)
    beam = BeamSearch(width=4**4, length_penalty=0.0, early_stopping="never", num_return=20)
    found, _ = search(law, ask(beam=beam, max_tokens=5, stop=("bc", "d")))

    def ends(tokens: tuple[int, ...]) -> bool:
        return tokens[-1] == 3 or tokens[-2:] == (1, 2)

    expected = every_answer(law, vocab=4, ends=ends, length=5)[:20]
    assert_same(found, expected)
    assert all((each.reason is FinishReason.STOP) == ends(each.token_ids) for each in found)


def test_a_finished_answer_is_finished_and_none_is_told_twice() -> None:
    """Token 0 ends with probability 0.4 at every step: no copies that differ in what follows it."""
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    beam = BeamSearch(width=4, num_return=4, early_stopping="never")
    found, _ = search(lambda context: logits, ask(beam=beam, stop_token_ids=frozenset({0}), max_tokens=20))
    answers = [each.token_ids for each in found]
    assert len(set(answers)) == 4
    assert all(0 not in tokens[:-1] for tokens in answers)
    assert_same(
        found,
        beam_search(lambda context: logits, PROMPT, beam=beam, stop_token_ids=frozenset({0}), max_tokens=20)[:4],
    )


@pytest.mark.parametrize(("length_penalty", "first"), [(0.0, (1, 0)), (1.0, (2,) * 8)])
def test_the_length_penalty_divides_the_sum(length_penalty: float, first: tuple[int, ...]) -> None:
    """A short answer with a sum of -1.0 against eight tokens with -1.6."""

    def law(context: Sequence[int]) -> npt.NDArray[np.float32]:
        probabilities = np.full(3, 1e-9)
        if len(context) == len(PROMPT):
            probabilities[1], probabilities[2] = math.exp(-1.0), math.exp(-0.9)
        elif context[-1] == 1:
            probabilities[0] = 1.0
        else:
            probabilities[2] = math.exp(-0.1)
        probabilities[0] = max(probabilities[0], 1 - probabilities.sum())
        return np.asarray(np.log(probabilities), np.float32)

    beam = BeamSearch(width=2, length_penalty=length_penalty, early_stopping="never", num_return=2)
    found, _ = search(law, ask(beam=beam, stop_token_ids=frozenset({0}), max_tokens=8))
    assert found[0].token_ids == first


@pytest.mark.parametrize("width", [10, 11, 20, 21, 50])
def test_width_has_no_limit_of_the_public_log_probabilities(width: int) -> None:
    law = random_law(3, vocab=40)
    beam = BeamSearch(width=width, num_return=width)
    found, _ = search(law, ask(beam=beam, max_tokens=3))
    assert_same(found, beam_search(law, PROMPT, beam=beam, stop_token_ids=frozenset(), max_tokens=3))
