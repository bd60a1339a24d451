"""What clients receive of an answer, whole and as lines."""

import asyncio
import json
from datetime import datetime
from typing import Any

import pytest

from tests.serve.ollama.ollama_builders import (
    CHAT,
    GENERATE,
    lines_of,
    make_chat,
    make_generate,
    ollama_of,
    problem_of,
)
from tests.serve.serve_builders import MODEL, ScriptedHandle, ScriptedModel, make_finish, take_end
from tests.serve.time_builders import StillLoop, run_on
from twostroke.chat.answer_format import HERMES, AnswerFormat, ThinkFormat
from twostroke.chat.reader import AnswerReader
from twostroke.core.event import TokenEvent, Usage
from twostroke.core.sequence import FinishReason
from twostroke.params import SamplingParams
from twostroke.serve.answers import Answers
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.ollama.lines import AnswerLines
from twostroke.serve.ollama.replies import OllamaReply
from twostroke.serve.ollama.wish import read_generate

COUNTS = ("total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration")


def ask(path: str, fields: dict[str, Any], model: ScriptedModel | None = None) -> Any:
    with ollama_of(model) as client:
        return client.post(path, json=fields)


def test_generate_tells_its_whole_answer() -> None:
    reply = ask(GENERATE, make_generate(stream=False)).json()
    assert (reply["response"], reply["done"], reply["done_reason"]) == ("Hello!", True, "stop")
    assert reply["model"] == "scripted:1m"
    assert datetime.fromisoformat(reply["created_at"]).utcoffset() is not None
    assert reply["context"] == [100, 0, 1, 2]  # one message is one token of the scripted prompt
    assert all(isinstance(reply[name], int) for name in COUNTS)
    assert (reply["prompt_eval_count"], reply["eval_count"]) == (1, 3)


def test_chat_tells_its_whole_answer() -> None:
    reply = ask(CHAT, make_chat(stream=False)).json()
    assert reply["message"] == {"role": "assistant", "content": "Hello!"}
    assert (reply["done"], reply["done_reason"]) == (True, "stop")
    assert "context" not in reply
    assert set(COUNTS) < set(reply)


@pytest.mark.parametrize(("path", "make"), [(GENERATE, make_generate), (CHAT, make_chat)])
def test_a_stream_has_a_line_per_token_and_one_for_the_end(path: str, make: Any) -> None:
    response = ask(path, make())
    *tokens, last = lines_of(response)
    assert response.headers["x-request-id"].startswith("ollama-")
    texts = [line["response"] if path == GENERATE else line["message"]["content"] for line in tokens]
    assert texts == ["Hel", "lo", "!"]
    assert [(line["done"], "done_reason" in line) for line in tokens] == [(False, False)] * 3
    assert (last["done"], last["done_reason"]) == (True, "stop")
    assert set(COUNTS) < set(last)
    assert (last.get("response"), last.get("message")) in (("", None), (None, {"role": "assistant", "content": ""}))


def test_held_text_comes_before_the_end() -> None:
    lines = lines_of(ask(GENERATE, make_generate(), ScriptedModel(["a", "", "b"], rest="c")))
    assert [line["response"] for line in lines] == ["a", "b", "c", ""]
    assert lines[-1]["eval_count"] == 3
    assert lines[-1]["context"][-3:] == [0, 1, 2]
    whole = ask(GENERATE, make_generate(stream=False), ScriptedModel(["a", "", "b"], rest="c")).json()
    assert whole["response"] == "abc"


def test_a_line_stays_one_line_whatever_the_text() -> None:
    pieces = ["a\nb", "\u2028", "\r\n", "é🌶"]
    lines = ask(GENERATE, make_generate(), ScriptedModel(pieces)).content.split(b"\n")
    assert [json.loads(line)["response"] for line in lines[:4]] == pieces


@pytest.mark.parametrize("is_stream", [True, False])
def test_an_answer_cut_at_its_limit_says_so(is_stream: bool) -> None:
    response = ask(GENERATE, make_generate(stream=is_stream, options={"num_predict": 2}))
    last = lines_of(response)[-1] if is_stream else response.json()
    assert (last["done_reason"], last["eval_count"]) == ("length", 2)


def test_raw_answers_have_no_context() -> None:
    assert "context" not in ask(GENERATE, make_generate(raw=True, stream=False)).json()


def test_log_probabilities_come_with_the_text_of_their_tokens() -> None:
    fields = make_generate(logprobs=True, top_logprobs=2)
    *lines, last = lines_of(ask(GENERATE, fields, ScriptedModel(["a", "", "b"])))
    assert [len(line["logprobs"]) for line in lines] == [1, 2]
    assert "logprobs" not in last
    entry = lines[0]["logprobs"][0]
    assert (entry["token"], entry["logprob"], len(entry["top_logprobs"])) == ("a", -0.5, 2)
    whole = ask(GENERATE, fields | {"stream": False}, ScriptedModel(["a", "", "b"])).json()
    assert whole["logprobs"] == [entry for line in lines for entry in line["logprobs"]]


@pytest.mark.parametrize(("path", "make"), [(GENERATE, make_generate), (CHAT, make_chat)])
def test_a_failure_is_the_last_line_of_a_stream_and_the_status_of_a_whole(path: str, make: Any) -> None:
    broken: dict[str, Any] = {"reason": FinishReason.ERROR, "error": "r1: the kernel failed"}
    assert lines_of(ask(path, make(), ScriptedModel(**broken)))[-1] == {"error": "r1: the kernel failed"}
    response = ask(path, make(stream=False), ScriptedModel(**broken))
    assert response.status_code == 500
    assert problem_of(response) == "r1: the kernel failed"


def test_our_own_mistakes_in_a_stream_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ValueError("secret")

    monkeypatch.setattr("twostroke.serve.ollama.replies.durations", fail)
    assert lines_of(ask(GENERATE, make_generate()))[-1] == {"error": "internal error"}


def test_silence_is_broken_by_blanks_that_change_no_line() -> None:
    loop, limits = StillLoop(), LimitsConfig(keep_alive_s=10.0)

    async def talk() -> str:
        wish = read_generate(make_generate(), model=MODEL, defaults=SamplingParams())
        answers, said = Answers(max_pending=9), list[str]()
        answers.asked[0], answers.num_unfinished = ScriptedHandle("r", num_prompt_tokens=9), 1

        async def read() -> None:
            reply = OllamaReply(wish, answers, model=ScriptedModel())
            async for part in AnswerLines(reply, answers, limits=limits).chunks():
                said.append(part.decode())

        reading = asyncio.create_task(read())
        for now_s in (0.0, 10.0, 20.0, 25.0):
            await loop.wait_until(now_s)
        answers.take(0, TokenEvent("r", 0, "a", 25.0))
        usage = Usage(prompt_tokens=9, cached_tokens=0, completion_tokens=1)
        take_end(answers, make_finish("r", reason=FinishReason.STOP, usage=usage))
        await reading
        return "".join(said)

    said = run_on(loop, talk())
    assert said.startswith("  {")
    assert [json.loads(line)["response"] for line in said.splitlines()] == ["a", ""]


@pytest.mark.parametrize(("path", "make"), [(GENERATE, make_generate), (CHAT, make_chat)])
def test_without_a_prompt_the_model_is_there(path: str, make: Any) -> None:
    model = ScriptedModel()
    nothing: dict[str, Any] = {"prompt": ""} if path == GENERATE else {"messages": []}
    for is_stream in (True, False):
        reply = ask(path, make(**nothing, stream=is_stream), model).json()
        assert (reply["done"], reply["done_reason"]) == (True, "load")
    assert model.prompts == []


# Reasoning and calls

SAYS = [
    "<think>",
    "so",
    " so</th",
    "ink>\n\n",
    "Let me ",
    "look.",
    '<tool_call>{"name": "wea',
    'ther", "arguments": {"d": 1}}',
]
SAYS += ["</tool_call>", "<tool_call>", '{"name": "stop"}</tool_call>']
CALLS = [{"index": 0, "name": "weather", "arguments": {"d": 1}}, {"index": 1, "name": "stop", "arguments": {}}]


def thinker() -> ScriptedModel:
    """Thinks, says something and calls twice."""
    model = ScriptedModel(SAYS)
    found = AnswerFormat(HERMES, ThinkFormat("<think>", "</think>"))
    model.new_reader = lambda: AnswerReader(found, names=("weather", "stop"))
    return model


def test_an_answer_is_told_in_its_parts() -> None:
    message = ask(CHAT, make_chat(stream=False), thinker()).json()["message"]
    assert (message["role"], message["thinking"], message["content"]) == ("assistant", "so so", "Let me look.")
    assert [call["function"] for call in message["tool_calls"]] == CALLS
    assert len({call["id"] for call in message["tool_calls"]}) == 2


def test_a_stream_tells_thoughts_as_they_come_and_each_call_whole() -> None:
    *lines, last = lines_of(ask(CHAT, make_chat(), thinker()))
    messages = [line["message"] for line in lines]
    assert "".join(message.get("thinking", "") for message in messages) == "so so"
    assert "".join(message["content"] for message in messages) == "Let me look."
    calls = [call["function"] for message in messages for call in message.get("tool_calls", ())]
    assert calls == CALLS
    assert [len(message.get("tool_calls", ())) for message in messages][-2:] == [1, 1]
    assert (last["done_reason"], last["eval_count"]) == ("stop", len(SAYS))


def test_generate_tells_thoughts_beside_its_response() -> None:
    model = ScriptedModel(["<think>hm</think>", "yes"])
    model.new_reader = lambda: AnswerReader(AnswerFormat(None, ThinkFormat("<think>", "</think>")))
    whole = ask(GENERATE, make_generate(stream=False), model).json()
    assert (whole["thinking"], whole["response"]) == ("hm", "yes")
    lines = lines_of(ask(GENERATE, make_generate(), model))
    assert [(line.get("thinking", ""), line["response"]) for line in lines] == [("hm", ""), ("", "yes"), ("", "")]
