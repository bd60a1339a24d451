"""`twostroke serve --ollama` over a real engine whose model says what a table tells it to, asked by Ollama's client."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ollama
import pytest

from tests.builders_llm import ANSWER, write_puppet
from tests.e2e.server_process import PATIENCE_S, ServerProcess, running_server, wait_until
from tests.e2e.test_serve_model import TWOSTROKE

NAME = "puppet.gguf"
CONTEXT = 32_768  # takes seconds to fill
MESSAGES = [{"role": "user", "content": "hi"}]  # the template ends every prompt with the question that has an answer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    file = write_puppet(tmp_path_factory.mktemp("puppet") / NAME, context=CONTEXT)
    with running_server([*TWOSTROKE, "serve", "--ollama", "-m", str(file), "--port", "0", "--threads", "1"]) as one:
        yield one


@pytest.fixture
def client(server: ServerProcess) -> Iterator[ollama.Client]:
    with ollama.Client(server.address) as one:
        yield one


def asked(server: ServerProcess, fields: dict[str, Any], request_id: str) -> dict[str, Any]:
    """A whole reply to a request of that name."""
    body = json.dumps({"model": NAME, "raw": True, "stream": False, **fields}).encode()
    headers = {"Content-Type": "application/json", "X-Request-Id": request_id}
    request = urllib.request.Request(f"{server.address}/api/generate", body, headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        reply: dict[str, Any] = json.load(response)
    return reply


def test_prompts_and_chats_are_answered_whole_and_streamed(client: ollama.Client) -> None:
    for whole in (client.generate(NAME, "hi"), client.generate(NAME, "why?", raw=True)):
        assert (whole.response, whole.done_reason, whole.eval_count) == (ANSWER, "stop", len(ANSWER) + 1)
    assert client.chat(NAME, MESSAGES).message.content == ANSWER
    *lines, last = list(client.chat(NAME, MESSAGES, stream=True))
    assert [line.message.content for line in lines] == list(ANSWER)
    assert (last.message.content, last.done_reason) == ("", "stop")


def test_the_first_model_goes_unused_and_comes_back_when_it_is_asked_for(tmp_path: Path) -> None:
    file = write_puppet(tmp_path / NAME, context=CONTEXT)
    command = [*TWOSTROKE, "serve", "--ollama", "-m", str(file), "--port", "0", "--threads", "1", "--keep-alive", "0"]
    with running_server(command) as server, ollama.Client(server.address) as client:
        wait_until(lambda: server.health()["models"] == {NAME: "not_loaded"})
        assert client.ps().models == []
        assert client.generate(NAME, "hi").response == ANSWER
        wait_until(lambda: server.health()["models"] == {NAME: "not_loaded"})
        assert server.stop() == (0, "")


def test_an_answer_goes_on_from_the_tokens_of_the_one_before(client: ollama.Client) -> None:
    first = client.generate(NAME, "hi")
    again = client.generate(NAME, "more", context=first.context)
    assert again.response == ANSWER
    assert first.context is not None
    assert again.context is not None
    assert list(again.context[: len(first.context)]) == list(first.context)
    assert again.context.count(again.context[0]) == 1  # one BOS
    assert again.prompt_eval_count == len(again.context) - len(ANSWER) - 1


def test_what_the_template_cannot_do_is_refused(client: ollama.Client) -> None:
    tools: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    for asked, told in (({"tools": tools}, "shows the model no tools"), ({"think": True}, "think is true")):
        with pytest.raises(ollama.ResponseError, match=told) as caught:
            client.chat(NAME, MESSAGES, **asked)
        assert caught.value.status_code == 400
    assert client.chat(NAME, MESSAGES, think=False).message.content == ANSWER
    assert client.show(NAME).capabilities == ["completion"]


def test_durations_are_those_of_the_ledger(server: ServerProcess) -> None:
    reply = asked(server, {"prompt": "x", "options": {"num_predict": 7}}, "timed")
    record = server.get("/v1/requests/timed")["answers"][0]
    ledger = record["ledger"]
    before_s = sum(ledger.get(part, 0.0) for part in ("parse", "template", "tokenize", "grammar_compile", "queue"))
    assert reply["prompt_eval_duration"] == pytest.approx((record["ttft_s"] - before_s) * 1e9, abs=2)
    assert reply["total_duration"] == pytest.approx(reply["eval_duration"] + record["ttft_s"] * 1e9, abs=2)
    assert reply["load_duration"] == 0
    assert reply["prompt_eval_count"] == record["usage"]["prompt_tokens"]
    assert reply["eval_count"] == 7


def test_an_answer_without_a_limit_fills_its_context(client: ollama.Client) -> None:
    told = client.generate(NAME, "x", raw=True, options={"num_predict": -1, "num_ctx": 40})
    assert told.done_reason == "length"
    assert (told.prompt_eval_count or 0) + (told.eval_count or 0) == 40
    with pytest.raises(ollama.ResponseError, match=rf"loaded with a context of {CONTEXT}"):
        client.generate(NAME, "x", raw=True, options={"num_ctx": CONTEXT + 1})


def test_a_cached_prompt_counts_whole(client: ollama.Client) -> None:
    prompt = "xz" * 40
    counts = [client.generate(NAME, prompt, raw=True, options={"num_predict": 1}).prompt_eval_count for _ in range(3)]
    assert counts[0] is not None
    assert counts == [max(80, counts[0])] * 3


def test_leaving_ends_the_answer_and_frees_its_blocks(server: ServerProcess, client: ollama.Client) -> None:
    stream: Any = client.generate(NAME, "x", raw=True, stream=True, options={"num_predict": 30_000})
    next(iter(stream))
    assert not server.is_idle()
    stream.close()
    wait_until(server.is_idle)
    fields = {"model": NAME, "prompt": "xz" * 15_000, "raw": True, "options": {"num_predict": 1}}
    with server.connect("/api/generate", fields):
        wait_until(lambda: server.health()["requests"]["running"] == 1)
    wait_until(server.is_idle)


def test_an_answer_follows_its_format(client: ollama.Client) -> None:
    schema = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": False}
    told = client.generate(NAME, "x", raw=True, format=schema, options={"num_predict": 60})
    assert told.done_reason == "stop"
    assert json.loads(told.response or "")["x"] in (1, 2)
    with pytest.raises(ollama.ResponseError, match="format"):
        client.generate(NAME, "x", raw=True, format={"type": "strng"})


def test_a_model_is_unloaded_and_loaded_again_with_the_wait_told(server: ServerProcess, client: ollama.Client) -> None:
    assert client.generate(NAME, keep_alive=0).done_reason == "unload"
    assert client.ps().models == []
    reply = asked(server, {"prompt": "why?"}, "loads")
    assert reply["response"] == ANSWER
    assert 0 < reply["load_duration"] < reply["total_duration"]
    (loaded,) = client.ps().models
    assert (loaded.name, loaded.context_length) == (NAME, CONTEXT)
    assert client.show(NAME).details is not None
