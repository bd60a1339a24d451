import asyncio
import json
from typing import Any

import pytest

from tests.serve.serve_builders import (
    MODEL,
    ScriptedHandle,
    ScriptedModel,
    client_of,
    error_of,
    events_of,
    make_chat,
    make_completion,
    make_finish,
)
from tests.serve.time_builders import StillLoop, run_on
from twostroke.core.event import TokenEvent, Usage
from twostroke.core.sequence import FinishReason
from twostroke.params import SamplingParams
from twostroke.serve.answers import Answers
from twostroke.serve.chunk_form import encode_event
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.openai import read_wish
from twostroke.serve.sse import EventStream

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


async def heard_in_silence(loop: StillLoop, fields: dict[str, Any], limits: LimitsConfig) -> list[str]:
    """A stream whose first token comes after 35 s and its end 10 s later, block by block."""
    wish = read_wish(fields, is_chat=True, models=[MODEL], limits=limits, defaults=SamplingParams())
    model, answers, blocks = ScriptedModel(), Answers(max_pending=9), list[str]()
    answers.asked[0], answers.num_unfinished, model.num_running = ScriptedHandle("r", num_prompt_tokens=9), 1, 1

    async def read() -> None:
        async for block in EventStream(wish, answers, model=model, limits=limits).chunks():
            blocks.append(block.decode())

    reading = asyncio.create_task(read())
    for now_s, num_blocks in ((0.0, 1), (10.0, 2), (20.0, 3), (30.0, 4)):
        await loop.wait_until(now_s)
        while len(blocks) < num_blocks:  # a look at the model is made on another thread
            await asyncio.sleep(0)
    await loop.wait_until(35.0)
    answers.take(0, TokenEvent("r", 0, "a", 35.0))
    await loop.wait_until(35.0)
    await loop.wait_until(45.0)
    usage = Usage(prompt_tokens=9, cached_tokens=0, completion_tokens=1)
    answers.take(0, make_finish("r", reason=FinishReason.STOP, usage=usage))
    await reading
    return blocks


def test_silence_is_broken_by_comments_that_are_no_events() -> None:
    loop = StillLoop()
    blocks = run_on(loop, heard_in_silence(loop, make_chat(stream=True), LimitsConfig(keep_alive_s=10.0)))
    kinds = ["comment" if block == ": keep-alive\n\n" else "event" for block in blocks]
    assert kinds == ["event", *["comment"] * 3, "event", "comment", "event", "event"]
    assert all(block.startswith("data: ") for block, kind in zip(blocks, kinds, strict=True) if kind == "event")


def test_who_asked_is_told_how_much_of_the_prompt_is_read_until_the_first_token() -> None:
    loop, fields = StillLoop(), make_chat(stream=True, stream_options={"include_progress": True})
    blocks = run_on(loop, heard_in_silence(loop, fields, LimitsConfig(progress_s=10.0)))
    told = [json.loads(block[6:]) for block in blocks[1:4]]
    assert all((chunk["choices"], chunk["prompt_progress"]) == ([], {"read": 1, "total": 9}) for chunk in told)
    assert '"content":"a"' in blocks[4]
    assert blocks[5] == ": keep-alive\n\n"
