"""When a request has arrived, and the short way of a token to its connection: no other bytes, no other order."""

import asyncio
import json
import re
import sys
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from tests.serve.serve_builders import (
    MODEL,
    ScriptedModel,
    ScriptedShelf,
    client_of,
    make_chat,
    make_completion,
    registry_of,
)
from twostroke.serve.app import create_app
from twostroke.serve.body import ARRIVAL
from twostroke.serve.http_protocol import CLOCK, ChunkedBody, HttpProtocol
from twostroke.serve.server import TURN_S, _short_turns


class Wire(asyncio.Transport):
    """Takes what is written and sends nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.has_closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.has_closed = True

    def is_closing(self) -> bool:
        return self.has_closed

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


async def echo(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def connected(app: Any) -> tuple[HttpProtocol, Wire]:
    config = uvicorn.Config(app, http=HttpProtocol, log_config=None, lifespan="off", ws="none")
    config.load()
    protocol, wire = HttpProtocol(config, ServerState(), {}), Wire()
    protocol.connection_made(wire)
    return protocol, wire


def test_a_request_arrives_with_its_last_byte_and_not_before() -> None:
    async def talk() -> None:
        protocol, wire = connected(echo)
        protocol.data_received(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\na")
        assert ARRIVAL not in protocol.scope["state"]
        await asyncio.sleep(0)
        before_s = CLOCK.now()
        protocol.data_received(b"b")
        after_s = CLOCK.now()
        await asyncio.sleep(0.01)  # whatever the event loop does meanwhile
        assert before_s <= protocol.scope["state"][ARRIVAL] <= after_s
        assert wire.written.startswith(b"HTTP/1.1 200 ")

    asyncio.run(talk())


def test_each_of_several_requests_has_its_own_arrival() -> None:
    async def talk() -> None:
        protocol, _ = connected(echo)
        request = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\na"
        protocol.data_received(request)
        first = protocol.scope["state"]
        protocol.data_received(request)
        assert first[ARRIVAL] < protocol.scope["state"][ARRIVAL]
        await asyncio.sleep(0.01)

    asyncio.run(talk())


def test_an_answer_counts_from_there() -> None:
    model = ScriptedModel()
    app = create_app(registry_of(model))

    async def ask() -> None:
        body = iter([{"type": "http.request", "body": json.dumps(make_completion()).encode(), "more_body": False}])
        sent: list[Any] = []

        async def receive() -> Any:
            return next(body, None) or await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/completions",
            "headers": [(b"content-type", b"application/json")],
            "query_string": b"",
            "state": {ARRIVAL: 1.5},
        }
        await app(scope, receive, send)
        assert sent[0]["status"] == 200

    asyncio.run(ask())
    assert model.arrivals == [1.5]


def test_threads_give_way_sooner_while_a_server_runs() -> None:
    before_s = sys.getswitchinterval()
    with _short_turns():
        assert sys.getswitchinterval() == TURN_S
    assert sys.getswitchinterval() == before_s


# The short way of a token


def asked(path: str, fields: dict[str, Any]) -> bytes:
    body = json.dumps({**fields, "stream": True}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nX-Request-Id: r\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def body_in(written: bytes) -> bytes:
    """The chunks behind a head, joined."""
    _, _, rest = written.partition(b"\r\n\r\n")
    body = b""
    while size := int(rest.partition(b"\r\n")[0], 16):
        start = rest.index(b"\r\n") + 2
        body, rest = body + rest[start : start + size], rest[start + size + 2 :]
    assert rest == b"0\r\n\r\n"
    return body


async def ended(wire: Wire) -> None:
    while not wire.written.endswith(b"\r\n0\r\n\r\n"):
        await asyncio.sleep(0.001)


ROUTES = [
    ("/v1/chat/completions", make_chat(n=2, stream_options={"include_usage": True})),
    ("/v1/completions", make_completion(logprobs=1)),
    ("/api/chat", {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}),
]


@pytest.mark.parametrize(("path", "fields"), ROUTES)
def test_what_goes_the_short_way_is_what_would_have_gone_the_long_one(
    path: str, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces, directly = ["Hel", "", "lo\n", "\N{PINCHED FINGERS}"], list[bytes]()
    write = ChunkedBody.write

    def counted(self: ChunkedBody, data: bytes) -> None:
        directly.append(data)
        write(self, data)

    monkeypatch.setattr(ChunkedBody, "write", counted)

    async def talk() -> bytes:
        protocol, wire = connected(create_app(registry_of(ScriptedModel(pieces, pause_s=0.01)), shelf=ScriptedShelf()))
        protocol.data_received(asked(path, fields))
        await ended(wire)
        return body_in(wire.written)

    short = asyncio.run(talk())
    with client_of(ScriptedModel(pieces, pause_s=0.01), shelf=ScriptedShelf()) as client:
        told = client.post(path, json={**fields, "stream": True}, headers={"X-Request-Id": "r"}).content
    assert directly
    assert _timeless(short) == _timeless(told)


def _timeless(body: bytes) -> list[str]:
    """Its events without what differs from one second or run to the next, several choices' one by one."""
    texts = re.sub(r'"(created|created_at|[a-z_]+_duration)":("[^"]*"|[0-9]+)', "", body.decode()).split("\n")
    return sorted(texts)


def test_a_connection_that_takes_no_more_gets_the_rest_in_order_once_it_does() -> None:
    async def talk() -> bytes:
        model = ScriptedModel([f" {number}" for number in range(20)], pause_s=0.002)
        protocol, wire = connected(create_app(registry_of(model)))
        protocol.data_received(asked("/v1/completions", make_completion()))
        while b'" 3"' not in wire.written:
            await asyncio.sleep(0.001)
        protocol.pause_writing()
        size = len(wire.written)
        while model.num_running:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        assert len(wire.written) == size
        protocol.resume_writing()
        await ended(wire)
        return body_in(wire.written)

    texts = re.findall(rb'"text":"([^"]*)"', asyncio.run(talk()))
    assert texts == [f" {number}".encode() for number in range(20)] + [b""]


def test_a_fault_on_the_short_way_is_one_error_event(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: ChunkedBody, data: bytes) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(ChunkedBody, "write", fail)
    model = ScriptedModel(["x"] * 1000, pause_s=0.005)

    async def talk() -> bytes:
        protocol, wire = connected(create_app(registry_of(model)))
        protocol.data_received(asked("/v1/completions", make_completion()))
        await ended(wire)
        return body_in(wire.written)

    *_, error, done, rest = asyncio.run(talk()).split(b"\n\n")
    assert (b"internal error" in error, done, rest) == (True, b"data: [DONE]", b"")
    assert b"secret" not in error
    assert "a secret" in caplog.text
    assert model.handles[0].is_cancelled.is_set()


# A request that waits behind a running one


async def streaming(model: ScriptedModel) -> tuple[HttpProtocol, Wire]:
    """A stream that has begun, and a whole request behind it."""
    protocol, wire = connected(create_app(registry_of(model)))
    protocol.data_received(asked("/v1/completions", make_completion(max_tokens=1000)))
    while b"data: " not in wire.written:
        await asyncio.sleep(0.001)
    protocol.data_received(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
    return protocol, wire


def test_a_running_answer_ends_with_its_connection_though_a_request_waits_behind_it() -> None:
    model = ScriptedModel(["x"] * 1000, pause_s=0.005)

    async def talk() -> None:
        protocol, wire = await streaming(model)
        protocol.connection_lost(ConnectionResetError())
        size = len(wire.written)
        async with asyncio.timeout(2):
            while model.num_running:
                await asyncio.sleep(0.001)
        assert len(wire.written) == size

    asyncio.run(talk())
    assert model.handles[0].is_cancelled.is_set()


def test_no_error_is_written_into_a_running_answer_though_a_request_waits_behind_it() -> None:
    async def talk() -> bytes:
        protocol, wire = await streaming(ScriptedModel(["x"] * 1000, pause_s=0.005))
        protocol.data_received(b"\0 nonsense\r\n\r\n")
        assert wire.has_closed
        protocol.connection_lost(None)
        return wire.written

    written = asyncio.run(talk())
    assert written.count(b"HTTP/1.1 ") == 1
    assert b"Invalid HTTP" not in written


def test_requests_behind_each_other_end_with_their_connection_at_any_place() -> None:
    """Of three the second runs when it breaks."""
    model = ScriptedModel(["x"] * 1000, pause_s=0.005)
    health = b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n"

    async def talk() -> None:
        protocol, wire = connected(create_app(registry_of(model)))
        protocol.data_received(health + asked("/v1/completions", make_completion(max_tokens=1000)) + health)
        while b"data: " not in wire.written:
            await asyncio.sleep(0.001)
        protocol.connection_lost(ConnectionResetError())
        async with asyncio.timeout(2):
            while model.num_running:
                await asyncio.sleep(0.001)

    asyncio.run(talk())
    assert model.handles[0].is_cancelled.is_set()
