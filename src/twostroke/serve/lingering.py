"""The end of a connection whose client still sends: it hears the reply to its end instead of a reset.

A system that is told to close a connection with bytes unread resets it, and the client loses the reply that it was
about to read. So the sending half is closed alone, and what still comes is dropped, as much of it and as long as is
bounded here. The protocol wraps it around every transport and says when its client sends; never parses what it drops.
"""

import asyncio
from typing import Any

LINGER_S = 10.0  # for a client on a slow line to send what it has begun
LINGER_BYTES = 64 * 2**20  # 16 times the limit on bodies; dropping them takes tens of milliseconds


class LingeringTransport:
    """A transport whose `close` waits for a client that is sending; nothing may be written behind it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.is_sending = False  # the client: a request has begun and is not complete
        self.write = transport.write  # for every token: without a step in between
        self.num_dropped = 0  # bytes of its request that nobody reads
        self._transport = transport
        self._may_linger = True
        self._timer: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    @property
    def is_lingering(self) -> bool:
        return self._timer is not None

    def is_closing(self) -> bool:
        return self.is_lingering or self._transport.is_closing()

    def close(self) -> None:
        """A second time it waits no more."""
        if self.is_closing() or not self.is_sending or not self._may_linger:
            self.close_now()
            return
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, self.close_now)
        self._transport.write_eof()
        self._transport.resume_reading()

    def linger_no_more(self) -> None:
        """From now on nothing waits for the client."""
        self._may_linger = False
        if self.is_lingering:
            self.close_now()

    def drop(self, num_bytes: int) -> None:
        """They came behind the reply, while it lingers or before the next request."""
        self.num_dropped += num_bytes
        if self.num_dropped > LINGER_BYTES:
            self.close_now()

    def close_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport.close()
