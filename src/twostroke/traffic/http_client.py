"""HTTP/1.1 to one server: connections that are kept and used again, replies piece by piece with their times.

Used by the load generator, whose own cost must be small beside what it measures, and by the chat.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

from twostroke.core.clock import Clock, WallClock
from twostroke.errors import ConfigError, RemoteError

MAX_HEAD_BYTES = 65_536
MAX_WAITING_BYTES = 2**20  # nobody has taken: more is left with the server
FIRST_FINAL = 200  # statuses below it say that another comes
MAX_TOLD = 300  # characters of a server's error that are repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server is. `prefix` is the path before /v1, mostly empty."""

    host: str
    port: int
    is_secure: bool
    prefix: str

    @classmethod
    def of(cls, url: str) -> "Address":
        """http://HOST[:PORT][/PREFIX][/v1]. Raises ConfigError."""
        wrong = f"--url is {url!r}: give an address like http://127.0.0.1:8000"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ConfigError(wrong) from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise ConfigError(wrong)
        if not url.isascii() or any(letter.isspace() or not letter.isprintable() for letter in url):
            raise ConfigError(f"{wrong}, other letters than ASCII's percent-encoded")
        is_secure = parts.scheme == "https"
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(host=parts.hostname, port=port or (443 if is_secure else 80), is_secure=is_secure, prefix=prefix)

    @property
    def host_and_port(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.is_secure else 'http'}://{self.host_and_port}{self.prefix}"


class Reply:
    """A reply whose head has come: its status, and its body in pieces."""

    def __init__(self, connection: "_Connection") -> None:
        self._connection = connection
        self.status = connection.status
        self.kind = connection.kind.decode("latin-1").partition(";")[0].strip().lower()

    async def pieces(self, *, hold_bytes: int = 0) -> AsyncIterator[tuple[float, bytes]]:
        """(seconds on the client's clock when it was read, bytes) until the body's end.

        They come once `hold_bytes` of them wait, or the rest of the body does: whoever only wants to know when they
        were read takes no time meanwhile from a server on the same machine. Raises RemoteError where the body breaks
        off, behind what came.
        """
        connection = self._connection
        while True:
            await connection.wait_for(hold_bytes)
            for piece in connection.taken():
                yield piece
            if connection.has_ended:
                return

    @property
    def end_s(self) -> float:
        """When its end was read, on the client's clock; 0 before."""
        return self._connection.end_s

    async def body(self) -> bytes:
        return b"".join([piece async for _, piece in self.pieces()])

    async def problem(self) -> str:
        """What an error's body says, shortened; OpenAI's form or any other text."""
        body = await self.body()
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            error = json.loads(body)["error"]
            return str(error["message"] if isinstance(error, dict) else error)[:MAX_TOLD]
        return body.decode("utf-8", "replace").strip()[:MAX_TOLD]


class HttpClient:
    """Requests to one address on one event loop. Close it at the end."""

    def __init__(self, address: Address, *, api_key: str | None = None, clock: Clock | None = None) -> None:
        """Raises ConfigError for a key that no header can carry."""
        self.address = address
        self.clock = clock or WallClock()
        self._idle: list[_Connection] = []
        self._headers = [f"Host: {address.host_and_port}", "User-Agent: twostroke"]
        if api_key is not None:
            if not api_key.isprintable():
                raise ConfigError("--api-key has a line end or another letter that no header can carry: leave it out")
            self._headers.append(f"Authorization: Bearer {api_key}")

    async def get(self, path: str) -> Any:
        """The JSON of a route. Raises RemoteError."""
        async with self.ask("GET", path) as reply:
            return await _json_of(reply, path)

    async def post(self, path: str, fields: dict[str, Any]) -> Any:
        """The JSON that a route answers to JSON. Raises RemoteError."""
        async with self.ask("POST", path, json.dumps(fields).encode()) as reply:
            return await _json_of(reply, path)

    @contextlib.asynccontextmanager
    async def ask(
        self, method: str, path: str, body: bytes = b"", *, headers: Sequence[str] = ()
    ) -> AsyncIterator[Reply]:
        """The reply to one request. Left before the body's end, the connection is closed, which tells the server.

        Raises RemoteError where nobody listens or the connection breaks.
        """
        top = f"{method} {self.address.prefix}{path} HTTP/1.1"
        lines = [top, *self._headers, *headers, f"Content-Length: {len(body)}"]
        if body:
            lines.append("Content-Type: application/json")
        connection = await self._asked("\r\n".join([*lines, "", ""]).encode() + body)
        try:
            yield Reply(connection)
        finally:
            if connection.can_go_on:
                self._idle.append(connection)
            else:
                connection.close()

    async def _asked(self, request: bytes) -> "_Connection":
        """A connection with the reply's head; a kept one that the server closed meanwhile is replaced."""
        while self._idle:
            with contextlib.suppress(RemoteError):
                return await _asked_over(self._idle.pop(), request)
        return await _asked_over(await self._connected(), request)

    async def _connected(self) -> "_Connection":
        place, loop = self.address, asyncio.get_running_loop()
        context = ssl.create_default_context() if place.is_secure else None
        try:
            _, connection = await loop.create_connection(
                lambda: _Connection(self.clock), place.host, place.port, ssl=context
            )
        except (OSError, UnicodeError) as error:  # the latter for what is no host name at all
            raise RemoteError(f"{place.url} cannot be reached: {error}", kind="not connected") from None
        return connection

    async def close(self) -> None:
        """Close what is kept."""
        while self._idle:
            self._idle.pop().close()


class _Connection(asyncio.Protocol):
    """One connection, and where its conversation is: a reply at a time, whose pieces wait until they are taken."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._problem: str | None = None  # of the connection, which is of no more use
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.kind = b""
        self.has_ended = False
        self.end_s = 0.0
        self.can_go_on = False  # another request may be sent
        self._has_head = False
        self._is_framed = False  # says where its body ends; else the connection's end does
        self._head_bytes = 0
        self._pieces: list[tuple[float, bytes]] = []
        self._num_waiting = 0  # bytes of the pieces
        self._num_wanted = 0
        self._read_s = 0.0

    async def send(self, request: bytes) -> None:
        """Returns once the reply's head is there. Raises RemoteError."""
        assert self._transport is not None, "a connection is made before it is used"
        if self._problem is not None:
            raise self._broken()
        self._begin()
        self._transport.write(request)
        while not self._has_head:
            if self._problem is not None:
                raise self._broken()
            await self._woken()

    async def wait_for(self, num_bytes: int) -> None:
        """Until so many wait to be taken, or the rest of the body. Raises RemoteError where nothing is left to take."""
        self._num_wanted = max(1, num_bytes)
        while self._num_waiting < self._num_wanted and not self.has_ended:
            if self._problem is not None:
                if self._pieces:
                    return
                raise self._broken()
            await self._woken()

    def taken(self) -> list[tuple[float, bytes]]:
        """What waits, no more."""
        pieces, self._pieces, self._num_waiting = self._pieces, [], 0
        assert self._transport is not None, "pieces come over a connection"
        self._transport.resume_reading()
        return pieces

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _broken(self) -> RemoteError:
        return RemoteError(f"the connection broke: {self._problem}", kind="connection broke")

    async def _woken(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _break(self, problem: str) -> None:
        self._problem = self._problem or problem
        self.can_go_on = False
        self._wake()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by name

    def data_received(self, data: bytes) -> None:
        self._read_s = self._clock.now()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._break(str(error))
        except httptools.HttpParserUpgrade:
            self._break("the server goes on in another protocol")
        if not self._has_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._break(f"the head of the reply has more than {MAX_HEAD_BYTES} bytes")

    def connection_lost(self, error: Exception | None) -> None:
        if self._has_head and not self._is_framed:
            self.has_ended, self.end_s = True, self._clock.now()
        self._break(str(error or "the server closed it before its reply's end"))

    # What the parser calls

    def on_message_begin(self) -> None:
        if self.has_ended:
            self._break("the server says what nobody asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-type":
            self.kind = value
        elif name == b"content-length" or (name == b"transfer-encoding" and b"chunked" in value.lower()):
            self._is_framed = True

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= FIRST_FINAL
        self._wake()

    def on_body(self, data: bytes) -> None:
        self._pieces.append((self._read_s, data))
        self._num_waiting += len(data)
        if self._num_waiting >= self._num_wanted:
            self._wake()
            if self._num_waiting > MAX_WAITING_BYTES:
                assert self._transport is not None, "pieces come over a connection"
                self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._has_head:  # not one of those that only say that another comes
            self.can_go_on = self._is_framed and self._problem is None and self._parser.should_keep_alive()
            self.has_ended, self.end_s = True, self._read_s
            self._wake()


async def _asked_over(connection: _Connection, request: bytes) -> _Connection:
    """The connection with the reply's head; closed where nobody waits for that any more, or it does not come."""
    try:
        await connection.send(request)
    except BaseException:
        connection.close()
        raise
    return connection


async def _json_of(reply: Reply, path: str) -> Any:
    if reply.status != 200:
        raise RemoteError(f"{path} answers {reply.status}: {await reply.problem()}", kind=f"http {reply.status}")
    try:
        return json.loads(await reply.body())
    except (ValueError, RecursionError):
        raise RemoteError(f"{path} answers what is no JSON", kind="no JSON") from None
