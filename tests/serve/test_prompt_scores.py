"""Log-probabilities of prompts, as clients ask for them, in OpenAI's form and in vLLM's."""

import json
from typing import Any

import pytest

from tests.serve.serve_builders import MODEL, ScriptedModel, client_of, events_of, make_chat, make_completion
from twostroke.core.step import ScoredToken
from twostroke.params import SamplingParams
from twostroke.serve.api_error import ApiError
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.openai import Wish, read_wish
from twostroke.serve.prompt_scores import echoed_logprobs

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def read(fields: dict[str, Any]) -> Wish:
    is_chat = "messages" in fields
    return read_wish(fields, is_chat=is_chat, models=[MODEL], limits=LimitsConfig(), defaults=SamplingParams())


@pytest.mark.parametrize(
    ("fields", "scored", "told"),
    [
        ({}, None, None),
        ({"prompt_logprobs": 0}, 0, 0),
        ({"prompt_logprobs": 20}, 20, 20),
        ({"echo": True}, None, None),
        ({"echo": False, "logprobs": 3}, None, None),
        ({"echo": True, "logprobs": 0}, 0, None),
        ({"echo": True, "logprobs": 3}, 3, None),
        ({"echo": True, "logprobs": 3, "prompt_logprobs": 1}, 3, 1),
        ({"echo": True, "logprobs": 1, "prompt_logprobs": 3}, 3, 3),
        ({"echo": True, "max_tokens": 0}, 0, None),
        ({"echo": True, "logprobs": 2, "max_completion_tokens": 0}, 2, None),
        ({"prompt_logprobs": 2, "max_tokens": 0}, 2, 2),
    ],
)
def test_a_prompt_is_scored_for_its_field_and_for_its_echo(
    fields: dict[str, Any], scored: int | None, told: int | None
) -> None:
    wish = read(make_completion(**fields))
    assert (wish.params.prompt_logprobs, wish.prompt.num_told) == (scored, told)
    assert wish.prompt.echoes is (fields.get("echo") is True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (make_chat(prompt_logprobs=-1), "prompt_logprobs"),
        (make_chat(prompt_logprobs=21), "prompt_logprobs"),
        (make_chat(prompt_logprobs=1000), "prompt_logprobs"),
        (make_chat(prompt_logprobs=1.5), "prompt_logprobs"),
        (make_chat(prompt_logprobs="5"), "prompt_logprobs"),
        (make_chat(prompt_logprobs=True), "prompt_logprobs"),
        (make_chat(prompt_logprobs=1, stream=True), "prompt_logprobs"),
        (make_chat(echo=True), "echo"),
        (make_completion(echo=1), "echo"),
        (make_completion(echo=True, logprobs=21), "logprobs"),
        (make_completion(max_tokens=0), "max_tokens"),
        (make_completion(max_tokens=0, logprobs=1), "max_tokens"),
        (make_chat(max_tokens=0), "max_tokens"),
    ],
)
def test_other_wishes_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        read(fields)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_an_echo_beside_logprobs_has_those_of_the_prompt_first() -> None:
    body = make_completion(prompt="hey", echo=True, logprobs=1)
    with client_of() as client:
        (choice,) = client.post(COMPLETIONS, json=body).json()["choices"]
        *chunks, _ = events_of(client.post(COMPLETIONS, json=body | {"stream": True}).text)
    told = choice["logprobs"]
    assert choice["text"] == "heyHello!"
    assert told["tokens"] == ["h", "e", "y", "Hel", "lo", "!"]
    assert told["token_logprobs"] == [None, -1.0, -2.0, -0.5, -1.5, -2.5]
    assert told["top_logprobs"][0] is None
    assert told["top_logprobs"][1] == {"bytes:\\xc8": -0.5, "e": -1.0}
    assert told["text_offset"] == [0, 1, 2, 3, 6, 8]
    parts = [json.loads(chunk)["choices"][0]["logprobs"] for chunk in chunks]
    for name, values in told.items():
        assert [value for part in parts if part is not None for value in part[name]] == values
    assert parts[0]["tokens"] == ["h", "e", "y", "Hel"]


def test_a_prompt_alone_is_scored_with_no_answer() -> None:
    body = make_completion(prompt="hey", echo=True, logprobs=0, max_tokens=0)
    with client_of() as client:
        reply = client.post(COMPLETIONS, json=body).json()
        *chunks, _ = events_of(client.post(COMPLETIONS, json=body | {"stream": True}).text)
        plain = client.post(COMPLETIONS, json=make_completion(prompt="hey", echo=True, max_tokens=0)).json()
    (choice,) = reply["choices"]
    assert (choice["text"], choice["finish_reason"], reply["usage"]["completion_tokens"]) == ("hey", "length", 0)
    assert choice["logprobs"]["token_logprobs"] == [None, -1.0, -2.0]
    assert json.loads(chunks[0])["choices"][0]["logprobs"] == choice["logprobs"]
    assert (plain["choices"][0]["text"], plain["choices"][0]["logprobs"]) == ("hey", None)


def test_choices_of_a_prompt_share_the_scores_of_the_first() -> None:
    model = ScriptedModel()
    with client_of(model) as client:
        body = make_completion(prompt=["ab", "cd"], n=2, echo=True, logprobs=0)
        choices = client.post(COMPLETIONS, json=body).json()["choices"]
    assert [choice["logprobs"]["tokens"][:2] for choice in choices] == [["a", "b"]] * 2 + [["c", "d"]] * 2
    assert sorted(params.prompt_logprobs is None for params in model.params) == [False, False, True, True]


def test_vllms_field_stands_in_every_choice_of_a_completion_and_beside_those_of_a_chat() -> None:
    with client_of() as client:
        completion = client.post(COMPLETIONS, json=make_completion(prompt="hey", prompt_logprobs=1)).json()
        chat = client.post(CHAT, json=make_chat(prompt_logprobs=0)).json()
    (choice,) = completion["choices"]
    assert choice["prompt_logprobs"] == [
        None,
        {
            "101": {"logprob": -1.0, "rank": 2, "decoded_token": "e"},
            "200": {"logprob": -0.5, "rank": 1, "decoded_token": "\ufffd"},
        },
        {
            "121": {"logprob": -2.0, "rank": 3, "decoded_token": "y"},
            "200": {"logprob": -0.5, "rank": 1, "decoded_token": "\ufffd"},
        },
    ]
    assert choice["logprobs"] is None
    assert chat["prompt_logprobs"] == [None, {"105": {"logprob": -1.0, "rank": 2, "decoded_token": "i"}}]
    assert "prompt_logprobs" not in chat["choices"][0]


def test_impossible_tokens_are_null_and_offsets_are_those_of_the_shown_text() -> None:
    model = ScriptedModel(pieces=(" he", "llo"))
    scores = [ScoredToken(999), ScoredToken(0, -1.0, 1), ScoredToken(1, None, 512)]
    told = echoed_logprobs(model, scores, num_best=0, prompt_text="hello")
    assert told["tokens"] == ["<end>", " he", "llo"]
    assert told["token_logprobs"] == [None, -1.0, None]
    assert told["text_offset"] == [0, 0, 2]
