"""Every wish about sampling, as clients write it: OpenAI's fields and this program's own."""

from typing import Any

import pytest

from tests.serve.serve_builders import MODEL, ScriptedModel, client_of, error_of, make_chat, make_completion
from twostroke.params import MAX_BIASED_TOKENS, SamplingParams
from twostroke.serve.api_error import ApiError
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.openai import Wish, read_wish

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def read(fields: dict[str, Any], **limits: Any) -> Wish:
    is_chat = "messages" in fields
    return read_wish(fields, is_chat=is_chat, models=[MODEL], limits=LimitsConfig(**limits), defaults=SamplingParams())


def refusal(fields: dict[str, Any], **limits: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(fields, **limits)
    return caught.value


@pytest.mark.parametrize("make", [make_chat, make_completion])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_k", 0),
        ("top_k", -1),
        ("top_k", 40),
        ("min_p", 0.05),
        ("repetition_penalty", 1.1),
        ("presence_penalty", -2),
        ("frequency_penalty", 2),
        ("min_tokens", 5),
        ("ignore_eos", True),
        ("stop_token_ids", [7, 9]),
    ],
)
def test_wishes_of_ours_are_top_level_fields(make: Any, name: str, value: Any) -> None:
    expected: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value}
    assert read(make(**{name: value})).params == SamplingParams(**expected)
    assert read(make(**{name: None})).params == SamplingParams()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_k": -5}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"top_k": "2"}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"stop_token_ids": 7}, "stop_token_ids"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"stop_token_ids": [1.5]}, "stop_token_ids"),
        ({"stop_token_ids": list(range(257))}, "stop_token_ids"),
        ({"n": 0}, "n"),
        ({"n": -1}, "n"),
        ({"n": 1.0}, "n"),
        ({"n": 65}, "n"),
        ({"n": 10**6}, "n"),
        ({"n": True}, "n"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"timeout_s": 1e9}, "timeout_s"),
        ({"timeout_s": "1"}, "timeout_s"),
        ({"ledger": "yes"}, "ledger"),
        ({"cache_salt": 5}, "cache_salt"),
    ],
)
def test_values_outside_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    for make in (make_chat, make_completion):
        error = refusal(make(**fields))
        assert (error.status, error.param) == (400, param)
        assert str(error).startswith(param)


# logit_bias


def test_a_bias_is_a_map_from_digits_to_numbers() -> None:
    bias = {"0": 100, "50": -100, "7": 0.5}
    assert read(make_chat(logit_bias=bias)).params.logit_bias == ((0, 100), (50, -100), (7, 0.5))
    assert read(make_chat(logit_bias={})).params.logit_bias == ()


@pytest.mark.parametrize("key", ["-1", "99999999999999999999", "abc", "1.0", "", " 5", "05", "+5", "٣", "5 "])
def test_a_key_that_is_no_token_id_is_named(key: str) -> None:
    error = refusal(make_chat(logit_bias={key: 1}))
    assert error.param == "logit_bias"
    assert repr(key)[:40] in str(error)


@pytest.mark.parametrize("value", [None, "5", True, [], {}, 1e9, -100.5])
def test_a_bias_that_is_no_number_within_the_limits_is_refused(value: Any) -> None:
    error = refusal(make_chat(logit_bias={"5": value}))
    assert error.param is not None
    assert error.param.startswith("logit_bias")


def test_biases_beyond_the_limit_are_refused_by_their_number() -> None:
    most = {str(token_id): 1 for token_id in range(MAX_BIASED_TOKENS)}
    assert len(read(make_chat(logit_bias=most)).params.logit_bias) == MAX_BIASED_TOKENS
    error = refusal(make_chat(logit_bias={str(token_id): 1 for token_id in range(100_000)}))
    assert str(error) == "logit_bias has 100000 tokens: the limit is 1024"
    for wrong in ([], [1], "x", 5):
        assert refusal(make_chat(logit_bias=wrong)).param == "logit_bias"


# Log-probabilities


@pytest.mark.parametrize(
    ("fields", "logprobs"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": None, "top_logprobs": None}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 0}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
    ],
)
def test_chats_ask_for_logprobs_in_two_fields(fields: dict[str, Any], logprobs: int | None) -> None:
    assert read(make_chat(**fields)).params.logprobs == logprobs


@pytest.mark.parametrize("logprobs", [None, 0, 1, 5, 20])
def test_completions_ask_for_logprobs_in_one(logprobs: int | None) -> None:
    assert read(make_completion(logprobs=logprobs)).params.logprobs == logprobs


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (make_chat(logprobs=True, top_logprobs=21), "top_logprobs"),
        (make_chat(logprobs=True, top_logprobs=-1), "top_logprobs"),
        (make_chat(logprobs=True, top_logprobs=1.5), "top_logprobs"),
        (make_chat(top_logprobs=5), "top_logprobs"),
        (make_chat(logprobs=False, top_logprobs=5), "top_logprobs"),
        (make_chat(logprobs=5), "logprobs"),
        (make_completion(logprobs=21), "logprobs"),
        (make_completion(logprobs=-1), "logprobs"),
        (make_completion(logprobs=True), "logprobs"),
        (make_completion(logprobs="5"), "logprobs"),
        (make_completion(top_logprobs=5), "top_logprobs"),
    ],
)
def test_other_wishes_for_logprobs_are_refused(fields: dict[str, Any], param: str) -> None:
    error = refusal(fields)
    assert error.param == param
    assert param in str(error)


# How many answers


def test_prompts_times_choices_are_bounded() -> None:
    assert read(make_completion(prompt=["a"] * 4, n=2), max_answers=8).num_answers == 8
    error = refusal(make_completion(prompt=["a"] * 4, n=3), max_answers=8)
    assert str(error) == "4 prompts x n of 3 are 12 answers: the limit is 8, send several requests"


# Fields that change nothing


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user", "someone"),
        ("safety_identifier", "x"),
        ("prompt_cache_key", "x"),
        ("metadata", {"a": "b"}),
        ("store", False),
        ("service_tier", "auto"),
        ("service_tier", "default"),
        ("modalities", ["text"]),
        ("audio", None),
        ("prediction", None),
        ("store", None),
    ],
)
def test_fields_that_rightly_change_nothing_pass(name: str, value: Any) -> None:
    for make in (make_chat, make_completion):
        assert read(make(**{name: value})) == read(make())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user", 5),
        ("metadata", []),
        ("store", True),
        ("store", 0),
        ("service_tier", "flex"),
        ("service_tier", "priority"),
        ("modalities", ["text", "audio"]),
        ("suffix", " end"),
        ("audio", {"voice": "x"}),
        ("prediction", {}),
        ("web_search_options", {}),
        ("functions", []),
    ],
)
def test_values_that_would_have_to_change_something_are_refused(name: str, value: Any) -> None:
    error = refusal(make_chat(**{name: value}))
    assert (error.status, error.param, error.code) == (400, name, "unknown_field")


def test_refused_bodies_reach_no_model() -> None:
    model = ScriptedModel()
    with client_of(model) as client:
        for fields in (make_chat(logit_bias={"x": 1}), make_chat(store=True), make_chat(n=0)):
            response = client.post(CHAT, json=fields)
            assert response.status_code == 400
            error_of(response)
    assert model.prompts == []
