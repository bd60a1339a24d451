"""The server as a process, with real clients; the model behind it is scripted."""

import asyncio
import json
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest

from tests.e2e.server_process import PATIENCE_S, ServerProcess, read_until, running_server, wait_until
from tests.serve.serve_builders import MODEL, make_chat, make_completion
from twostroke.errors import ConfigError
from twostroke.serve.server import listen

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
COMMAND = ["-m", "tests.serve.scripted_server"]
ENDLESS: dict[str, Any] = {"max_tokens": 100_000}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(COMMAND) as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as one:
        yield one


def expected(num_tokens: int) -> str:
    return "".join(f" {number}" for number in range(num_tokens))


def test_the_openai_client_lists_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]


def test_the_openai_client_chats_whole_and_streamed(client: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 5}
    whole = client.chat.completions.create(**asked)
    assert whole.choices[0].message.content == expected(5)
    assert whole.choices[0].finish_reason == "length"
    stream = client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    *chunks, last = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == expected(5)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(chunk.choices[0].delta.role is None for chunk in chunks[1:])
    assert chunks[-1].choices[0].finish_reason == "length"
    assert last.choices == []
    assert last.usage == whole.usage
    assert last.usage.prompt_tokens_details.cached_tokens == 1


def test_an_answer_can_be_sent_back_as_it_came(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}], max_tokens=1)
    history: Any = [{"role": "user", "content": "hi"}, first.choices[0].message, {"role": "user", "content": "go on"}]
    again = client.chat.completions.create(model=MODEL, messages=history, max_tokens=1)
    assert again.usage is not None
    assert again.usage.prompt_tokens == 3


def test_the_openai_client_completes_several_prompts(client: openai.OpenAI) -> None:
    reply = client.completions.create(model=MODEL, prompt=["a", "b"], max_tokens=3)
    assert [(choice.index, choice.text) for choice in reply.choices] == [(0, expected(3)), (1, expected(3))]
    stream = client.completions.create(model=MODEL, prompt=[1, 2, 3], max_tokens=3, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == expected(3)


def test_the_openai_client_raises_its_own_errors(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "hi"}]
    with pytest.raises(openai.BadRequestError, match="verbosity") as refused:
        client.chat.completions.create(model=MODEL, messages=messages, verbosity="low")
    assert refused.value.param == "verbosity"
    with pytest.raises(openai.BadRequestError, match="top_p"):
        client.chat.completions.create(model=MODEL, messages=messages, top_p=2, stream=True)
    with pytest.raises(openai.NotFoundError, match="gpt-4"):
        client.chat.completions.create(model="gpt-4", messages=messages)


def test_the_openai_client_retrieves_a_model(client: openai.OpenAI) -> None:
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_the_openai_client_asks_for_choices_and_logprobs(client: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    reply = client.chat.completions.create(**asked, n=2, logprobs=True, top_logprobs=2, seed=1, user="me")
    assert [choice.message.content for choice in reply.choices] == [expected(3)] * 2
    for choice in reply.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert [entry.token for entry in choice.logprobs.content] == [" 0", " 1", " 2"]
        assert all(len(entry.top_logprobs) == 2 for entry in choice.logprobs.content)
    older = client.completions.create(model=MODEL, prompt="p", max_tokens=2, logprobs=1).choices[0].logprobs
    assert older is not None
    assert (older.tokens, older.text_offset) == ([" 0", " 1"], [0, 2])


def test_the_openai_client_streams_usage_as_it_grows(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model=MODEL,
        prompt="p",
        max_tokens=3,
        stream=True,
        extra_body={"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    )
    counts = [chunk.usage.completion_tokens for chunk in stream if chunk.usage is not None]
    assert counts == [1, 2, 3, 3, 3]


def test_the_asynchronous_client_streams_side_by_side(server: ServerProcess) -> None:
    async def ask(client: openai.AsyncOpenAI, number: int) -> str:
        stream = await client.completions.create(model=MODEL, prompt="p", max_tokens=5 + number, stream=True)
        return "".join([chunk.choices[0].text async for chunk in stream])

    async def ask_all() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(8)))

    assert asyncio.run(ask_all()) == [expected(5 + number) for number in range(8)]


def test_a_foreign_host_is_not_served(server: ServerProcess) -> None:
    request = urllib.request.Request(f"{server.address}/health", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 403
    refused.value.close()


def test_sigterm_lets_a_short_answer_end_and_takes_no_new_one() -> None:
    with (
        running_server(COMMAND) as server,
        server.connect(CHAT, make_chat(stream=True, max_tokens=100)) as connection,
    ):
        read_until(connection, b" 3")
        code, problems = server.stop(signal.SIGTERM)
        rest = read_until(connection, b"[DONE]")
    assert b'"finish_reason":"length"' in rest
    assert b"error" not in rest
    assert (code, problems) == (0, "")


def asked(connection: socket.socket, path: str, *, method: str = "GET", body: bytes = b"") -> bytes:
    """The whole reply to one request on a connection."""
    kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n".encode() + body)
    reply = read_until(connection, b"\r\n\r\n").lower()
    head, _, start = reply.partition(b"\r\n\r\n")
    while len(start) < int(head.split(b"content-length: ")[1].split(b"\r\n")[0]):
        start += connection.recv(65536).lower()
    return head + start


@contextmanager
def draining() -> Iterator[tuple[ServerProcess, socket.socket, socket.socket]]:
    """A server that waits for an endless answer, its stream, and a connection that had been used before."""
    with (
        running_server([*COMMAND, "60"]) as server,
        server.connect(CHAT, make_chat(stream=True, **ENDLESS), request_id="mine") as stream,
        connected(server) as kept,
    ):
        read_until(stream, b" 3")
        assert asked(kept, "/ready").startswith(b"http/1.1 200 ")
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not is_ready(server))
        yield server, stream, kept


def connected(server: ServerProcess) -> socket.socket:
    place = urlsplit(server.address)
    return socket.create_connection((place.hostname, place.port), timeout=PATIENCE_S)


def is_ready(server: ServerProcess) -> bool:
    with connected(server) as connection:
        return asked(connection, "/ready").startswith(b"http/1.1 200 ")


def test_a_server_that_drains_says_so_on_connections_new_and_old_until_its_answers_have_ended() -> None:
    body = json.dumps(make_chat()).encode()
    with draining() as (server, stream, kept):
        told = [asked(kept, CHAT, method="POST", body=body)]
        for path, method, sent in (("/ready", "GET", b""), (CHAT, "POST", body), ("/tokenize", "POST", body)):
            with connected(server) as connection:
                told.append(asked(connection, path, method=method, body=sent))
        for reply in told:
            assert reply.startswith(b"http/1.1 503 ")
            assert b"retry-after: 1\r\n" in reply
            assert b"the server is closing" in reply
        with connected(server) as connection:
            assert asked(connection, "/health").startswith(b"http/1.1 200 ")
        server.get("/v1/requests/mine", method="DELETE")
        assert b"cancelled by a DELETE" in read_until(stream, b"[DONE]")
        assert server.process.wait(PATIENCE_S) == 0


def test_a_second_signal_ends_a_drain_at_once() -> None:
    with draining() as (server, stream, _):
        assert server.stop(signal.SIGTERM) == (0, "")
        assert b"the server is closing" in read_until(stream, b"[DONE]")


def test_a_body_that_is_half_sent_holds_no_end_up() -> None:
    with running_server([*COMMAND, "60"]) as server, connected(server) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
        )
        wait_until(lambda: is_ready(server))
        assert server.stop(signal.SIGINT) == (0, ""), "nothing had to be cancelled"


def test_eight_streams_at_once_each_get_their_text(client: openai.OpenAI) -> None:
    texts: dict[int, str] = {}

    def ask(number: int) -> None:
        stream = client.completions.create(model=MODEL, prompt="p", max_tokens=20 + number, stream=True)
        texts[number] = "".join(chunk.choices[0].text for chunk in stream)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {number: expected(20 + number) for number in range(8)}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("is_stream", [True, False])
def test_a_client_that_leaves_frees_its_blocks(server: ServerProcess, path: str, is_stream: bool) -> None:
    make = make_chat if path == CHAT else make_completion
    connection = server.connect(path, make(stream=is_stream, **ENDLESS))
    if is_stream:
        read_until(connection, b" 3")
    wait_until(lambda: server.health()["requests"]["running"] == 1)
    connection.close()
    wait_until(server.is_idle)


def test_closing_only_the_sending_side_is_leaving_too(server: ServerProcess) -> None:
    with server.connect(CHAT, make_chat(**ENDLESS)) as connection:
        wait_until(lambda: server.health()["requests"]["running"] == 1)
        connection.shutdown(socket.SHUT_WR)
        wait_until(server.is_idle)


def test_fifty_clients_may_leave_at_once(server: ServerProcess) -> None:
    connections = [server.connect(COMPLETIONS, make_completion(stream=True, **ENDLESS)) for _ in range(50)]
    wait_until(lambda: server.health()["requests"]["running"] == 50)
    for connection in connections:
        connection.close()
    wait_until(server.is_idle)


def test_a_client_that_leaves_in_its_own_body_is_no_error(server: ServerProcess) -> None:
    with server.connect(CHAT, make_chat()) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
        )
    wait_until(server.is_idle)


def test_huge_headers_are_refused(server: ServerProcess) -> None:
    place = server.address.removeprefix("http://").split(":")
    with socket.create_connection((place[0], int(place[1])), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 2**17)
        assert b"400" in read_until(connection, b"\r\n")
    assert server.health()["status"] == "ok"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_quietly_and_its_streams_with_an_error(number: signal.Signals) -> None:
    with running_server(COMMAND) as server, server.connect(CHAT, make_chat(stream=True, **ENDLESS)) as connection:
        read_until(connection, b" 3")
        code, problems = server.stop(number)
        rest = read_until(connection, b"[DONE]")
    assert b"the server is closing" in rest
    assert (code, problems) == (0, "")


def test_a_port_in_use_is_a_clear_error(server: ServerProcess) -> None:
    port = int(server.address.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: another program listens there; choose"):
        listen(port=port)
    with pytest.raises(ConfigError, match="port 70000"):
        listen(port=70_000)
