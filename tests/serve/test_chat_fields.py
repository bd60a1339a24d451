"""Conversations as clients send them: what goes beside messages, earlier calls and results, mistakes at their place."""

from typing import Any

import pytest

from tests.serve.serve_builders import MODEL, ScriptedModel, client_of, error_of, make_chat
from twostroke.chat.chat import Chat
from twostroke.chat.tools import Tool, ToolChoice, ToolMode
from twostroke.errors import ParamsError, PromptError
from twostroke.params import SamplingParams
from twostroke.serve.api_error import ApiError
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.openai import Wish, read_wish

USER = {"role": "user", "content": "hi"}
FUNCTION = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def read(**fields: Any) -> Wish:
    return read_wish(
        make_chat(**fields), is_chat=True, models=[MODEL], limits=LimitsConfig(), defaults=SamplingParams()
    )


def chat_of(**fields: Any) -> Chat:
    (chat,) = read(**fields).prompts
    assert isinstance(chat, Chat)
    return chat


def refusal(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(**fields)
    return caught.value


def test_what_goes_beside_messages_goes_with_them() -> None:
    chat = chat_of(
        tools=[FUNCTION],
        tool_choice="required",
        parallel_tool_calls=False,
        reasoning_effort="low",
        chat_template_kwargs={"enable_thinking": False},
        continue_final_message=True,
        add_generation_prompt=False,
    )
    assert (chat.tools, chat.choice) == ((Tool(name="f"),), ToolChoice(ToolMode.REQUIRED))
    assert (chat.is_parallel, chat.reasoning_effort, chat.variables) == (False, "low", {"enable_thinking": False})
    assert (chat.continue_final_message, chat.add_generation_prompt) == (True, False)


def test_absent_and_null_are_the_defaults() -> None:
    names = ("tools", "tool_choice", "parallel_tool_calls", "reasoning_effort", "chat_template_kwargs", "chat_template")
    nulls = dict.fromkeys((*names, "include_reasoning", "add_generation_prompt", "continue_final_message"))
    for fields in ({}, nulls):
        assert chat_of(**fields) == Chat(messages=(USER,))
        assert read(**fields).has_reasoning
    assert not read(include_reasoning=False).has_reasoning


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": []}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [FUNCTION], "tool_choice": "any"}, "tool_choice"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"reasoning_effort": 5}, "reasoning_effort"),
        ({"include_reasoning": "no"}, "include_reasoning"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"chat_template": "{{ messages }}"}, "chat_template"),
        ({"continue_final_message": 1}, "continue_final_message"),
    ],
)
def test_other_wishes_are_refused_at_their_place(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert (error.status, error.param) == (400, param)


def test_completions_know_nothing_of_chats() -> None:
    with client_of() as client:
        for name, value in (("tools", [FUNCTION]), ("chat_template_kwargs", {}), ("include_reasoning", True)):
            refused = client.post("/v1/completions", json={"model": MODEL, "prompt": "x", name: value})
            assert error_of(refused)["param"] == name


def test_earlier_calls_and_their_results_are_kept() -> None:
    answer = {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CALL]}
    result = {"role": "tool", "content": [{"type": "text", "text": "rain"}], "tool_call_id": "1", "name": "f"}
    _, read_answer, read_result = chat_of(messages=[USER, answer, result]).messages
    assert read_answer["content"] is None
    assert read_answer["reasoning_content"] == "hm"
    assert read_answer["tool_calls"] == [{**CALL, "function": {"name": "f", "arguments": {"a": 1}}}]
    assert read_result == {"role": "tool", "content": "rain", "tool_call_id": "1", "name": "f"}


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "assistant", "content": None}, "content"),
        ({"role": "assistant", "content": "x", "tool_calls": []}, "tool_calls"),
        ({"role": "assistant", "content": "x", "tool_calls": ["x"]}, "tool_calls[0]"),
        ({"role": "assistant", "content": "x", "tool_calls": [{**CALL, "id": 5}]}, "tool_calls[0].id"),
        ({"role": "assistant", "content": "x", "tool_calls": [{**CALL, "type": "custom"}]}, "tool_calls[0].type"),
        ({"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}, "tool_calls[0].function"),
        (
            {"role": "assistant", "content": "x", "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
            "tool_calls[0].function.arguments",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "[1]"}}]},
            "tool_calls[0].function.arguments",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": '{"a":' * 9999}}]},
            "tool_calls[0].function.arguments",
        ),
        ({"role": "assistant", "content": "x", "reasoning_content": 5}, "reasoning_content"),
        ({"role": "tool", "content": "x"}, "tool_call_id"),
        ({"role": "tool", "content": None, "tool_call_id": "1"}, "content"),
        ({"role": "tool", "content": "x", "tool_call_id": "1", "name": 5}, "name"),
        ({"role": "user", "content": "x", "tool_calls": [CALL]}, "tool_calls"),
        ({"role": "user", "content": "x", "reasoning_content": "x"}, "reasoning_content"),
    ],
)
def test_other_messages_are_refused_at_their_place(message: dict[str, Any], place: str) -> None:
    assert refusal(messages=[USER, message]).param == f"messages[1].{place}"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
def test_what_the_model_refuses_keeps_its_field(path: str) -> None:
    body = {"model": MODEL, "messages": [USER], "tools": [FUNCTION]}
    for error, param in (
        (ParamsError("no tools", field="tools"), "tools"),
        (PromptError("no calls", field="messages[1].tool_calls"), "messages[1].tool_calls"),
    ):
        with client_of(ScriptedModel(refuse=error)) as client:
            refused = client.post(path, json=body)
            assert (refused.status_code, error_of(refused)["param"]) == (400, param)


def test_tokens_are_counted_with_the_functions() -> None:
    model = ScriptedModel()
    with client_of(model) as client:
        assert client.post("/tokenize", json={"messages": [USER], "tools": [FUNCTION]}).status_code == 200
    assert model.chats[0].tools == (Tool(name="f"),)
