"""One request, one reply, a connection that is used again; what breaks is a kind of error."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import pytest

from tests.traffic.traffic_builders import json_reply, reply, run, talking
from twostroke.errors import ConfigError, RemoteError
from twostroke.traffic.http_client import MAX_HEAD_BYTES, MAX_WAITING_BYTES, Address, HttpClient


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", Address(host="127.0.0.1", port=8000, is_secure=False, prefix="")),
        ("http://127.0.0.1:8000/v1/", Address(host="127.0.0.1", port=8000, is_secure=False, prefix="")),
        ("https://example.org/llm/v1", Address(host="example.org", port=443, is_secure=True, prefix="/llm")),
        ("http://[::1]:1", Address(host="::1", port=1, is_secure=False, prefix="")),
    ],
)
def test_an_address_may_have_the_routes_it_is_before(url: str, expected: Address) -> None:
    assert Address.of(url) == expected


def test_an_address_is_written_as_it_is_read() -> None:
    for url in ("http://127.0.0.1:8000", "https://example.org:443/llm", "http://[::1]:1"):
        assert Address.of(url).url == url


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000",
        "ftp://x",
        "http://",
        "http://h:port",
        "http://h/?q=1",
        "http://u@h",
        "http://h/a b",
        "http://h/\u00e9",
        "http://h/\x01",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--url is"):
        Address.of(url)


def test_a_connection_is_used_again_and_carries_the_key() -> None:
    asked: list[bytes] = []

    def talk(request: bytes) -> bytes:
        asked.append(request)
        return json_reply({"number": len(asked)})

    async def ask() -> list[object]:
        async with talking(talk, api_key="k") as client:
            return [await client.get("/a"), await client.post("/b", {"x": 1}), len(client._idle)]

    assert run(ask()) == [{"number": 1}, {"number": 2}, 1]
    assert asked[0].startswith(b"GET /a HTTP/1.1\r\n")
    assert b"Bearer k" in asked[1]
    assert asked[1].endswith(b'{"x": 1}')


def test_a_key_may_have_any_letters_but_none_that_ends_its_line() -> None:
    asked: list[bytes] = []

    def talk(request: bytes) -> bytes:
        asked.append(request)
        return json_reply(1)

    async def ask() -> None:
        async with talking(talk, api_key="schlüssel") as client:
            await client.get("/")

    run(ask())
    assert "Bearer schlüssel\r\n".encode() in asked[0]
    with pytest.raises(ConfigError, match="--api-key has a line end"):
        HttpClient(Address.of("http://h"), api_key="k\r\nX: y")


def test_an_address_of_the_newer_kind_is_called_by_its_name_in_brackets() -> None:
    assert Address.of("http://[::1]:8000").host_and_port == "[::1]:8000"


def test_a_kept_connection_the_server_closed_is_replaced() -> None:
    """Servers close what is idle for some seconds: that is no error of the next request."""
    answers = iter([json_reply(1), None, json_reply(2)])

    async def ask() -> list[object]:
        async with talking(lambda request: next(answers)) as client:
            return [await client.get("/"), await client.get("/")]

    assert run(ask()) == [1, 2]


def test_who_stops_waiting_on_a_kept_connection_closes_it() -> None:
    """The server would compute its answer to the end."""

    async def ask() -> None:
        asked, left = asyncio.Semaphore(0), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with closing(writer):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(json_reply(1))
                await reader.readuntil(b"\r\n\r\n")
                asked.release()
                assert await reader.read() == b""
                left.set()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
            client = HttpClient(Address.of(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"))
            await client.get("/")
            waiting = asyncio.ensure_future(client.get("/"))
            await asked.acquire()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await asyncio.wait_for(left.wait(), 10)

    run(ask())


def test_a_reply_that_is_left_early_closes_its_connection() -> None:
    async def ask() -> int:
        async with talking(lambda request: b"HTTP/1.1 200 -\r\nContent-Length: 9\r\n\r\nabc") as client:
            async with client.ask("GET", "/") as answer:
                async for _, piece in answer.pieces():
                    assert piece == b"abc"
                    break
            return len(client._idle)

    assert run(ask()) == 0


def test_pieces_have_the_time_they_were_read() -> None:
    async def ask() -> list[float]:
        async with talking(lambda request: reply(b"abc")) as client:
            before_s = client.clock.now()
            async with client.ask("GET", "/") as answer:
                times = [time_s async for time_s, _ in answer.pieces()]
            return [before_s, *times, client.clock.now()]

    times = run(ask())
    assert len(times) == 3
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (None, "connection broke", "the connection broke"),
        (b"no protocol at all\r\n\r\n", "connection broke", "broke"),
        (json_reply({"error": {"message": "no such thing"}}, status=404), "http 404", "no such thing"),
        (reply(b"<html>proxy</html>", status=502), "http 502", "<html>proxy</html>"),
        (reply(b"[" * 100_000, status=500), "http 500", r"\[\["),
        (reply(b"not json"), "no JSON", "no JSON"),
        (reply(b"[" * 100_000), "no JSON", "no JSON"),
    ],
)
def test_what_goes_wrong_has_a_kind(answer: bytes | None, kind: str, words: str) -> None:
    async def ask() -> None:
        async with talking(lambda request: answer) as client:
            await client.get("/x")

    with pytest.raises(RemoteError, match=words) as refused:
        run(ask())
    assert refused.value.kind == kind


def test_nobody_who_listens_is_an_error_of_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    async def ask() -> None:
        await HttpClient(Address.of(f"http://127.0.0.1:{port}")).get("/")

    with pytest.raises(RemoteError, match="cannot be reached") as refused:
        run(ask())
    assert refused.value.kind == "not connected"


def test_a_name_that_is_none_cannot_be_reached() -> None:
    async def ask() -> None:
        await HttpClient(Address.of(f"http://{'x' * 64}.example")).get("/")

    with pytest.raises(RemoteError, match="cannot be reached"):
        run(ask())


def test_requests_at_once_have_connections_of_their_own() -> None:
    async def ask() -> list[object]:
        async with talking(lambda request: json_reply(1)) as client:
            return [*await asyncio.gather(*[client.get("/") for _ in range(5)]), len(client._idle)]

    assert run(ask()) == [1, 1, 1, 1, 1, 5]


# Bodies of every kind, and when they come


@asynccontextmanager
async def saying(*parts: bytes) -> AsyncIterator[tuple[HttpClient, asyncio.Semaphore]]:
    """A client of a server that answers with these parts, each when it may, and then closes."""
    may_say = asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            await reader.readuntil(b"\r\n\r\n")
            for part in parts:
                await may_say.acquire()
                writer.write(part)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        client = HttpClient(Address.of(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"))
        yield client, may_say
        await client.close()


async def body_of(*parts: bytes) -> tuple[int, bytes, int]:
    """Status, body and how many connections may be used again."""
    async with saying(*parts) as (client, may_say):
        for _ in parts:
            may_say.release()
        async with client.ask("GET", "/") as answer:
            body = await answer.body()
        return answer.status, body, len(client._idle)


def test_a_body_may_come_in_chunks_or_with_its_length_or_end_with_the_connection() -> None:
    ok = b"HTTP/1.1 200 OK\r\n"
    chunked = ok + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    assert run(body_of(chunked)) == (200, b"abc", 1)
    assert run(body_of(ok + b"Content-Length: 3\r\n\r\nabc")) == (200, b"abc", 1)
    assert run(body_of(ok + b"\r\n", b"ab", b"c")) == (200, b"abc", 0)
    assert run(body_of(ok + b"Connection: close\r\nContent-Length: 3\r\n\r\nabc")) == (200, b"abc", 0)


def test_what_only_says_that_a_reply_comes_is_none() -> None:
    parts = (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx")
    assert run(body_of(*parts)) == (404, b"x", 1)
    assert run(body_of(b"".join(parts))) == (404, b"x", 1)


def test_a_server_that_goes_on_in_another_protocol_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RemoteError, match="in another protocol"):
        run(body_of(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"))
    assert not caplog.records


def test_a_connection_that_says_more_than_was_asked_is_not_used_again() -> None:
    assert run(body_of(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n")) == (200, b"x", 0)


@pytest.mark.parametrize(
    "parts",
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x" * MAX_HEAD_BYTES),
    ],
)
def test_a_reply_that_is_cut_or_never_ends_its_head_is_an_error(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(RemoteError, match="the connection broke") as refused:
        run(body_of(*parts))
    assert refused.value.kind == "connection broke"


def test_what_came_before_a_break_is_told_before_it() -> None:
    pieces: list[bytes] = []

    async def ask() -> None:
        async with saying(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc") as (client, may_say):
            may_say.release()
            async with client.ask("GET", "/") as answer:
                async for _, piece in answer.pieces(hold_bytes=100):
                    pieces.append(piece)

    with pytest.raises(RemoteError, match="before its reply's end"):
        run(ask())
    assert pieces == [b"abc"]


def test_held_pieces_come_together_with_the_times_they_were_read() -> None:
    async def ask() -> tuple[list[tuple[float, bytes]], float]:
        parts = (b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nab", b"cd", b"ef", b"gh")
        async with saying(*parts) as (client, may_say):
            may_say.release()
            async with client.ask("GET", "/") as answer:
                pieces = answer.pieces(hold_bytes=6)
                first = asyncio.ensure_future(anext(pieces))
                may_say.release()
                while answer._connection._num_waiting < 4:
                    await asyncio.sleep(0)
                assert not first.done()
                before_last_s = client.clock.now()
                may_say.release()
                held = [await first, await anext(pieces), await anext(pieces)]
                may_say.release()
                return [*held, *[piece async for piece in pieces]], before_last_s

    pieces, before_last_s = run(ask())
    assert [data for _, data in pieces] == [b"ab", b"cd", b"ef", b"gh"]
    times = [time_s for time_s, _ in pieces]
    assert times == sorted(times)
    assert times[1] < before_last_s < times[2]


def test_a_server_that_says_more_than_is_taken_is_left_with_it() -> None:
    """A stream without end fills no memory."""

    async def ask() -> int:
        async with saying(b"HTTP/1.1 200 OK\r\n\r\n", *[b"x" * 2**20] * 64) as (client, may_say):
            for _ in range(65):
                may_say.release()
            async with client.ask("GET", "/") as answer:
                while answer._connection._num_waiting <= MAX_WAITING_BYTES:
                    await asyncio.sleep(0)
                for _ in range(100):
                    await asyncio.sleep(0)
                waiting = answer._connection._num_waiting
                assert len(await answer.body()) == 64 * 2**20
        return waiting

    assert run(ask()) < 2 * MAX_WAITING_BYTES
