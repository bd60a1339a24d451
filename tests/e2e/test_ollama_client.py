"""Ollama's own client, sync and async, against a process whose model is scripted, and against the app itself."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import ollama
import pytest

from tests.e2e.server_process import ServerProcess, running_server, wait_until
from tests.serve.serve_builders import MODEL, ScriptedModel, ScriptedShelf, registry_of
from twostroke.serve.app import create_app

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(["-m", "tests.serve.scripted_server"]) as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[ollama.Client]:
    with ollama.Client(server.address) as one:
        yield one


def expected(num_tokens: int) -> str:
    return "".join(f" {number}" for number in range(num_tokens))


def test_generate_whole_and_streamed(client: ollama.Client) -> None:
    asked: Any = {"model": MODEL, "prompt": "hi", "options": {"num_predict": 4}}
    whole = client.generate(**asked)
    assert (whole.response, whole.done, whole.done_reason, whole.eval_count) == (expected(4), True, "length", 4)
    assert whole.total_duration is not None
    *lines, last = list(client.generate(**asked, stream=True))
    assert [line.response for line in lines] == [" 0", " 1", " 2", " 3"]
    assert (last.done, last.done_reason, last.context) == (True, "length", whole.context)


def test_an_answer_goes_on_from_its_context(client: ollama.Client) -> None:
    first = client.generate(MODEL, "hi", options={"num_predict": 2})
    again = client.generate(MODEL, "more", context=first.context, options={"num_predict": 2})
    assert first.context is not None
    assert again.prompt_eval_count == len(first.context) + len("more")


def test_chat_whole_streamed_and_sent_back(client: ollama.Client) -> None:
    options = ollama.Options(num_predict=3, temperature=0.5, seed=1)
    whole = client.chat(MODEL, MESSAGES, options=options)
    assert (whole.message.role, whole.message.content) == ("assistant", expected(3))
    streamed = list(client.chat(MODEL, MESSAGES, options=options, stream=True))
    assert "".join(part.message.content or "" for part in streamed) == expected(3)
    again = client.chat(MODEL, [*MESSAGES, whole.message, *MESSAGES], options=options)
    assert again.prompt_eval_count == 3


def test_log_probabilities(client: ollama.Client) -> None:
    told = client.chat(MODEL, MESSAGES, options={"num_predict": 2}, logprobs=True, top_logprobs=2)
    assert told.logprobs is not None
    assert [len(entry.top_logprobs or ()) for entry in told.logprobs] == [2, 2]


def test_list_show_and_ps(client: ollama.Client) -> None:
    (listed,) = client.list().models
    assert (listed.model, listed.size) == (MODEL, 1_000_000)
    assert listed.details is not None
    assert listed.details.quantization_level == "Q4_K_M"
    shown = client.show(MODEL)
    assert shown.capabilities == ["completion"]
    assert shown.modelinfo is not None
    assert shown.modelinfo["llama.context_length"] == 4096
    (loaded,) = client.ps().models
    assert (loaded.name, loaded.context_length) == (MODEL, 4096)


def test_embeddings(client: ollama.Client) -> None:
    assert client.embed(MODEL, ["hi", "you"]).embeddings == [[2.0, 0.5], [3.0, 0.5]]
    assert client.embeddings(MODEL, "hi").embedding == [2.0, 0.5]


def test_pull_and_delete(client: ollama.Client) -> None:
    assert client.pull("tiny:1b").status == "success"
    statuses = list(client.pull("tiny:1b", stream=True))
    assert statuses[-1].status == "success"
    assert statuses[-2].completed == 30
    assert client.delete("tiny:1b").status == "success"


def test_load_and_unload_without_a_prompt(client: ollama.Client) -> None:
    assert client.generate(MODEL, keep_alive="5m").done_reason == "load"
    assert client.chat(MODEL, keep_alive=0).done_reason == "unload"
    assert client.ps().models == []
    assert client.chat(MODEL, keep_alive=-1).done_reason == "load"
    assert len(client.ps().models) == 1


def test_errors_are_the_clients_own_with_our_words(client: ollama.Client) -> None:
    for ask, status, told in (
        (lambda: client.generate("nobody", "hi"), 404, "model 'nobody' not found"),
        (lambda: client.chat("nobody", MESSAGES), 404, "not found"),
        (lambda: client.show("nobody"), 404, "not found"),
        (lambda: client.embed("nobody", "hi"), 404, "not found"),
        (lambda: client.embed(MODEL, "hi", truncate=True), 400, "truncate is True"),
        (lambda: client.delete(MODEL), 409, "the server was started with it"),
        (lambda: client.generate(MODEL, "hi", options={"mirostat_x": 2}), 400, "options.mirostat_x is refused"),
        (lambda: client.generate(MODEL, "hi", options={"num_ctx": 10_000}), 400, "--context 10000"),
        (lambda: list(client.chat(MODEL, MESSAGES, stream=True, think="max")), 400, "think is 'max'"),
        (lambda: client.create("mine", from_=MODEL), 404, "Not Found"),
    ):
        with pytest.raises(ollama.ResponseError, match=told) as caught:
            ask()
        assert caught.value.status_code == status


def test_a_client_that_leaves_ends_its_answer(server: ServerProcess, client: ollama.Client) -> None:
    stream: Any = client.generate(MODEL, "hi", stream=True, options={"num_predict": 4000})
    assert next(iter(stream)).response == " 0"
    assert server.health()["requests"]["running"] == 1
    stream.close()
    wait_until(server.is_idle)


def test_the_async_client_chats_beside_others(server: ServerProcess) -> None:
    async def one(client: ollama.AsyncClient) -> str:
        parts = await client.chat(MODEL, MESSAGES, stream=True, options={"num_predict": 5})
        return "".join([part.message.content or "" async for part in parts])

    async def ask() -> list[str]:
        async with ollama.AsyncClient(server.address) as client:
            whole = await client.generate(MODEL, "hi", options={"num_predict": 5})
            return [whole.response or "", *await asyncio.gather(*(one(client) for _ in range(4)))]

    assert asyncio.run(ask()) == [expected(5)] * 5


def test_the_async_client_speaks_to_the_app_itself() -> None:
    app = create_app(registry_of(ScriptedModel()), shelf=ScriptedShelf())

    async def ask() -> tuple[str | None, str | None, list[str | None]]:
        async with ollama.AsyncClient("http://testserver", transport=httpx.ASGITransport(app=app)) as client:
            whole = await client.generate(MODEL, "hi")
            parts = [part.message.content async for part in await client.chat(MODEL, MESSAGES, stream=True)]
            return whole.response, (await client.pull("tiny:1b")).status, parts

    assert asyncio.run(ask()) == ("Hello!", "success", ["Hel", "lo", "!", ""])
