"""Calls and reasoning as OpenAI's clients receive them: the same whole and streamed, counted, ended, named."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.serve.serve_builders import ScriptedModel, client_of, events_of, make_chat
from twostroke.chat.answer_format import HERMES, MISTRAL, AnswerFormat, CallFormat, ThinkFormat
from twostroke.chat.reader import AnswerReader
from twostroke.core.sequence import FinishReason

CHAT = "/v1/chat/completions"
THINK = ThinkFormat("<think>", "</think>")
ARGUMENTS = '{"a": [1, "</tool_call>"]}'
CALLS = [
    *("So ", "\n", "<tool", "_call>", '{"name": ', '"f", "argu', f'ments": {ARGUMENTS}', "}", "</tool_", "call>", "\n"),
    *('<tool_call>{"name": "g"}', "</tool_call>", "\n"),
]


def model_of(
    pieces: Sequence[str], *, calls: CallFormat | None = HERMES, think: ThinkFormat | None = None, **options: Any
) -> ScriptedModel:
    is_thinking = options.pop("is_thinking", False)
    model = ScriptedModel(pieces, **options)
    model.new_reader = lambda: AnswerReader(AnswerFormat(calls, think), is_thinking=is_thinking, names=("f", "g"))
    return model


def whole(model: ScriptedModel, **fields: Any) -> dict[str, Any]:
    with client_of(model) as client:
        reply: dict[str, Any] = client.post(CHAT, json=make_chat(**fields)).json()
    return reply


def streamed(model: ScriptedModel, **fields: Any) -> list[dict[str, Any]]:
    with client_of(model) as client:
        *events, done = events_of(client.post(CHAT, json=make_chat(stream=True, **fields)).text)
    assert done == "[DONE]"
    return [json.loads(event) for event in events]


def joined(chunks: Sequence[dict[str, Any]], *, index: int = 0) -> dict[str, Any]:
    """What a client makes of the deltas of one choice."""
    message: dict[str, Any] = {}
    for choice in (choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index):
        for key, value in choice["delta"].items():
            if key != "tool_calls":
                message[key] = message.get(key, "") + value
        for call in choice["delta"].get("tool_calls", ()):
            calls = message.setdefault("tool_calls", [])
            if call["index"] == len(calls):
                calls.append({key: call[key] for key in ("id", "type")} | {"function": dict(call["function"])})
            else:
                assert set(call) == {"index", "function"}
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
        message["reason"] = choice["finish_reason"]
    return message


def test_an_answer_with_calls_whole() -> None:
    (choice,) = whole(model_of(CALLS))["choices"]
    message = choice["message"]
    assert choice["finish_reason"] == "tool_calls"
    assert message["content"] == "So"
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "f", "arguments": ARGUMENTS},
        {"name": "g", "arguments": "{}"},
    ]
    assert {call["type"] for call in message["tool_calls"]} == {"function"}
    assert len({call["id"] for call in message["tool_calls"]}) == 2


def test_an_answer_with_calls_streamed_is_the_same() -> None:
    chunks = streamed(model_of(CALLS))
    message = joined(chunks)
    assert message == {
        "role": "assistant",
        "content": "So",
        "reason": "tool_calls",
        "tool_calls": [
            {
                "id": message["tool_calls"][0]["id"],
                "type": "function",
                "function": {"name": "f", "arguments": ARGUMENTS},
            },
            {"id": message["tool_calls"][1]["id"], "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }
    assert all("tool_call>" not in str(chunk).replace(ARGUMENTS, "") for chunk in chunks)
    first = next(chunk for chunk in chunks if "tool_calls" in chunk["choices"][0]["delta"])
    (call,) = first["choices"][0]["delta"]["tool_calls"]
    assert (call["index"], call["function"]) == (0, {"name": "f", "arguments": ""})


def test_an_answer_of_calls_alone_has_null_content() -> None:
    (choice,) = whole(model_of(['<tool_call>{"name": "g"}</tool_call>']))["choices"]
    assert choice["message"]["content"] is None
    (plain,) = whole(model_of([]))["choices"]
    assert plain["message"] == {"role": "assistant", "content": "", "refusal": None}
    assert plain["finish_reason"] == "stop"


@pytest.mark.parametrize("limit", range(1, 10))
def test_a_call_cut_at_the_limit_is_content(limit: int) -> None:
    model = model_of(CALLS)
    (choice,) = whole(model, max_tokens=limit)["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"] == {"role": "assistant", "content": "".join(CALLS[:limit]), "refusal": None}
    message = joined(streamed(model_of(CALLS), max_tokens=limit))
    assert (message["content"], message["reason"]) == ("".join(CALLS[:limit]), "length")


def test_a_cut_after_a_call_keeps_it_and_says_so() -> None:
    (choice,) = whole(model_of(CALLS), max_tokens=11)["choices"]
    assert choice["finish_reason"] == "length"
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["f"]


def test_a_stop_string_inside_a_call_leaves_content() -> None:
    """The engine ends the text there; what is no call is content."""
    (choice,) = whole(model_of(CALLS[:6], reason=FinishReason.STOP), stop="x")["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == "".join(CALLS[:6])


def test_ids_of_calls_have_the_length_their_template_wants() -> None:
    pieces = ['[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]']
    (choice,) = whole(model_of(pieces, calls=MISTRAL))["choices"]
    ids = [call["id"] for call in choice["message"]["tool_calls"]]
    assert all(len(call_id) == 9 and call_id.isalnum() for call_id in ids)
    assert len(set(ids)) == 2


def test_every_choice_has_its_own_calls() -> None:
    reply = whole(model_of(CALLS), n=3)
    messages = [choice["message"] for choice in reply["choices"]]
    assert len({call["id"] for message in messages for call in message["tool_calls"]}) == 6
    chunks = streamed(model_of(CALLS), n=3)
    for index in range(3):
        assert len(joined(chunks, index=index)["tool_calls"]) == 2


def test_log_probabilities_are_those_of_all_tokens_streamed_or_not() -> None:
    (choice,) = whole(model_of(CALLS), logprobs=True)["choices"]
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == CALLS
    chunks = streamed(model_of(CALLS), logprobs=True)
    told = [chunk["choices"][0]["logprobs"] for chunk in chunks if chunk["choices"][0]["logprobs"]]
    assert [entry["token"] for each in told for entry in each["content"]] == CALLS


# Reasoning

THOUGHT = ["<thi", "nk>", "\n", "hm", " so", "\n", "</think>", "\n\n", "Yes", "."]


def test_reasoning_stands_beside_content_and_is_counted() -> None:
    reply = whole(model_of(THOUGHT, think=THINK))
    message = reply["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm so", "Yes.")
    assert reply["usage"]["completion_tokens_details"] == {"reasoning_tokens": 7}
    chunks = streamed(model_of(THOUGHT, think=THINK), stream_options={"include_usage": True})
    assert chunks[-1]["usage"] == reply["usage"]
    joint = joined(chunks)
    assert (joint["reasoning_content"], joint["content"]) == ("hm so", "Yes.")


def test_a_prompt_that_opened_the_reasoning_is_known() -> None:
    reply = whole(model_of(THOUGHT[2:], think=THINK, is_thinking=True))
    assert reply["choices"][0]["message"]["reasoning_content"] == "hm so"
    assert reply["usage"]["completion_tokens_details"] == {"reasoning_tokens": 5}


def test_reasoning_may_be_left_out_and_is_counted_all_the_same() -> None:
    reply = whole(model_of(THOUGHT, think=THINK), include_reasoning=False)
    assert reply["choices"][0]["message"] == {"role": "assistant", "content": "Yes.", "refusal": None}
    assert reply["usage"]["completion_tokens_details"] == {"reasoning_tokens": 7}
    chunks = streamed(model_of(THOUGHT, think=THINK), include_reasoning=False)
    assert joined(chunks) == {"role": "assistant", "content": "Yes.", "reason": "stop"}


def test_an_answer_without_reasoning_counts_none_and_a_model_without_any_says_nothing() -> None:
    assert whole(model_of(["Yes"], think=THINK))["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}
    assert "completion_tokens_details" not in whole(model_of(["Yes"]))["usage"]


def test_reasoning_and_calls_in_one_answer() -> None:
    (choice,) = whole(model_of([*THOUGHT[:7], "\n", *CALLS[2:]], think=THINK))["choices"]
    assert choice["message"]["reasoning_content"] == "hm so"
    assert choice["message"]["content"] is None
    assert len(choice["message"]["tool_calls"]) == 2
    assert choice["finish_reason"] == "tool_calls"
