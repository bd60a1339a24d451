"""How a connection ends whose client still sends: what it hears, how much is dropped, and for how long."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from tests.serve.time_builders import StillLoop, run_on
from twostroke.serve.http_protocol import HttpProtocol
from twostroke.serve.lingering import LINGER_BYTES, LINGER_S, LingeringTransport

UPLOAD = b"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n"
WHOLE = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


class Wire(asyncio.Transport):
    """Notes what is done to it, as a socket would: nothing can be written behind the end."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.has_eof = self.has_closed = False

    def write(self, data: Any) -> None:
        assert not self.has_eof, "written behind the end"
        self.written += data

    def write_eof(self) -> None:
        self.has_eof = True

    def close(self) -> None:
        self.has_closed = True

    def is_closing(self) -> bool:
        return self.has_closed

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


def lingering() -> tuple[LingeringTransport, Wire]:
    wire = Wire()
    transport = LingeringTransport(wire)
    transport.is_sending = True
    transport.close()
    assert (wire.has_eof, wire.has_closed, transport.is_closing()) == (True, False, True)
    return transport, wire


def run(work: Coroutine[Any, Any, None]) -> None:
    run_on(StillLoop(), work)


def test_a_client_that_has_said_all_is_not_waited_for() -> None:
    wire = Wire()
    LingeringTransport(wire).close()
    assert (wire.has_eof, wire.has_closed) == (False, True)


def test_what_is_dropped_is_bounded() -> None:
    async def work() -> None:
        transport, wire = lingering()
        transport.drop(LINGER_BYTES)
        assert not wire.has_closed
        transport.drop(1)
        assert wire.has_closed

    run(work())


def test_the_time_is_bounded_whatever_comes() -> None:
    loop = StillLoop()

    async def work() -> None:
        transport, wire = lingering()
        await loop.wait_until(LINGER_S - 1)
        transport.drop(1)
        assert not wire.has_closed
        await loop.wait_until(LINGER_S)
        assert wire.has_closed

    run_on(loop, work())


def test_a_second_close_waits_no_more() -> None:
    async def work() -> None:
        transport, wire = lingering()
        transport.close()
        assert wire.has_closed

    run(work())


# The protocol over it


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    """Answers without a look at the body."""
    await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"no"})


async def refuse_late(scope: Any, receive: Any, send: Any) -> None:
    await settle()
    await settle()
    await refuse(scope, receive, send)


async def connected(app: Any = refuse) -> tuple[HttpProtocol, Wire]:
    config = uvicorn.Config(app, http=HttpProtocol, log_config=None, lifespan="off", ws="none")
    config.load()
    protocol, wire = HttpProtocol(config, ServerState(), {}), Wire()
    protocol.connection_made(wire)
    return protocol, wire


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_refusal_is_heard_to_its_end_and_the_rest_of_the_body_is_no_request() -> None:
    async def work() -> None:
        protocol, wire = await connected()
        protocol.data_received(UPLOAD)
        await settle()
        assert wire.written.endswith(b"\r\n\r\nno")
        assert (wire.has_eof, wire.has_closed) == (True, False)
        protocol.data_received(b"x" * 1_000_000 + WHOLE)
        await settle()
        assert wire.written.count(b"HTTP/1.1 ") == 1
        protocol.connection_lost(None)
        assert wire.has_closed

    run(work())


def test_a_connection_that_is_kept_drops_as_much_of_each_refused_body_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("twostroke.serve.lingering.LINGER_BYTES", 1_000_000)

    async def work() -> None:
        protocol, wire = await connected()
        for count in (1, 2):
            protocol.data_received(UPLOAD.replace(b"close", b"keep-alive"))
            await settle()
            protocol.data_received(b"x" * 1_000_000)
            await settle()
            assert (wire.written.count(b"HTTP/1.1 401"), wire.has_closed) == (count, False)
        protocol.data_received(UPLOAD.replace(b"close", b"keep-alive").replace(b"1000000", b"1000001"))
        await settle()
        protocol.data_received(b"x" * 1_000_001)
        assert wire.has_closed

    run(work())


def test_a_whole_request_is_answered_and_its_connection_closed_at_once() -> None:
    async def work() -> None:
        protocol, wire = await connected()
        protocol.data_received(WHOLE)
        await settle()
        assert (wire.has_eof, wire.has_closed) == (False, True)

    run(work())


@pytest.mark.parametrize("data", [b"\0 nonsense\r\n\r\n", UPLOAD.replace(b"Content", b"\0"), b"GET /" + b"a" * 2**17])
def test_a_client_that_sends_no_request_hears_that_too(data: bytes) -> None:
    async def work() -> None:
        protocol, wire = await connected()
        protocol.data_received(data)
        await settle()
        assert wire.written.startswith(b"HTTP/1.1 400 ")
        assert (wire.written.count(b"HTTP/1.1 "), wire.has_eof, wire.has_closed) == (1, True, False)

    run(work())


def test_a_request_that_runs_writes_nothing_behind_a_400(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        protocol, wire = await connected(refuse_late)
        protocol.data_received(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
        await settle()
        protocol.data_received(b"nonsense\r\n")
        for _ in range(3):
            await settle()
        assert (wire.written.count(b"HTTP/1.1 "), wire.written[9:12], wire.has_eof) == (1, b"400", True)

    run(work())
    assert not caplog.records


def test_a_server_that_closes_waits_for_no_client() -> None:
    async def work() -> None:
        protocol, wire = await connected()
        protocol.data_received(UPLOAD)
        await settle()
        assert not wire.has_closed
        protocol.shutdown()
        assert wire.has_closed

    run(work())


def test_nor_does_it_for_what_is_refused_from_then_on() -> None:
    async def work() -> None:
        protocol, wire = await connected(refuse_late)
        protocol.data_received(UPLOAD)
        protocol._running = None  # as where a whole request runs before it on its connection
        protocol.shutdown()
        protocol.send_400_response("no")
        assert (wire.has_eof, wire.has_closed) == (False, True)

    run(work())


async def read_whole(scope: Any, receive: Any, send: Any) -> None:
    """Replies once the body is there, and to nobody who left before."""
    message = await receive()
    while message.get("more_body"):
        message = await receive()
    if message["type"] == "http.request":
        await refuse(scope, receive, send)


def test_a_server_that_closes_does_not_wait_for_the_rest_of_a_request(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        protocol, wire = await connected(read_whole)
        protocol.data_received(UPLOAD + b"x")
        await settle()
        assert len(protocol.tasks) == 1
        protocol.shutdown()
        assert wire.has_closed
        protocol.connection_lost(None)
        await settle()
        assert not protocol.tasks
        assert not wire.written

    run(work())
    assert not caplog.records


def test_a_connection_that_broke_leaves_no_timer() -> None:
    async def work() -> None:
        protocol, _ = await connected()
        protocol.data_received(UPLOAD)
        await settle()
        timer = protocol._wire._timer
        assert timer is not None
        protocol.connection_lost(ConnectionResetError())
        assert timer.cancelled()

    run(work())
