"""Beam search equals the transformers library's: tokens of every returned answer, and its score."""

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.builders_models import VOCAB_SIZE, save_tiny_model, tiny_models
from twostroke.core.event import Beam
from twostroke.llm import LLM
from twostroke.params import BeamSearch, SamplingParams
from twostroke.structure import Structure, StructureKind

pytestmark = pytest.mark.oracle

TOLERANCE = 1e-4  # on scores
FLOAT32 = 1e-6  # theirs are float32: a sum of -2500 has steps of 2.4e-4
FAMILIES = ("llama", "qwen3", "gemma3")
WIDTHS = (1, 2, 3, 4, 5, 6)
LENGTH_PENALTIES = (-1.0, 0.0, 0.5, 1.0, 2.0)
EARLY_STOPPING: tuple[Any, ...] = (True, False, "never")
WAIT_S = 300.0  # ninety searches are under way at once
PAD_ID = VOCAB_SIZE - 1
FIRST_CHARACTER = 0x20  # of a vocabulary in which an id is a character: grammars are about text
PROMPT = [int(token) for token in np.random.default_rng(5).integers(3, VOCAB_SIZE, 11)]


@dataclass
class Pair:
    """One tiny model in both engines, and the ids it reaches by itself: stop ids that do stop."""

    model: Any
    llm: LLM
    frequent: list[int]


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    tiny = next(each for each in tiny_models() if each.name == request.param)
    folder = tmp_path_factory.mktemp(tiny.name)
    model = save_tiny_model(tiny, folder, first_character=FIRST_CHARACTER)
    with LLM(folder, kv="f32", threads=1) as llm:
        wish = SamplingParams(max_tokens=30, ignore_eos=True, beam=BeamSearch(width=6, num_return=6))
        beams = llm.generate(PROMPT, wish)[0].beams
        seen = [token for beam in beams for token in beam.token_ids]
        yield Pair(model, llm, sorted(set(seen), key=lambda token: (-seen.count(token), token)))


def theirs(
    pair: Pair,
    beam: BeamSearch,
    *,
    stops: Sequence[int],
    max_tokens: int,
    penalty: float,
    allowed: Callable[[int, Any], list[int]] | None = None,
) -> Any:
    import torch

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # flags that have no use at width 1
        return pair.model.generate(
            torch.tensor([PROMPT]),
            num_beams=beam.width,
            length_penalty=beam.length_penalty,
            early_stopping=beam.early_stopping,
            num_return_sequences=beam.num_return,
            max_new_tokens=max_tokens,
            eos_token_id=list(stops) or None,
            pad_token_id=PAD_ID,
            do_sample=False,
            repetition_penalty=penalty,
            prefix_allowed_tokens_fn=allowed,
            return_dict_in_generate=True,
            output_scores=True,
        )


def check(pair: Pair, beams: Sequence[BeamSearch], *, num_stops: int, max_tokens: int, penalty: float = 1.0) -> None:
    """All searches at once on our side, one by one on theirs."""
    stops = tuple(pair.frequent[2 : 2 + num_stops])
    if not stops:
        pair.model.generation_config.eos_token_id = None
    wishes = [
        SamplingParams(
            max_tokens=max_tokens, stop_token_ids=stops, ignore_eos=True, repetition_penalty=penalty, beam=beam
        )
        for beam in beams
    ]
    handles = [pair.llm.submit(PROMPT, wish) for wish in wishes]
    for beam, handle in zip(beams, handles, strict=True):
        wanted = theirs(pair, beam, stops=stops, max_tokens=max_tokens, penalty=penalty)
        compare(handle.result(WAIT_S).beams, wanted, beam)


def compare(found: Sequence[Beam], wanted: Any, beam: BeamSearch) -> None:
    for ours, sequence in zip(found, wanted.sequences.tolist(), strict=True):
        answer = sequence[len(PROMPT) :]
        assert list(ours.token_ids) == answer[: len(ours.token_ids)], beam
        assert set(answer[len(ours.token_ids) :]) <= {PAD_ID}, "theirs goes on past ours"
    if beam.width > 1:  # a plain greedy search reports no scores
        scores = wanted.sequences_scores.tolist()
        assert [ours.score for ours in found] == pytest.approx(scores, abs=TOLERANCE, rel=FLOAT32), beam


@pytest.mark.slow
@pytest.mark.timeout(600)  # ninety searches of theirs, one by one
@pytest.mark.parametrize("max_tokens", [1, 5, 30])
@pytest.mark.parametrize("num_stops", [0, 1, 2])
def test_every_width_penalty_and_stopping_rule(pair: Pair, num_stops: int, max_tokens: int) -> None:
    beams = [
        BeamSearch(width=width, length_penalty=penalty, early_stopping=early, num_return=width)
        for width, penalty, early in itertools.product(WIDTHS, LENGTH_PENALTIES, EARLY_STOPPING)
    ]
    check(pair, beams, num_stops=num_stops, max_tokens=max_tokens)


@pytest.mark.parametrize("num_stops", [0, 2])
def test_some_of_each(pair: Pair, num_stops: int) -> None:
    beams = [
        BeamSearch(width=1),
        BeamSearch(width=2, length_penalty=0.0, early_stopping="never"),
        BeamSearch(width=3, length_penalty=2.0, early_stopping=True, num_return=2),
        BeamSearch(width=4, num_return=4),
        BeamSearch(width=6, length_penalty=-1.0, num_return=5),
    ]
    check(pair, beams, num_stops=num_stops, max_tokens=12)


def test_a_repetition_penalty_counts_prompt_and_answer(pair: Pair) -> None:
    check(pair, [BeamSearch(width=4, num_return=4)], num_stops=1, max_tokens=20, penalty=1.4)


# Grammar: units of a token of A and one of B, or one of C; from two to four of them, then the end.

A, B, C = range(3, 40), range(40, 70), range(70, PAD_ID)
END_ID = 2


def characters(token_ids: range) -> str:
    return f"[{chr(FIRST_CHARACTER + token_ids[0])}-{chr(FIRST_CHARACTER + token_ids[-1])}]"


UNITS = Structure(kind=StructureKind.REGEX, source=f"({characters(A)}{characters(B)}|{characters(C)}){{2,4}}")


def allowed_by_units(batch: int, token_ids: Any) -> list[int]:
    """The same grammar by hand, for the library's own way to hold answers to one."""
    answer = token_ids.tolist()[len(PROMPT) :]
    if answer and answer[-1] in A:
        return list(B)
    num_units = sum(token_id not in A for token_id in answer)
    begin = [*A, *C] if num_units < 4 else []
    return [*begin, END_ID] if num_units >= 2 else begin


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_beams_follow_a_grammar_as_with_the_librarys_processors(pair: Pair, penalty: float) -> None:
    beams = [
        BeamSearch(width=1 if penalty == 1.0 else 2),  # theirs penalises logits, not logarithms, at width 1
        BeamSearch(width=2, length_penalty=0.0, early_stopping="never", num_return=2),
        BeamSearch(width=3, length_penalty=2.0, early_stopping=True, num_return=3),
        BeamSearch(width=4, num_return=4),
        BeamSearch(width=6, length_penalty=-1.0, num_return=6),
    ]
    for max_tokens in (3, 12):
        wishes = [
            SamplingParams(max_tokens=max_tokens, structure=UNITS, repetition_penalty=penalty, beam=beam)
            for beam in beams
        ]
        handles = [pair.llm.submit(PROMPT, wish) for wish in wishes]
        for beam, handle in zip(beams, handles, strict=True):
            wanted = theirs(
                pair, beam, stops=[END_ID], max_tokens=max_tokens, penalty=penalty, allowed=allowed_by_units
            )
            compare(handle.result(WAIT_S).beams, wanted, beam)


def test_a_grammar_with_fewer_answers_than_beams_returns_those_there_are(pair: Pair) -> None:
    choices = tuple(chr(FIRST_CHARACTER + token_id) for token_id in (5, 50, 80))
    structure = Structure(kind=StructureKind.CHOICE, choices=choices)
    beam = BeamSearch(width=5, num_return=5)
    (result,) = pair.llm.generate(PROMPT, SamplingParams(max_tokens=8, structure=structure, beam=beam))
    assert sorted(found.text for found in result.beams) == sorted(choices)
    assert all(found.finish_reason == "stop" for found in result.beams)
    scores = [found.score for found in result.beams]
    assert scores == sorted(scores, reverse=True)
