"""Ctrl-C while a chat is typed: it reaches what the chat is doing, at any moment, and is never lost.

Python's own way has two holes. A wait in C (the line editor's for keys, a queue's, a socket's) sleeps through a SIGINT
that came a moment before it, or that the system gave to another thread; and KeyboardInterrupt is raised wherever the
program happens to be. Here the handler of SIGINT does nothing. A thread hears each press and sends a signal of no
meaning, again and again, until the main thread has woken and taken the press. Knows no answers and no lines.
"""

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POKE = signal.SIGURG  # ignored by default: one that comes late harms nobody
AGAIN_S = 0.01  # between pokes; the first one mostly does


class Interrupts:
    """Presses of Ctrl-C and who listens. For the main thread; each fact has one writer at a time.

    The thread says `is_pressed`, then looks for a listener; the main thread names a listener, then looks for a press.
    Whatever their order, one of them sees the other's, so no lock is needed.
    """

    def __init__(self) -> None:
        self._is_pressed = False
        self._act: Callable[[], None] | None = None

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Ctrl-C comes here instead of being KeyboardInterrupt. Presses that nobody listens to wait."""
        inlet, outlet = socket.socketpair()
        inlet.setblocking(False)  # as signals need it
        thread = threading.Thread(target=self._hear, args=(outlet, threading.get_ident()), name="interrupts")
        thread.start()
        wakeup = signal.set_wakeup_fd(inlet.fileno(), warn_on_full_buffer=False)
        before = signal.signal(POKE, self._take), signal.signal(signal.SIGINT, _wait)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            inlet.close()
            thread.join()
            outlet.close()
            signal.signal(POKE, before[0])
            signal.signal(signal.SIGINT, before[1])

    @contextmanager
    def calling(self, act: Callable[[], None]) -> Iterator[None]:
        """The first Ctrl-C, also one that waits already, calls `act` in the main thread; a second waits for the next.

        `act` may raise; where it does not, it must bear to be called twice.
        """
        self._act = act
        try:
            self._take()
            yield
        finally:
            self._act = None

    def _take(self, *signal_and_frame: object) -> None:
        act = self._act
        if act is not None and self._is_pressed:
            self._act, self._is_pressed = None, False
            act()

    def _hear(self, outlet: socket.socket, main: int) -> None:
        while numbers := outlet.recv(4096):
            if signal.SIGINT in numbers:
                self._is_pressed = True
                while self._is_pressed and self._act is not None:
                    signal.pthread_kill(main, POKE)
                    time.sleep(AGAIN_S)


def interrupt() -> None:
    """What a listener does that wants to be interrupted wherever it is."""
    raise KeyboardInterrupt


def _wait(*signal_and_frame: object) -> None:
    """SIGINT needs a handler to reach the wakeup descriptor."""
