"""HTTP as clients may speak it, byte by byte, to a real server: what is answered, what is refused, what is bounded."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.e2e.server_process import ServerProcess, read_until, running_server, wait_until
from tests.serve.serve_builders import make_completion
from twostroke.serve.lingering import LINGER_BYTES

HOST = b"Host: localhost\r\n"
HEALTH = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"
LIMIT = 2**16
MIB = 2**20


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(["-m", "tests.serve.scripted_server"]) as running:
        yield running


def connect(server: ServerProcess) -> socket.socket:
    host, port = server.address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def asked(*, headers: bytes = b"", **fields: Any) -> bytes:
    body = json.dumps(make_completion(**{"max_tokens": 2, **fields})).encode()
    return head(b"Content-Length: %d\r\n" % len(body) + headers) + body


def head(headers: bytes) -> bytes:
    return b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n" + HOST + headers + b"\r\n"


def read_replies(connection: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """Status and body of so many replies, each with its length."""
    data, replies = b"", list[tuple[int, bytes]]()
    while len(replies) < count:
        while b"\r\n\r\n" not in data:
            data += received(connection)
        top, _, data = data.partition(b"\r\n\r\n")
        size = int(top.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(data) < size:
            data += received(connection)
        replies.append((int(top.split()[1]), data[:size]))
        data = data[size:]
    return replies


def received(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    assert data, "the server closed the connection"
    return data


def statuses(server: ServerProcess, *requests: bytes) -> list[int]:
    """Of requests sent at once over one connection."""
    with closing(connect(server)) as connection:
        connection.sendall(b"".join(requests))
        return [status for status, _ in read_replies(connection, len(requests))]


def refusal(server: ServerProcess, *pieces: bytes) -> bytes:
    """All that comes for pieces after which the server closes."""
    with closing(connect(server)) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return read_until(connection, b"\r\n")


@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket"])
def test_a_client_that_asks_for_another_protocol_is_answered_in_this_one(server: ServerProcess, upgrade: bytes) -> None:
    """Java's own client asks for HTTP/2 with its first request, body and all."""
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\nHTTP2-Settings: AAMAAABkAAQ\r\n" % upgrade
    with closing(connect(server)) as connection:
        connection.sendall(asked(headers=wish) + HEALTH)
        (status, body), (next_status, _) = read_replies(connection, 2)
    assert (status, next_status) == (200, 200)
    assert json.loads(body)["choices"][0]["text"] == " 0 1"


def test_an_upgrade_may_come_cut_anywhere(server: ServerProcess) -> None:
    request = asked(headers=b"Connection: Upgrade\r\nUpgrade: h2c\r\n")
    with closing(connect(server)) as connection:
        for place in range(0, len(request), 37):
            connection.sendall(request[place : place + 37])
        assert read_replies(connection, 1)[0][0] == 200


def test_requests_behind_each_other_are_answered_in_order(server: ServerProcess) -> None:
    with closing(connect(server)) as connection:
        connection.sendall(b"".join(asked(max_tokens=count) for count in (3, 1, 2)))
        texts = [json.loads(body)["choices"][0]["text"] for _, body in read_replies(connection, 3)]
    assert texts == [" 0 1 2", " 0", " 0 1"]


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01 nonsense\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT a:80 HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /he\0alth HTTP/1.1\r\n" + HOST + b"\r\n",
        "GET /é HTTP/1.1\r\n".encode() + HOST + b"\r\n",
        head(b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n") + b"0\r\n\r\n",
        head(b"Content-Length: 3\r\nContent-Length: 4\r\n") + b"abcd",
        head(b"Content-Length: -1\r\n"),
        head(b"Transfer-Encoding: chunked\r\n") + b"xyz\r\n",
    ],
)
def test_what_is_no_request_is_a_400_and_ends_the_connection(server: ServerProcess, request_bytes: bytes) -> None:
    assert refusal(server, request_bytes).startswith(b"HTTP/1.1 400 ")


def test_one_name_of_the_host_and_no_other_is_wanted(server: ServerProcess) -> None:
    two = b"GET /health HTTP/1.1\r\n" + HOST + b"Host: evil.example\r\n\r\n"
    none = b"GET /health HTTP/1.1\r\n\r\n"
    assert statuses(server, two, none) == [403, 403]


@pytest.mark.parametrize("header", [b"X-%d: " + b"a" * 4000 + b"\r\n", b"%d" + b"a" * 4000])
def test_a_head_without_end_is_cut_off_at_its_limit(server: ServerProcess, header: bytes) -> None:
    pieces = [header % number for number in range(LIMIT // 4000 + 1)]
    told = refusal(server, b"GET /health HTTP/1.1\r\n" + HOST + b"X: ", *pieces)
    assert told.startswith(b"HTTP/1.1 400 ")


def test_a_head_within_the_limit_is_taken_however_it_is_cut(server: ServerProcess) -> None:
    with closing(connect(server)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n" + HOST)
        for number in range(15):
            connection.sendall(b"X-%d: " % number + b"a" * 4000 + b"\r\n")
        connection.sendall(b"\r\n")
        assert read_replies(connection, 1)[0][0] == 200


def test_lines_behind_a_chunked_body_are_bounded_too(server: ServerProcess) -> None:
    body = json.dumps(make_completion(max_tokens=2)).encode()
    start = head(b"Transfer-Encoding: chunked\r\n") + b"%x\r\n%s\r\n0\r\n" % (len(body), body)
    pieces = [b"X-%d: " % number + b"a" * 4000 + b"\r\n" for number in range(LIMIT // 4000 + 1)]
    assert refusal(server, start, *pieces).startswith(b"HTTP/1.1 400 ")
    wait_until(server.is_idle)


def test_a_body_may_come_in_many_small_chunks(server: ServerProcess) -> None:
    body = json.dumps(make_completion(prompt="x" * 100_000, max_tokens=2)).encode()
    chunks = [b"%x\r\n%s\r\n" % (len(part), part) for part in (body[at : at + 9] for at in range(0, len(body), 9))]
    assert statuses(server, head(b"Transfer-Encoding: chunked\r\n") + b"".join(chunks) + b"0\r\n\r\n") == [200]


def test_a_client_may_wait_for_leave_to_send_its_body(server: ServerProcess) -> None:
    request = asked(headers=b"Expect: 100-continue\r\n")
    top, _, body = request.partition(b"\r\n\r\n")
    with closing(connect(server)) as connection:
        connection.sendall(top + b"\r\n\r\n")
        assert read_until(connection, b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert read_replies(connection, 1)[0][0] == 200


@pytest.mark.parametrize("is_chunked", [True, False])
def test_a_body_beyond_its_limit_is_refused_while_it_is_read_and_its_rest_is_dropped(
    server: ServerProcess, is_chunked: bool
) -> None:
    part = b"a" * MIB
    if is_chunked:
        start, rest = head(b"Transfer-Encoding: chunked\r\n"), [b"%x\r\n%s\r\n" % (MIB, part)] * 5 + [b"0\r\n\r\n"]
    else:
        start, rest = head(b"Content-Length: %d\r\n" % (5 * MIB)), [part] * 5
    with closing(connect(server)) as connection:
        for piece in (start, *rest, HEALTH):
            connection.sendall(piece)
        assert [status for status, _ in read_replies(connection, 2)] == [413, 200]


@pytest.mark.parametrize("path", ["/v1/completions", "/nowhere"])
def test_a_client_that_sends_all_before_it_reads_hears_why_its_body_was_refused(
    server: ServerProcess, path: str
) -> None:
    """Python's own client: a connection for one request, closed behind the reply."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{server.address}{path}", b"a" * (12 * MIB), headers)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    with refused.value as reply:
        assert (reply.code, "error" in json.load(reply)) == (413 if path == "/v1/completions" else 404, True)


def test_a_client_that_never_stops_sending_is_cut_off(server: ServerProcess) -> None:
    with closing(connect(server)) as connection:
        connection.sendall(head(b"Connection: close\r\nContent-Length: %d\r\n" % 2**50))
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            connection.sendall(b"a" * (2 * LINGER_BYTES))
    wait_until(server.is_idle)


def test_nothing_is_written_into_a_running_answer(server: ServerProcess) -> None:
    with closing(connect(server)) as connection:
        connection.sendall(asked(stream=True, max_tokens=100_000))
        read_until(connection, b" 3")
        connection.sendall(b"\x01 nonsense\r\n\r\n")
        rest = b""
        while data := connection.recv(65536):
            rest += data
    assert b"400" not in rest
    assert b"Invalid" not in rest
    wait_until(server.is_idle)


def test_a_client_of_the_older_version_is_answered_and_let_go(server: ServerProcess) -> None:
    told = refusal(server, b"GET /health HTTP/1.0\r\n" + HOST + b"\r\n")
    assert told.startswith(b"HTTP/1.1 200 ")
