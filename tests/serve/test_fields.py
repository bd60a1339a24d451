"""Every field of both request bodies at its edges, over HTTP, whole and streamed: taken as it is or refused by name."""

import json
from typing import Any

import pytest

from tests.serve.serve_builders import MODEL, ScriptedModel, client_of, error_of, events_of, make_chat, make_completion
from twostroke.params import MAX_SEED, SamplingParams
from twostroke.serve.limits import LimitsConfig

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ASKS = [
    pytest.param(path, base | stream, id=f"{path}{' stream' if stream else ''}")
    for path, base in ((CHAT, make_chat()), (COMPLETIONS, make_completion()))
    for stream in ({}, {"stream": True})
]


def taken(path: str, fields: dict[str, Any], *, limits: LimitsConfig | None = None) -> ScriptedModel:
    """The model that answered."""
    model = ScriptedModel()
    with client_of(model, limits=limits) as client:
        response = client.post(path, json=fields)
    assert response.status_code == 200, response.text
    return model


def refused(path: str, fields: dict[str, Any], *, limits: LimitsConfig | None = None) -> dict[str, Any]:
    """The error object of a 400; nothing has reached the model."""
    model = ScriptedModel()
    with client_of(model, limits=limits) as client:
        response = client.post(path, json=fields)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"
    assert model.prompts == []
    error = dict(error_of(response))
    assert error["type"] == "invalid_request_error"
    return error


@pytest.mark.parametrize(("path", "base"), ASKS)
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"temperature": 0}, {"temperature": 0}),
        ({"temperature": 2.5}, {"temperature": 2.5}),  # beyond OpenAI's 2: a number like any other
        ({"top_p": 1}, {"top_p": 1}),
        ({"top_p": 1e-9}, {"top_p": 1e-9}),
        ({"seed": 0}, {"seed": 0}),
        ({"seed": MAX_SEED}, {"seed": MAX_SEED}),
        ({"max_tokens": 1}, {"max_tokens": 1}),
        ({"max_completion_tokens": 1}, {"max_tokens": 1}),
        ({"max_completion_tokens": None, "max_tokens": 9}, {"max_tokens": 9}),
        ({"max_completion_tokens": 9, "max_tokens": None}, {"max_tokens": 9}),
        ({"stop": "\n"}, {"stop": ("\n",)}),
        ({"stop": ["b", "a", "b"]}, {"stop": ("b", "a", "b")}),
        ({"stop": [str(number) for number in range(16)]}, {"stop": tuple(str(number) for number in range(16))}),
    ],
)
def test_a_field_sets_its_own_wish_alone(
    path: str, base: dict[str, Any], given: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert taken(path, base | given).params == [SamplingParams(**expected)]


@pytest.mark.parametrize(("path", "base"), ASKS)
@pytest.mark.parametrize(
    ("given", "param", "said"),
    [
        ({"temperature": -0.5}, "temperature", "temperature is -0.5: it must be a finite number, 0 or more"),
        ({"temperature": True}, "temperature", "temperature is True, true or false: it must be a number"),
        ({"temperature": "1"}, "temperature", "temperature is '1', a string: it must be a number"),
        ({"temperature": [1]}, "temperature", "temperature is an array: it must be a number"),
        ({"top_p": 0}, "top_p", "top_p is 0: it must be above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p", "top_p is 1.5: it must be above 0 and at most 1"),
        ({"top_p": {}}, "top_p", "top_p is an object: it must be a number"),
        ({"seed": -1}, "seed", f"seed is -1: it must be from 0 to {MAX_SEED}"),
        ({"seed": 1.0}, "seed", "seed is 1.0: it must be a whole number"),
        ({"seed": False}, "seed", "seed is False, true or false: it must be a number"),
        ({"max_tokens": 0}, "max_tokens", "max_tokens is 0: it must be at least 1"),
        ({"max_tokens": 1.5}, "max_tokens", "max_tokens is 1.5: it must be a whole number"),
        (
            {"max_completion_tokens": -1},
            "max_completion_tokens",
            "max_completion_tokens is -1: it must be at least 1",
        ),
        (
            {"max_completion_tokens": 0, "max_tokens": 0},
            "max_completion_tokens",
            "max_completion_tokens is 0: it must be at least 1",
        ),
        (
            {"max_completion_tokens": 2, "max_tokens": 3},
            "max_tokens",
            "max_completion_tokens and max_tokens are 2 and 3: they mean the same, send one",
        ),
        ({"stop": ""}, "stop", "stop has an empty text: every answer would end at once"),
        ({"stop": ["a", 1]}, "stop", "stop has 1: each must be a string"),
        ({"stop": ["x"] * 17}, "stop", "stop has 17 strings: the limit is 16"),
        ({"stop": 5}, "stop", "stop is 5, an integer: it must be a string or an array of strings"),
        ({"stream": 0}, "stream", "stream is 0, an integer: it must be true or false"),
        ({"stream": "true"}, "stream", "stream is 'true', a string: it must be true or false"),
        ({"stream_options": []}, "stream_options", "stream_options is an array: it must be an object"),
        (
            {"stream": True, "stream_options": {"include_usage": 1}},
            "stream_options.include_usage",
            "stream_options.include_usage is 1, an integer: it must be true or false",
        ),
        ({"model": None}, "model", "model is null: it must be a string"),
        ({"model": 1.5}, "model", "model is 1.5, a number: it must be a string"),
    ],
)
def test_a_value_outside_is_told_with_its_kind_and_limit(
    path: str, base: dict[str, Any], given: dict[str, Any], param: str, said: str
) -> None:
    error = refused(path, base | given)
    assert (error["param"], error["message"], error["code"]) == (param, said, None)


@pytest.mark.parametrize(("path", "own"), [(CHAT, "messages"), (COMPLETIONS, "prompt")])
def test_the_fields_that_must_be_there_are_named(path: str, own: str) -> None:
    base = make_chat() if path == CHAT else make_completion()
    for name in ("model", own):
        error = refused(path, {key: value for key, value in base.items() if key != name})
        assert error["param"] == name
        assert error["message"].startswith(f"{name} is missing: ")


@pytest.mark.parametrize(("path", "base"), ASKS)
def test_all_unknown_fields_are_told_at_once_and_what_is_known(path: str, base: dict[str, Any]) -> None:
    error = refused(path, base | {"num_beams": None, "Top_P": 1, "seed": 3})
    assert (error["param"], error["code"]) == ("num_beams", "unknown_field")
    assert error["message"].startswith("num_beams, Top_P are refused: this server does not honour them, leave them out")
    known = error["message"].partition("(honoured: ")[2].rstrip(")").split(", ")
    assert {"model", "temperature", "min_p", "ledger", "logit_bias"} < set(known)
    assert known == sorted(known)


def test_unknown_fields_of_inner_objects_are_told_with_the_others() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {}}], "weight": 1}
    error = refused(CHAT, make_chat(messages=[message], stream=True, stream_options={"x": 1}, y=2))
    told = error["message"].partition(" are refused")[0].split(", ")
    assert told == ["messages[0].content[0].cache_control", "messages[0].weight", "stream_options.x", "y"]


def test_what_is_honoured_is_told_of_each_object_with_an_unknown_field_once() -> None:
    message = {"role": "user", "content": "x", "weight": 1}
    error = refused(CHAT, make_chat(messages=[message, message], stream=True, stream_options={"x": 1}))
    told = error["message"].partition("(honoured")[2].rstrip(")").split("; ")
    assert [each.partition(": ")[0] for each in told] == [" in messages[0]", " in stream_options"]
    assert "include_usage" in told[1]
    assert "temperature" not in error["message"]


def test_a_thousand_unknown_fields_are_counted_and_the_first_are_named() -> None:
    error = refused(CHAT, make_chat(**{f"field{number}": 1 for number in range(1000)}))
    assert error["message"].startswith("field0, field1, ")
    assert "field9 and 990 more are refused" in error["message"]


def test_the_field_of_the_other_route_is_unknown() -> None:
    assert refused(CHAT, make_chat(prompt="x"))["code"] == "unknown_field"
    assert refused(COMPLETIONS, make_completion(messages=[]))["code"] == "unknown_field"


def test_what_strangers_wrote_is_never_repeated_at_length() -> None:
    long = "x" * 50_000
    with client_of() as client:
        for fields in (
            make_chat(model=long),
            make_chat(stop=[[long]]),
            make_chat(temperature=long),
            make_chat(**{long: 1}),
            make_chat(messages=[{"role": long, "content": "x"}]),
            make_chat(messages=[{"role": "user", "content": "x", long: 1}]),
        ):
            assert len(client.post(CHAT, json=fields).text) < 1500


@pytest.mark.parametrize("key", ["name", "refusal", "annotations", "audio", "tool_calls", "function_call"])
def test_an_answer_sent_back_may_carry_nulls_and_nothing_else(key: str) -> None:
    message = {"role": "assistant", "content": "x"}
    assert taken(CHAT, make_chat(messages=[message | {key: None}])).prompts == [(message,)]
    others: list[Any] = ["", [], {}, 0, False]
    for value in others:
        assert refused(CHAT, make_chat(messages=[message | {key: value}]))["param"] == f"messages[0].{key}"


def test_unknown_keys_of_a_message_pass_where_they_are_null() -> None:
    message = {"role": "assistant", "content": "x"}
    assert taken(CHAT, make_chat(messages=[message | {"reasoning": None, "x": None}])).prompts == [(message,)]


@pytest.mark.parametrize("role", ["User", "function", "", None, 1, {}])
def test_another_role_is_told_those_there_are_at_its_place(role: object) -> None:
    error = refused(CHAT, make_chat(messages=[{"role": "user", "content": "x"}, {"role": role, "content": "y"}]))
    assert error["param"] == "messages[1].role"
    assert error["message"].endswith("it must be one of system, developer, user, assistant, tool")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", ""),
        ([{"type": "text", "text": ""}], ""),
        ([{"type": "text", "text": "a"}, {"text": "\n", "type": "text"}, {"type": "text", "text": "b"}], "a\nb"),
    ],
)
def test_parts_are_joined_without_anything_between(content: object, text: str) -> None:
    assert taken(CHAT, make_chat(messages=[{"role": "user", "content": content}])).prompts == [
        ({"role": "user", "content": text},)
    ]


def test_as_many_prompts_as_the_limit_are_answered_and_one_more_is_not() -> None:
    limits = LimitsConfig(max_prompts=2)
    for entry in ("a", [1]):
        assert taken(COMPLETIONS, make_completion(prompt=[entry] * 2), limits=limits).prompts == [entry] * 2
        error = refused(COMPLETIONS, make_completion(prompt=[entry] * 3), limits=limits)
        assert error["message"] == "prompt has 3 entries: the limit is 2, send several requests"
    assert taken(COMPLETIONS, make_completion(prompt=[7] * 3), limits=limits).prompts == [[7] * 3]  # one prompt of ids


@pytest.mark.parametrize(
    ("wanted", "num_usages"), [({"include_usage": True}, 1), ({"include_usage": False}, 0), ({}, 0), (None, 0)]
)
@pytest.mark.parametrize(("path", "base"), [(CHAT, make_chat()), (COMPLETIONS, make_completion())])
def test_usage_is_counted_once_and_stands_between_the_end_and_done(
    path: str, base: dict[str, Any], wanted: object, num_usages: int
) -> None:
    with client_of() as client:
        response = client.post(path, json=base | {"stream": True, "stream_options": wanted, "max_tokens": 2})
    *chunks, done = events_of(response.text)
    assert done == "[DONE]"
    shown = [json.loads(chunk) for chunk in chunks]
    usages = [index for index, chunk in enumerate(shown) if chunk.get("usage")]
    ends = [index for index, chunk in enumerate(shown) if chunk["choices"] and chunk["choices"][0]["finish_reason"]]
    assert len(usages) == num_usages
    assert ends == [len(shown) - 1 - num_usages]
    assert all(chunk["model"] == MODEL for chunk in shown)
