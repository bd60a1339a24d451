"""When a request has arrived: as its last byte is read, however long its route is not reached."""

import asyncio
import json
import sys
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from tests.serve.serve_builders import ScriptedModel, make_completion, registry_of
from twostroke.serve.app import create_app
from twostroke.serve.body import ARRIVAL
from twostroke.serve.http_protocol import CLOCK, HttpProtocol
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
