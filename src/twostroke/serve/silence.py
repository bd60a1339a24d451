"""Notices when nothing was heard for a while: one timer for a whole stream, not one for every token.

Made by a stream of answers, on its event loop; it only tells, what is said about silence is the stream's business.
"""

import asyncio
from collections.abc import Callable


class Silence:
    """Calls `on_silence` whenever `hear` was not called for `idle_s`, until it is closed."""

    def __init__(self, idle_s: float, on_silence: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle_s = idle_s
        self._on_silence = on_silence
        self._heard_s = self._loop.time()
        self._timer = self._loop.call_later(idle_s, self._look)

    def hear(self) -> None:
        """Something came: silence begins anew."""
        self._heard_s = self._loop.time()

    def close(self) -> None:
        """Nobody listens any more."""
        self._timer.cancel()

    def _look(self) -> None:
        left_s = self._heard_s + self._idle_s - self._loop.time()
        if left_s <= 0:
            self._on_silence()
            self.hear()
            left_s = self._idle_s
        self._timer = self._loop.call_later(left_s, self._look)
