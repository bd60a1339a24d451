"""Drafts and plain decoding say the same on real kernels: pairs of small models, grammars, stops inside a draft."""

import json
import logging
import random
from collections.abc import Sequence as Seq
from pathlib import Path

import pytest

from tests.builders_drafts import Eager, EagerLookup
from tests.builders_gguf import write_llama
from tests.builders_llm import config_of
from twostroke.core.report import Result
from twostroke.core.strategy import Speculator
from twostroke.llm import LLM
from twostroke.params import SamplingParams
from twostroke.structure import Structure, StructureKind

GREEDY = SamplingParams(max_tokens=12, ignore_eos=True)
SEEDED = SamplingParams(max_tokens=12, ignore_eos=True, temperature=0.8, top_p=0.9, seed=3, repetition_penalty=1.2)
SCHEMA = {
    "type": "object",
    "properties": {
        "status": {"enum": ["ok"]},
        "items": {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 3},
    },
    "required": ["status", "items"],
    "additionalProperties": False,
}


def opened(path: Path, draft: Path | None = None) -> LLM:
    return LLM(path, config=config_of(path.parent), context=512, draft_model=draft)


def answers(
    llm: LLM, prompts: Seq[Seq[int]] | Seq[str], params: SamplingParams, drafting: Speculator | None
) -> list[Result]:
    """With these drafts, whatever they cost."""
    llm._worker.ask(lambda engine: setattr(engine, "speculator", drafting))
    return llm.generate(prompts, params)


def test_two_hundred_prompts_with_a_model_that_is_the_same_or_random(tmp_path: Path) -> None:
    own = write_llama(tmp_path / "own.gguf", tensor_type="Q8_0")
    other = write_llama(tmp_path / "other.gguf", tensor_type="Q4_0", layers=1, seed=9)
    rng = random.Random(8)
    prompts = [[rng.randrange(3, 260) for _ in range(rng.randint(1, 20))] for _ in range(200)]
    for draft in (own, other):
        with opened(own, draft) as llm:
            drafter = llm._loaded.drafter
            assert drafter is not None
            for params in (GREEDY, SEEDED):
                expected = [each.token_ids for each in answers(llm, prompts, params, None)]
                for length in range(1, 9):
                    some = slice(25 * (length - 1), 25 * length)
                    eager = Eager(drafter, length=length)
                    results = answers(llm, prompts[some], params, eager)
                    assert [each.token_ids for each in results] == expected[some], (draft.name, length)
                    assert eager.num_drafted > 0
                    assert draft is other or eager.num_accepted == eager.num_drafted


@pytest.mark.parametrize("is_same", [True, False])
def test_long_answers_of_a_pair_are_those_of_one(tmp_path: Path, is_same: bool) -> None:
    """Twenty prompts, 128 tokens: as its own draft a model is right to more than 99 %."""
    own = write_llama(tmp_path / "own.gguf", tensor_type="Q4_1")
    draft = own if is_same else write_llama(tmp_path / "other.gguf", tensor_type="Q8_0", seed=4)
    params = SamplingParams(max_tokens=128, ignore_eos=True)
    rng = random.Random(1)
    prompts = [[rng.randrange(3, 260) for _ in range(10)] for _ in range(20)]
    with opened(own, draft) as llm:
        assert llm._loaded.drafter is not None
        eager = Eager(llm._loaded.drafter, length=4)
        expected = [each.token_ids for each in answers(llm, prompts, params, None)]
        assert [each.token_ids for each in answers(llm, prompts, params, eager)] == expected
    assert eager.num_drafted > 0
    assert not is_same or eager.num_accepted > 0.99 * eager.num_drafted


@pytest.mark.parametrize("source", ["text", "model"])
def test_a_grammar_holds_at_every_drafted_position(
    tmp_path: Path, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Guesses copied from a prompt full of broken JSON, or from a model that knows no grammar; eight at once."""
    path = write_llama(tmp_path / "own.gguf", tensor_type="Q8_0")
    broken = '{"status": "no", "items": [1, 2, x]} {"status": "ok", "items": [1, 2,, 3]} {"status"'
    prompts = [f"{number} {broken}" for number in range(8)]
    structure = Structure(kind=StructureKind.JSON_SCHEMA, source=json.dumps(SCHEMA))
    params = SamplingParams(max_tokens=120, temperature=0.9, seed=2, structure=structure)
    with opened(path, path) as llm, caplog.at_level(logging.WARNING):
        assert llm._loaded.drafter is not None
        eager = EagerLookup(length=6) if source == "text" else Eager(llm._loaded.drafter, length=6)
        expected = [each.text for each in answers(llm, prompts, params, None)]
        results = answers(llm, prompts, params, eager)
    assert [each.text for each in results] == expected
    assert 0 < eager.num_accepted < eager.num_drafted
    ended = [each.text for each in results if each.finish_reason == "stop"]
    assert ended
    assert all(json.loads(text)["status"] == "ok" for text in ended)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_an_end_token_and_a_stop_string_inside_a_draft_end_the_answer_there(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "own.gguf", tensor_type="Q8_0")
    with opened(path, path) as llm:
        assert llm._loaded.drafter is not None
        eager = Eager(llm._loaded.drafter, length=8)
        whole = answers(llm, ["ab"], GREEDY, None)[0]
        by_id = SamplingParams(max_tokens=12, ignore_eos=True, stop_token_ids=(whole.token_ids[4],))
        by_text = SamplingParams(max_tokens=12, ignore_eos=True, stop=(whole.text[3:5],))
        for params in (by_id, by_text):
            plain, drafted = (answers(llm, ["ab"], params, each)[0] for each in (None, eager))
            assert plain.finish_reason == drafted.finish_reason == "stop"
            assert (drafted.text, drafted.token_ids) == (plain.text, plain.token_ids)
            assert drafted.usage.completion_tokens == plain.usage.completion_tokens < 12
