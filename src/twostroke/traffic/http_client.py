"""HTTP/1.1 to one server: connections that are kept and used again, replies piece by piece with their times.

Used by the load generator, whose own cost must be small beside what it measures, and by the chat.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import h11

from twostroke.core.clock import Clock, WallClock
from twostroke.errors import ConfigError, RemoteError

READ_BYTES = 65_536
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

    def __init__(self, connection: "_Connection", head: h11.Response) -> None:
        self._connection = connection
        self.status: int = head.status_code
        self.kind = dict(head.headers).get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()

    async def pieces(self) -> AsyncIterator[tuple[float, bytes]]:
        """(seconds on the client's clock when it was read, bytes) until the body's end."""
        while True:
            event = await self._connection.next_event()
            if isinstance(event, h11.Data):
                yield self._connection.read_s, bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return

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
        self._headers = [(b"Host", address.host_and_port.encode()), (b"User-Agent", b"twostroke")]
        if api_key is not None:
            if not api_key.isprintable():
                raise ConfigError("--api-key has a line end or another letter that no header can carry: leave it out")
            self._headers.append((b"Authorization", f"Bearer {api_key}".encode()))

    async def get(self, path: str) -> Any:
        """The JSON of a route. Raises RemoteError."""
        async with self.ask("GET", path) as reply:
            return await _json_of(reply, path)

    async def post(self, path: str, fields: dict[str, Any]) -> Any:
        """The JSON that a route answers to JSON. Raises RemoteError."""
        async with self.ask("POST", path, json.dumps(fields).encode()) as reply:
            return await _json_of(reply, path)

    @contextlib.asynccontextmanager
    async def ask(self, method: str, path: str, body: bytes = b"") -> AsyncIterator[Reply]:
        """The reply to one request. Left before the body's end, the connection is closed, which tells the server.

        Raises RemoteError where nobody listens or the connection breaks.
        """
        headers = [*self._headers, (b"Content-Length", b"%d" % len(body))]
        if body:
            headers.append((b"Content-Type", b"application/json"))
        request = h11.Request(method=method, target=self.address.prefix + path, headers=headers)
        connection, head = await self._sent(request, body)
        try:
            yield Reply(connection, head)
        finally:
            if connection.can_go_on():
                self._idle.append(connection)
            else:
                connection.close()

    async def _sent(self, request: h11.Request, body: bytes) -> tuple["_Connection", h11.Response]:
        """A connection with the reply's head; a kept one that the server closed meanwhile is replaced."""
        while self._idle:
            kept = self._idle.pop()
            with contextlib.suppress(RemoteError):
                return kept, await kept.send(request, body)
            kept.close()
        connection = await self._connected()
        try:
            return connection, await connection.send(request, body)
        except BaseException:
            connection.close()
            raise

    async def _connected(self) -> "_Connection":
        place = self.address
        context = ssl.create_default_context() if place.is_secure else None
        try:
            reader, writer = await asyncio.open_connection(place.host, place.port, ssl=context)
        except (OSError, UnicodeError) as error:  # the latter for what is no host name at all
            raise RemoteError(f"{place.url} cannot be reached: {error}", kind="not connected") from None
        return _Connection(reader, writer, self.clock)

    async def close(self) -> None:
        """Close what is kept."""
        while self._idle:
            self._idle.pop().close()


class _Connection:
    """One connection and where its conversation is."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, clock: Clock) -> None:
        self.read_s = 0.0  # of the last bytes
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._state = h11.Connection(h11.CLIENT)

    async def send(self, request: h11.Request, body: bytes) -> h11.Response:
        parts = [self._state.send(request), body and self._state.send(h11.Data(data=body))]
        parts.append(self._state.send(h11.EndOfMessage()))
        self._writer.write(b"".join(part for part in parts if part))
        while True:
            event = await self.next_event()
            if isinstance(event, h11.Response):
                return event

    async def next_event(self) -> h11.Event:
        try:
            while (event := self._state.next_event()) is h11.NEED_DATA:
                data = await self._reader.read(READ_BYTES)
                self.read_s = self._clock.now()
                self._state.receive_data(data)
        except (OSError, h11.RemoteProtocolError) as error:
            raise RemoteError(f"the connection broke: {error}", kind="connection broke") from None
        if isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            raise RemoteError("the server closed the connection before its reply", kind="connection broke")
        assert not isinstance(event, type), event
        return event

    def can_go_on(self) -> bool:
        """Whether another request may be sent; then all is ready for it."""
        if (self._state.our_state, self._state.their_state) != (h11.DONE, h11.DONE) or self._reader.at_eof():
            return False
        self._state.start_next_cycle()
        return True

    def close(self) -> None:
        self._writer.close()


async def _json_of(reply: Reply, path: str) -> Any:
    if reply.status != 200:
        raise RemoteError(f"{path} answers {reply.status}: {await reply.problem()}", kind=f"http {reply.status}")
    try:
        return json.loads(await reply.body())
    except (ValueError, RecursionError):
        raise RemoteError(f"{path} answers what is no JSON", kind="no JSON") from None
