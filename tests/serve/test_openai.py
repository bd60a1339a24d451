from typing import Any

import pytest

from tests.serve.serve_builders import MODEL, make_chat, make_completion
from twostroke.chat.chat import Chat
from twostroke.params import SamplingParams
from twostroke.serve.api_error import ApiError
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.openai import Wish, read_wish


def read(fields: dict[str, Any]) -> Wish:
    return read_wish(
        fields,
        is_chat="messages" in fields,
        models=[MODEL, "alias"],
        limits=LimitsConfig(max_prompts=3),
        defaults=SamplingParams(),
    )


def outcome(fields: dict[str, Any]) -> Wish | ApiError:
    try:
        return read(fields)
    except ApiError as error:
        return error


def refusal(fields: dict[str, Any]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(fields)
    return caught.value


def test_absent_fields_have_the_defaults_of_every_door() -> None:
    for fields in (make_chat(), make_completion()):
        wish = read(fields)
        assert wish.params == SamplingParams()
        assert (wish.params.temperature, wish.params.max_tokens) == (0.0, 256)
        assert not wish.is_stream


def test_every_field_arrives() -> None:
    wish = read(
        make_chat(
            stream=True, stream_options={"include_usage": True}, stop=["a", "b"], seed=3, temperature=0.5, top_p=0.9
        )
    )
    assert wish.params == SamplingParams(stop=("a", "b"), seed=3, temperature=0.5, top_p=0.9)
    assert wish.is_stream
    assert wish.stream.includes_usage


NULLABLE = ["stream", "stream_options", "stop", "seed", "temperature", "top_p", "max_tokens", "max_completion_tokens"]


@pytest.mark.parametrize("name", NULLABLE)
def test_null_is_absent(name: str) -> None:
    assert read(make_chat(**{name: None})) == read(make_chat())


@pytest.mark.parametrize("name", ["model", "messages"])
def test_null_is_an_error_where_openai_wants_a_value(name: str) -> None:
    error = refusal(make_chat(**{name: None}))
    assert (error.status, error.param) == (400, name)
    assert "null" in str(error)


def test_zero_is_zero() -> None:
    params = read(make_chat(temperature=0, seed=0)).params
    assert (params.temperature, params.seed) == (0, 0)
    for name in ("max_tokens", "max_completion_tokens", "top_p"):
        error = refusal(make_chat(**{name: 0}))
        assert error.param == name
        assert str(error).startswith(f"{name} is 0")


def test_a_seed_does_not_change_the_temperature() -> None:
    assert read(make_chat(seed=5)).params.temperature == SamplingParams().temperature


def test_both_limits_may_be_given_when_they_agree() -> None:
    assert read(make_chat(max_tokens=5, max_completion_tokens=5)).params.max_tokens == 5
    assert read(make_completion(max_completion_tokens=7)).params.max_tokens == 7
    assert "they mean the same" in str(refusal(make_chat(max_tokens=5, max_completion_tokens=6)))


@pytest.mark.parametrize(
    "name",
    [
        "input",
        "logit-bias",
        "num_beams",
        "Temperature",
        "echo",
        "best_of",
        "prompt",
        "",
    ],
)
@pytest.mark.parametrize("value", [None, 0, "x"])
def test_any_other_field_is_refused_by_name(name: str, value: object) -> None:
    error = refusal(make_chat(**{name: value}))
    assert error.status == 400
    assert error.param == name
    assert error.code == "unknown_field"
    assert name in str(error)


def test_messages_are_no_field_of_completions_nor_unknown_fields_elsewhere() -> None:
    assert refusal(make_chat(messages=[{"role": "user", "content": "x", "tool_call_id": "1"}])).param == (
        "messages[0].tool_call_id"
    )
    assert refusal(make_chat(stream=True, stream_options={"x": 1})).param == "stream_options.x"


def test_a_long_unknown_name_is_cut_in_the_message() -> None:
    assert len(str(refusal(make_chat(**{"x" * 100_000: 1})))) < 1200


def test_the_model_must_be_the_served_one_or_an_alias() -> None:
    assert read(make_chat(model="alias")).model == "alias"
    error = refusal(make_chat(model="gpt-4"))
    assert (error.status, error.param, error.code) == (404, "model", "model_not_found")
    assert MODEL in str(error)


@pytest.mark.parametrize("name", [*NULLABLE, "model", "messages"])
@pytest.mark.parametrize("value", [True, 1, 1.5, "x", [], {}, [[[]]], {"a": {}}, -1, 2**63, 1e300, [1], ["", "x"]])
def test_a_wrong_type_is_refused_by_name_or_means_something(name: str, value: object) -> None:
    found = outcome(make_chat(**{name: value}))
    if isinstance(found, ApiError):
        assert found.status in (400, 404)
        assert found.param is not None
        assert found.param.startswith(name)
        assert name in str(found)
    else:
        assert found != read(make_chat()) or value in ([], {}, 1)


@pytest.mark.parametrize("value", ["false", 1, "true", [], {}])
def test_stream_is_a_real_boolean(value: object) -> None:
    assert refusal(make_chat(stream=value)).param == "stream"


def test_stream_options_need_a_stream() -> None:
    assert refusal(make_chat(stream_options={"include_usage": True})).param == "stream_options"
    assert not read(make_chat(stream=True, stream_options={})).stream.includes_usage
    assert not read(make_chat(stream=True, stream_options={"include_usage": None})).stream.includes_usage
    assert refusal(make_chat(stream=True, stream_options={"include_usage": 1})).param == "stream_options.include_usage"


@pytest.mark.parametrize(("stop", "expected"), [("x", ("x",)), (["x", "y"], ("x", "y")), ([], ())])
def test_stop_is_text_or_a_list_of_texts(stop: object, expected: tuple[str, ...]) -> None:
    assert read(make_chat(stop=stop)).params.stop == expected


@pytest.mark.parametrize("stop", ["", [""], [1], [None], ["x"] * 17, 5, {"a": 1}, True])
def test_other_stops_are_refused(stop: object) -> None:
    assert refusal(make_chat(stop=stop)).param == "stop"


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("text", ("text",)),
        ("", ("",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ([1, 2],)),
        ([[1], [2, 3]], ([1], [2, 3])),
    ],
)
def test_prompts_are_texts_or_ids_one_or_several(prompt: object, expected: tuple[object, ...]) -> None:
    assert read(make_completion(prompt=prompt)).prompts == expected


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        (None, "prompt"),
        ([], "prompt"),
        ({}, "prompt"),
        (5, "prompt"),
        ([1.0], "prompt[0]"),
        (["a", 1], "prompt[1]"),
        ([1, "a"], "prompt[0]"),
        ([True], "prompt[0]"),
        ([[1], "a"], "prompt[1]"),
        ([[1], []], "prompt[1]"),
        (["a"] * 4, "prompt"),
    ],
)
def test_other_prompts_are_refused_at_their_place(prompt: object, param: str) -> None:
    assert refusal(make_completion(prompt=prompt)).param == param


def test_messages_keep_role_and_content() -> None:
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c", "refusal": None, "tool_calls": None},
    ]
    (prompt,) = read(make_chat(messages=messages)).prompts
    assert isinstance(prompt, Chat)
    assert prompt.messages == (
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "c"},
    )


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": "x", "name": "bob"}], "messages[0].name"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "image"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
    ],
)
def test_other_messages_are_refused_at_their_place(messages: object, param: str) -> None:
    assert refusal(make_chat(messages=messages)).param == param
