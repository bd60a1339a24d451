"""Bodies of /api/generate and /api/chat, field by field."""

import json
from typing import Any

import pytest

from tests.serve.ollama.ollama_builders import make_chat, make_generate
from tests.serve.serve_builders import MODEL, ScriptedModel
from twostroke.chat.chat import Chat
from twostroke.params import SamplingParams
from twostroke.serve.api_error import ApiError
from twostroke.serve.ollama.wish import OllamaWish, fitted, read_chat, read_generate
from twostroke.structure import Structure, StructureKind


def generate(**fields: Any) -> OllamaWish:
    return read_generate(make_generate(**fields), model=MODEL, defaults=SamplingParams())


def chat(**fields: Any) -> OllamaWish:
    return read_chat(make_chat(**fields), model=MODEL, defaults=SamplingParams())


def test_a_prompt_is_the_message_of_a_user() -> None:
    wish = generate()
    assert wish.prompts == (Chat(messages=[{"role": "user", "content": "hi"}]),)
    assert (wish.is_stream, wish.is_chat, wish.is_raw, wish.context, wish.keep_alive_s) == (
        True,
        False,
        False,
        (),
        None,
    )
    assert wish.params == SamplingParams()


def test_a_system_text_comes_before_it() -> None:
    wish = generate(system="Be brief.")
    assert wish.prompts[0].messages[0] == {"role": "system", "content": "Be brief."}
    assert generate(system="").prompts == generate().prompts


def test_a_raw_prompt_is_the_text_itself() -> None:
    assert generate(raw=True).prompts == ("hi",)
    for fields in ({"system": "x"}, {"context": [1]}):
        with pytest.raises(ApiError, match="raw is true beside system or context"):
            generate(raw=True, **fields)


@pytest.mark.parametrize("read", [generate, chat])
def test_streams_are_the_default(read: Any) -> None:
    assert read().is_stream
    assert read(stream=None).is_stream
    assert not read(stream=False).is_stream


@pytest.mark.parametrize("fields", [{"prompt": ""}, {"prompt": None}, {"prompt": "", "keep_alive": 0}])
def test_without_a_prompt_nothing_is_asked(fields: dict[str, Any]) -> None:
    assert generate(**fields).prompts == ()


def test_a_chat_is_its_messages() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi", "images": None},
        {"role": "assistant", "content": "", "thinking": None, "tool_calls": []},
        {"role": "user", "content": "again", "images": []},
    ]
    plain = tuple({"role": message["role"], "content": message["content"]} for message in messages)
    assert chat(messages=messages).prompts == (Chat(messages=plain),)
    assert chat(messages=[]).prompts == chat(messages=None).prompts == ()


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("form", "structure"),
    [
        (None, None),
        ("", None),
        ("json", Structure(kind=StructureKind.JSON_OBJECT)),
        (SCHEMA, Structure(kind=StructureKind.JSON_SCHEMA, source=json.dumps(SCHEMA))),
    ],
)
@pytest.mark.parametrize("read", [generate, chat])
def test_format_is_the_word_json_or_a_schema(read: Any, form: Any, structure: Structure | None) -> None:
    assert read(format=form).params.structure == structure


@pytest.mark.parametrize("read", [generate, chat])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"format": "xml"}, "format"),
        ({"format": []}, "format"),
        ({"format": {"x": "y" * 70_000}}, "format"),
        ({"options": {"num_predict": 0}}, "options.num_predict"),
        ({"keep_alive": "soon"}, "keep_alive"),
        ({"stream": "no"}, "stream"),
        ({"think": "much"}, "think"),
        ({"think": 1}, "think"),
        ({"truncate": True}, "truncate"),
        ({"shift": True}, "shift"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 1.5}, "top_logprobs"),
        ({"seed": 1}, "seed"),
        ({"temperature": 0}, "temperature"),
        ({"max_tokens": 5}, "max_tokens"),
    ],
)
def test_a_field_that_cannot_be_honoured_is_named(read: Any, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        read(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"images": ["aGk="]}, "images"),
        ({"suffix": "end"}, "suffix"),
        ({"template": "{{ .Prompt }}"}, "template"),
        ({"context": ["1"]}, "context"),
        ({"context": [True]}, "context"),
        ({"context": "1"}, "context"),
        ({"prompt": ["hi"]}, "prompt"),
        ({"messages": []}, "messages"),
    ],
)
def test_generate_names_what_it_refuses(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        generate(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": "none"}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "messages[0].images"),
        ({"messages": [{"role": "developer", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool"}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "content": ["x"]}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function"),
        ({"messages": [{"role": "assistant", "tool_calls": "x"}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "x", "extra": 1}]}, "messages[0].extra"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": "hi"}, "messages"),
        ({"prompt": "hi"}, "prompt"),
    ],
)
def test_chat_names_what_it_refuses(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        chat(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize("read", [generate, chat])
def test_what_asks_for_nothing_is_taken(read: Any) -> None:
    assert read(think=None, truncate=False, shift=False, logprobs=False) == read()
    assert chat(tools=[]) == chat()


@pytest.mark.parametrize("read", [generate, chat])
def test_thinking_is_switched_or_measured(read: Any) -> None:
    for value in (True, False):
        assert read(think=value).prompts[0].thinks is value
    assert read(think="high").prompts[0].reasoning_effort == "high"
    assert (read().prompts[0].thinks, read().prompts[0].reasoning_effort) == (None, None)


def test_a_raw_prompt_is_not_told_to_think() -> None:
    assert generate(raw=True, think=False).prompts == ("hi",)
    for value in (True, "low"):
        with pytest.raises(ApiError, match="raw is true beside think"):
            generate(raw=True, think=value)


WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def test_arguments_nested_beyond_reason_are_refused() -> None:
    nested: Any = {}
    for _ in range(500):
        nested = {"a": nested}
    call = {"function": {"name": "f", "arguments": nested}}
    with pytest.raises(ApiError, match="messages") as caught:
        chat(messages=[{"role": "assistant", "tool_calls": [call]}])
    assert caught.value.status == 400


def test_tools_go_beside_the_messages() -> None:
    (prompt,) = chat(tools=[WEATHER]).prompts
    assert [tool.name for tool in prompt.tools] == ["weather"]
    assert prompt.offered == prompt.tools


def test_earlier_calls_and_their_results_get_ids_that_fit() -> None:
    def call(name: str, **fields: Any) -> dict[str, Any]:
        return {"function": {"name": name, "arguments": {"a": 1}, "index": 0}, **fields}

    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "thinking": "hm", "tool_calls": [call("x"), call("y"), call("x", id="mine")]},
        {"role": "tool", "tool_name": "y", "content": "2"},
        {"role": "tool", "content": "1"},
        {"role": "tool", "tool_call_id": "mine", "name": "x", "content": "3"},
        {"role": "tool", "tool_name": "z", "content": "4"},
    ]
    told = chat(messages=messages).prompts[0].messages
    assert told[1]["content"] == ""
    assert told[1]["reasoning_content"] == "hm"
    assert told[1]["tool_calls"][0] == {
        "id": "call00001",
        "type": "function",
        "function": {"name": "x", "arguments": {"a": 1}},
    }
    ids = [(each.get("tool_call_id"), each.get("name")) for each in told[2:]]
    assert ids == [("call00002", "y"), ("call00001", "x"), ("mine", "x"), (None, "z")]


@pytest.mark.parametrize("read", [generate, chat])
def test_a_model_has_its_served_name_and_the_one_it_was_asked_for_by(read: Any) -> None:
    wish = read(model=f"{MODEL}:latest")
    assert (wish.model, wish.model_as_asked) == (MODEL, f"{MODEL}:latest")
    with pytest.raises(ApiError, match="model is 5, an integer: it must be the name of a model"):
        read(model=5)


def test_log_probabilities_are_asked_for_as_in_openais_chat() -> None:
    assert generate(logprobs=True).params.logprobs == 0
    assert chat(logprobs=True, top_logprobs=3).params.logprobs == 3


# Room


def test_a_wish_without_limits_is_left_alone() -> None:
    for wish in (generate(), generate(options={"num_ctx": 4096}), generate(prompt="", options={"num_predict": -1})):
        assert fitted(wish, ScriptedModel()) is wish


@pytest.mark.parametrize("num_predict", [-1, -2])
def test_an_answer_may_go_on_to_the_end_of_the_context(num_predict: int) -> None:
    model = ScriptedModel()
    wish = fitted(generate(options={"num_predict": num_predict}), model)
    assert wish.params.max_tokens == model.context - 2
    assert wish.prompts == generate().prompts
    assert fitted(chat(options={"num_predict": -1, "num_ctx": 100}), model).params.max_tokens == 98


def test_a_smaller_context_is_held() -> None:
    wish = generate(options={"num_ctx": 10, "num_predict": 8})
    assert fitted(wish, ScriptedModel()).params.max_tokens == 8
    for options in ({"num_ctx": 9, "num_predict": 8}, {"num_ctx": 2, "num_predict": -1}):
        with pytest.raises(ApiError, match=r"2 prompt tokens \+ num_predict of \d = \d+, the context is \d") as caught:
            fitted(generate(options=options), ScriptedModel())
        assert caught.value.code == "context_length_exceeded"


def test_a_prompt_goes_on_from_the_tokens_of_an_earlier_answer() -> None:
    wish = fitted(generate(context=[5, 6, 7]), ScriptedModel())
    assert wish.prompts == ([5, 6, 7, *b"hi"],)
