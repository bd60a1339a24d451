"""LLM over real files: where answers end, the best of several, how likely a prompt was."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.builders_gguf import write_llama
from tests.builders_llm import ANSWER, open_llm, write_puppet
from tests.cases.puppet import EOS, byte_token
from twostroke.errors import ParamsError
from twostroke.llm import LLM
from twostroke.params import MAX_PROMPT_SCORES, SamplingParams

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with open_llm(write_puppet(tmp_path_factory.mktemp("puppet") / "puppet.gguf", context=8192)) as one:
        yield one


@pytest.fixture(scope="module")
def random_llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with open_llm(write_llama(tmp_path_factory.mktemp("random") / "random.gguf", tensor_type="F32")) as one:
        yield one


# Ends


@pytest.mark.parametrize(
    ("options", "shown", "stop_reason"),
    [
        ({"stop": ("sk",)}, "The ", "sk"),
        ({"stop": ("sk",), "include_stop": True}, "The sk", "sk"),
        ({"stop_regex": (r"\s[a-z]+y",)}, "The", r"\s[a-z]+y"),
        ({"stop_token_ids": (byte_token(b"k"[0]),)}, "The s", byte_token(b"k"[0])),
        ({"stop_token_ids": (byte_token(b"k"[0]),), "include_stop": True}, "The sk", byte_token(b"k"[0])),
        ({"include_stop": True}, ANSWER, None),
        ({"stop_token_ids": (EOS,), "include_stop": True}, ANSWER, EOS),
    ],
)
def test_an_answer_names_the_stop_it_met(
    llm: LLM, options: dict[str, Any], shown: str, stop_reason: str | int | None
) -> None:
    result = llm.chat(HELLO, SamplingParams(**options))
    assert (result.text, result.finish_reason, result.stop_reason) == (shown, "stop", stop_reason)


def test_shown_or_not_the_same_tokens_are_counted(llm: LLM) -> None:
    hidden = llm.chat(HELLO, SamplingParams(stop=("sk",)))
    shown = llm.chat(HELLO, SamplingParams(stop=("sk",), include_stop=True))
    assert hidden.token_ids == shown.token_ids
    assert hidden.usage.completion_tokens == shown.usage.completion_tokens


# The best of several


def test_the_best_of_several_are_the_likeliest_per_token(random_llm: LLM) -> None:
    params = SamplingParams(temperature=1.2, seed=5, max_tokens=8, ignore_eos=True)
    best = random_llm.best_of([5, 6, 7], params, num_tries=6, num_return=3)
    handles = [
        random_llm.submit(
            [5, 6, 7],
            SamplingParams(temperature=1.2, seed=5, max_tokens=8, ignore_eos=True, logprobs=0),
            choice_index=number,
        )
        for number in range(6)
    ]
    means = {}
    for handle in handles:
        result = handle.result()
        means[result.token_ids] = float(np.mean([logprob or 0.0 for logprob in result.logprobs]))
    assert len(means) == 6, "tries differ"
    assert [result.token_ids for result in best] == sorted(means, key=lambda ids: -means[ids])[:3]
    (only,) = random_llm.best_of([5, 6, 7], params, num_tries=6)
    assert only.token_ids == best[0].token_ids


def test_tries_without_a_seed_share_one_that_draws_the_same_again(random_llm: LLM) -> None:
    params = SamplingParams(temperature=1.2, max_tokens=8, ignore_eos=True)
    best = random_llm.best_of([5, 6, 7], params, num_tries=4, num_return=4)
    (seed,) = {result.seed for result in best}
    again = random_llm.best_of([5, 6, 7], replace(params, seed=seed), num_tries=4, num_return=4)
    assert [result.token_ids for result in again] == [result.token_ids for result in best]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_tries": 0}, "num_tries is 0: it must be a whole number from 1 to 64"),
        ({"num_tries": 65}, "num_tries is 65"),
        ({"num_tries": 2.0}, "num_tries is 2.0"),
        ({"num_tries": 2, "num_return": 3}, "num_return is 3: it must be a whole number from 1 to 2"),
        ({"num_return": True}, "num_return is True"),
    ],
)
def test_tries_that_cannot_be_are_refused(llm: LLM, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParamsError, match=words):
        llm.best_of("hi", **options)


@pytest.mark.parametrize("params", [None, SamplingParams(top_k=5)])
def test_tries_that_would_all_be_the_same_are_refused_and_one_is_none(llm: LLM, params: SamplingParams | None) -> None:
    with pytest.raises(ParamsError, match=r"num_tries is 4 and temperature is 0.*raise the temperature") as refusal:
        llm.best_of("hi", params)
    assert refusal.value.field == "num_tries"
    assert [result.text for result in llm.best_of("hello", params, num_tries=1)] == [llm.generate("hello")[0].text]


# How likely a prompt was


def test_a_prompt_is_scored_with_or_without_an_answer(random_llm: LLM) -> None:
    prompt = [5, 6, 7, 9, 6]
    (alone,) = random_llm.generate(prompt, SamplingParams(max_tokens=0, prompt_logprobs=3))
    assert (alone.text, alone.token_ids, alone.finish_reason) == ("", (), "length")
    assert alone.timing.ttft_s is None
    (answered,) = random_llm.generate(prompt, SamplingParams(max_tokens=4, prompt_logprobs=3))
    assert answered.prompt_logprobs == alone.prompt_logprobs
    logits = random_llm.logits(prompt).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    first, *others = alone.prompt_logprobs
    assert (first.token_id, first.logprob, first.rank, first.top_logprobs) == (5, None, None, ())
    for row, score in zip(logprobs, others, strict=False):
        assert score.logprob == pytest.approx(row[score.token_id], abs=1e-4)
        assert score.rank == 1 + int((row > row[score.token_id]).sum())
        assert len(score.top_logprobs) == 3
    assert random_llm.generate([5], SamplingParams(max_tokens=0, prompt_logprobs=3))[0].prompt_logprobs == (first,)
    assert random_llm.generate(prompt, SamplingParams(max_tokens=2))[0].prompt_logprobs == ()


def test_more_scores_than_there_is_room_for_are_refused_with_the_arithmetic(llm: LLM) -> None:
    prompt = [byte_token(97)] * 4096
    with pytest.raises(ParamsError) as refused:
        llm.submit(prompt, SamplingParams(max_tokens=1, prompt_logprobs=20))
    assert str(refused.value) == (
        f"prompt_logprobs is 20: 4096 prompt tokens x 21 = 86016 log-probabilities, the limit is {MAX_PROMPT_SCORES}: "
        "prompt_logprobs of at most 15 fits"
    )
    assert refused.value.field == "prompt_logprobs"
