import json
from typing import Any

import pytest

from tests.serve.serve_builders import (
    MODEL,
    ScriptedModel,
    client_of,
    error_of,
    events_of,
    make_chat,
    make_completion,
)
from twostroke.core.sequence import FinishReason
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.sse import encode_event

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def stream(path: str, fields: dict[str, Any], model: ScriptedModel | None = None) -> list[dict[str, Any]]:
    """All chunks; `[DONE]` is checked and dropped."""
    with client_of(model) as client:
        response = client.post(path, json={**fields, "stream": True})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert "content-length" not in response.headers
    *chunks, last = events_of(response.text)
    assert last == "[DONE]"
    return [json.loads(chunk) for chunk in chunks]


def test_a_chat_stream_has_the_role_then_one_token_per_chunk_then_the_reason() -> None:
    chunks = stream(CHAT, make_chat())
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": ""},
        {"content": "Hel"},
        {"content": "lo"},
        {"content": "!"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 4 + ["stop"]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk["model"] for chunk in chunks} == {MODEL}
    assert not any("usage" in chunk for chunk in chunks)


def test_a_completion_stream_has_text_and_no_role() -> None:
    chunks = stream(COMPLETIONS, make_completion())
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["Hel", "lo", "!", ""]
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(("path", "fields"), [(CHAT, make_chat()), (COMPLETIONS, make_completion())])
def test_usage_comes_last_with_no_choices_and_only_when_asked(path: str, fields: dict[str, Any]) -> None:
    *chunks, last = stream(path, {**fields, "stream_options": {"include_usage": True}})
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 3
    with client_of() as client:
        whole = client.post(path, json=fields).json()
    assert last["usage"] == whole["usage"]
    for options in (None, {}, {"include_usage": False}):
        assert not any("usage" in chunk for chunk in stream(path, {**fields, "stream_options": options}))


def test_held_text_makes_no_empty_chunk_and_is_never_lost() -> None:
    model = ScriptedModel(["a", "", "", "\N{PINCHED FINGERS}", "\n\n"], rest="data: x")
    chunks = stream(COMPLETIONS, make_completion(), model)
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["a", "\N{PINCHED FINGERS}", "\n\n", "data: x", ""]


def test_choices_of_several_prompts_are_told_apart_and_each_ends() -> None:
    chunks = stream(COMPLETIONS, make_completion(prompt=["a", "b", "c"], stream_options={"include_usage": True}))
    *chunks, last = chunks
    for index in range(3):
        own = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert "".join(choice["text"] for choice in own) == "Hello!"
        assert [choice["finish_reason"] for choice in own] == [None] * 3 + ["stop"]
    assert last["usage"]["completion_tokens"] == 9


@pytest.mark.parametrize(
    ("reason", "status"), [(FinishReason.ERROR, "a logit is nan"), (FinishReason.CANCELLED, "cancelled")]
)
def test_a_failure_in_mid_stream_is_one_error_event(reason: FinishReason, status: str) -> None:
    chunks = stream(CHAT, make_chat(), ScriptedModel(reason=reason, error="a logit is nan"))
    assert status in chunks[-1]["error"]["message"]
    assert chunks[-1]["error"]["type"] == "server_error"
    assert not any("error" in chunk for chunk in chunks[:-1])
    assert not any(chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1])


def test_input_errors_are_plain_json_even_for_a_stream() -> None:
    with client_of() as client:
        for fields in (make_chat(stream=True, n=0), make_chat(stream=True, model="x"), make_chat(stream=True, seed=-1)):
            response = client.post(CHAT, json=fields)
            assert response.status_code in (400, 404)
            error_of(response)


def test_the_limit_ends_a_stream_with_length() -> None:
    chunks = stream(CHAT, make_chat(max_tokens=1))
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "length"]


def test_an_event_is_one_line_whatever_its_text() -> None:
    event = encode_event({"text": "a\r\nb\n\nc\u2028d\0"})
    assert event.count(b"\n") == 2
    assert event.endswith(b"\n\n")
    assert json.loads(event[6:])["text"] == "a\r\nb\n\nc\u2028d\0"


def test_silence_is_broken_by_comments_that_are_no_events() -> None:
    model = ScriptedModel(["a", "b"], pause_s=0.2)
    with client_of(model, limits=LimitsConfig(keep_alive_s=0.02)) as client:
        blocks = client.post(CHAT, json=make_chat(stream=True)).text.split("\n\n")
        whole = client.post(CHAT, json=make_chat()).text
    assert blocks.count(": keep-alive") > 2
    assert [block for block in blocks if block and not block.startswith(("data: ", ": "))] == []
    assert "keep-alive" not in whole


def test_who_asked_is_told_how_much_of_the_prompt_is_read_until_the_first_token() -> None:
    model = ScriptedModel(["a", "b"], pause_s=0.1)
    fields = make_chat(stream=True, stream_options={"include_progress": True})
    with client_of(model, limits=LimitsConfig(progress_s=0.02)) as client:
        blocks = client.post(CHAT, json=fields).text.split("\n\n")
    told = [json.loads(block[6:]) for block in blocks if "prompt_progress" in block]
    assert told
    assert all((chunk["choices"], chunk["prompt_progress"]) == ([], {"read": 1, "total": 1}) for chunk in told)
    first_text = next(index for index, block in enumerate(blocks) if '"content":"a"' in block)
    assert all("prompt_progress" not in block for block in blocks[first_text:])
