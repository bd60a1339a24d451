"""Two models loaded together: same vocabulary or refused, one budget of memory, answers of the one alone."""

from pathlib import Path

import pytest

from tests.builders_gguf import write_gemma3, write_llama
from tests.builders_llm import config_of, write_puppet
from twostroke.errors import ConfigError, ModelNotFoundError
from twostroke.llm import LLM
from twostroke.load import packed_weight_bytes, size_kv
from twostroke.model.families import build_program
from twostroke.model.open import open_model
from twostroke.params import SamplingParams
from twostroke.program.native import NativeReader
from twostroke.schedule.config import SchedulerConfig

GREEDY = SamplingParams(max_tokens=24, ignore_eos=True)
SEEDED = SamplingParams(max_tokens=24, ignore_eos=True, temperature=0.9, top_p=0.9, seed=5, repetition_penalty=1.2)
PROMPTS = ["ab ab ab", "b", "a ba bab " * 9]


def opened(path: Path, *, draft: Path | None = None, context: int | None = 256, speculate: str | None = None) -> LLM:
    return LLM(path, config=config_of(path.parent), context=context, draft_model=draft, speculate=speculate)


@pytest.mark.parametrize("speculate", [None, "ngram"])
def test_answers_are_those_of_the_model_alone(tmp_path: Path, speculate: str | None) -> None:
    own = write_llama(tmp_path / "own.gguf", tensor_type="Q8_0", layers=4)
    others = [
        own,
        write_llama(tmp_path / "small.gguf", tensor_type="Q4_0", layers=1),
        write_gemma3(tmp_path / "windows.gguf", tensor_type="Q4_0"),
    ]
    with opened(own) as alone:
        expected = [[each.token_ids for each in alone.generate(PROMPTS, params)] for params in (GREEDY, SEEDED)]
    for other in others:
        with opened(own, draft=other, speculate=speculate) as llm:
            for params, answers in zip((GREEDY, SEEDED), expected, strict=True):
                results = llm.generate(PROMPTS, params)
                assert [each.token_ids for each in results] == answers
                assert all(each.speculation is not None for each in results)
            assert llm.snapshot().refused_draft_share is not None


def test_a_draft_model_runs_on_the_threads_of_each_phase_as_the_model_does(tmp_path: Path) -> None:
    own = write_llama(tmp_path / "own.gguf", tensor_type="Q4_0", layers=2)
    small = write_llama(tmp_path / "small.gguf", tensor_type="Q4_0", layers=1)
    with opened(own, draft=small) as both:
        assert both._loaded.drafter is not None
        drafting = both._loaded.drafter.reader
        assert isinstance(drafting, NativeReader)
        assert drafting.threads is both._loaded.reader.threads


def test_both_stores_come_out_of_one_share_of_the_memory(tmp_path: Path) -> None:
    own = write_llama(tmp_path / "own.gguf", tensor_type="Q4_0", layers=3)
    small = write_llama(tmp_path / "small.gguf", tensor_type="Q4_0", layers=1)
    with opened(own) as alone, opened(own, draft=small) as both:
        assert alone.draft_kv_bytes == 0
        assert both.draft_kv_bytes * 3 == both.kv_bytes - both.draft_kv_bytes == alone.kv_bytes


def test_memory_for_two_stores_is_counted_before_the_context_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = write_llama(tmp_path / "own.gguf", tensor_type="Q4_0", layers=3)
    small = write_llama(tmp_path / "small.gguf", tensor_type="Q4_0", layers=3)
    with opened(own, context=None) as alone:
        one_context = alone.kv_bytes // 32
    monkeypatch.setattr("twostroke.load.available_memory_bytes", lambda: 2 * one_context)
    with opened(own, context=None) as alone, opened(own, draft=small, context=None) as both:
        assert alone.context == 1024
        assert 450 < both.context < 512
        assert both.kv_bytes <= one_context


def test_another_vocabulary_is_refused_with_the_place_where_it_differs(tmp_path: Path) -> None:
    own = write_llama(tmp_path / "own.gguf", tensor_type="Q4_0")
    other = write_puppet(tmp_path / "puppet.gguf")
    with pytest.raises(ConfigError, match=r"puppet.gguf cannot guess for own.gguf: its .* take a model of the same"):
        opened(own, draft=other)


def test_a_draft_model_that_is_not_there_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    own = write_llama(tmp_path / "own.gguf", tensor_type="Q4_0")
    with pytest.raises(ModelNotFoundError, match=r"none\.gguf"):
        opened(own, draft=tmp_path / "none.gguf")


def test_past_the_draft_models_context_decoding_goes_on_without(tmp_path: Path) -> None:
    puppet = write_puppet(tmp_path / "own.gguf", context=256)
    short = write_puppet(tmp_path / "short.gguf", context=64)
    params = SamplingParams(max_tokens=150, ignore_eos=True)
    with opened(puppet, context=None) as alone, opened(puppet, draft=short, context=None) as llm:
        assert llm.context == 256
        for prompt in ("x", "xz" * 45):
            (expected,), (result,) = alone.generate(prompt, params), llm.generate(prompt, params)
            assert result.token_ids == expected.token_ids
            assert result.speculation is not None
            assert result.speculation.stop is not None


def test_a_closed_pair_may_be_closed_again(tmp_path: Path) -> None:
    own = write_llama(tmp_path / "own.gguf", tensor_type="Q4_0")
    llm = opened(own, draft=own)
    llm.close()
    llm.close()


def test_weights_that_are_not_in_memory_yet_are_counted_for_both(tmp_path: Path) -> None:
    """Where memory is short, what the draft model's weights will take is no room for KV."""
    program = build_program(open_model(write_llama(tmp_path / "own.gguf", tensor_type="F32")))
    limits, weight_bytes = SchedulerConfig(), packed_weight_bytes(program)
    available = 3 * weight_bytes
    alone, beside = (
        size_kv(program, limits, precision="f32", context=None, available_bytes=available, beside=other)
        for other in (None, program)
    )
    assert alone.total_bytes <= available // 2
    assert 2 * beside.total_bytes <= available - 2 * weight_bytes < available // 2
