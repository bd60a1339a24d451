"""HTTP/1.1 on one connection: uvicorn's protocol over httptools, which writes a token in a fraction of h11's time.

Given to uvicorn by the server. Adds what httptools leaves to its user: a limit on what a client sends outside of
bodies, answers to clients that would rather speak HTTP/2, that no error is written into a running answer, that this one
ends with its connection though another request waits behind it, that a refusal is heard though its client still sends,
and when a request was complete: everything that happens to it from then on is the server's time.
"""

import asyncio
import weakref
from typing import cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from twostroke.core.clock import WallClock
from twostroke.serve.body import ARRIVAL
from twostroke.serve.direct_body import DIRECT_BODY
from twostroke.serve.lingering import LingeringTransport

CLOCK = WallClock()
MAX_HEAD_BYTES = 65_536  # of a head, or of the frames around a body: some times what any client sends
PART_BYTES = 2048  # parsed at once: what is behind the end of a head counts for the next
INVALID = "Invalid HTTP request received."


class ChunkedBody:
    """The body of one reply, written without its application's layers: what they do is done with its first piece.

    The cycle has it in its scope: holding the cycle in turn would keep both until Python's collector comes by.
    """

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = weakref.ref(cycle)
        self._flow = cycle.flow
        self._write = cycle.transport.write

    @property
    def is_open(self) -> bool:
        cycle = self._cycle()
        if cycle is None or not cycle.chunked_encoding or cycle.response_complete:
            return False
        return not (self._flow.write_paused or cycle.disconnected)

    def write(self, data: bytes) -> None:
        self._write(b"%x\r\n%b\r\n" % (len(data), data))


class HttpProtocol(HttpToolsProtocol):
    """One connection. Upgrades are not offered: a client that asks for one is answered in HTTP/1.1."""

    _num_bytes = 0  # that came since a head, a piece of a body or a request was complete
    _running: RequestResponseCycle | None = None  # uvicorn's `cycle` is the newest, which may wait behind it
    _wire: LingeringTransport  # uvicorn's `transport`

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = LingeringTransport(cast(asyncio.Transport, transport))  # uvloop's is none by name
        super().connection_made(cast(asyncio.Transport, self._wire))

    def data_received(self, data: bytes) -> None:
        if self._wire.is_lingering:
            self._wire.drop(len(data))
            return
        self._unset_keepalive_if_required()
        try:
            for start in range(0, len(data), PART_BYTES):
                self._parse(data[start : start + PART_BYTES])
        except httptools.HttpParserError:
            self.send_400_response(INVALID)
        except OverflowError:
            self.send_400_response(f"The limit on headers is {MAX_HEAD_BYTES} bytes: send fewer.")

    def _parse(self, part: bytes) -> None:
        self._num_bytes += len(part)
        while part:
            try:
                self.parser.feed_data(part)
                break
            except httptools.HttpParserUpgrade as upgrade:
                # Behind a head that asks for one the parser leaves off, body or not: it is told again without.
                part = self._plain_head() + part[upgrade.args[0] :]
        if self._num_bytes > MAX_HEAD_BYTES:
            raise OverflowError

    def _plain_head(self) -> bytes:
        method = self.parser.get_method()
        if method == b"CONNECT":  # to somewhere else, whatever its headers say
            raise httptools.HttpParserError("this server is no proxy")
        lines = [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([b"%s %s HTTP/1.1" % (method, self.url), *lines, b"", b""])

    def send_400_response(self, msg: str) -> None:
        """Say so and close; beside an answer that has begun only close."""
        running = self._running
        self._end_running()
        if running is not None and running.response_started and not running.response_complete:
            self._wire.close_now()
        else:
            self._wire.is_sending = True
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        self._wire.is_sending, self._wire.num_dropped = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._num_bytes = 0
        if not self.parser.should_upgrade():
            super().on_headers_complete()
            if not self.pipeline:
                self._running = self.cycle
            self.scope["state"][DIRECT_BODY] = ChunkedBody(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._num_bytes = 0
        if self.cycle.response_complete:
            self._wire.drop(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._num_bytes = 0
        if not self.parser.should_upgrade():
            self._wire.is_sending = False
            self.scope["state"][ARRIVAL] = CLOCK.now()
            super().on_message_complete()

    def on_response_complete(self) -> None:
        waiting = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        self._running = waiting or self._running

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_running()
        self._wire.close_now()
        super().connection_lost(exc)

    def _end_running(self) -> None:
        """Nothing of it will be written any more."""
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def shutdown(self) -> None:
        """The server closes: no client is waited for any more, with a request that is not whole neither."""
        super().shutdown()
        self._wire.linger_no_more()
        if self._running is not None and self._running.more_body and not self._running.response_started:
            self._wire.close_now()
