"""The one thread that drives the engine, and the one lock of the project: an inbox of commands."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from twostroke.engine.engine import Engine
from twostroke.errors import TwostrokeError

logger = logging.getLogger("twostroke")
T = TypeVar("T")


class Worker:
    """Runs commands between steps and steps while there is work; sleeps otherwise. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._inbox: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._loop, name="twostroke-engine", daemon=True)
        self._thread.start()

    def call(self, command: Callable[[Engine], T]) -> "Future[T]":
        """Run `command` on the engine's thread between two steps.

        Raises TwostrokeError once the worker is closed.
        """
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(command(self._engine))
            except Exception as error:  # noqa: BLE001 - it is the caller's to see, whatever it is
                future.set_exception(error)

        with self._changed:
            if self._is_closing:
                raise TwostrokeError("the model is closed: load it again to ask more")
            self._inbox.append(run)
            self._changed.notify()
        return future

    def close(self) -> None:
        """Cancel what runs and end the thread. May be called twice, but never from the engine's own thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    def _loop(self) -> None:
        while True:
            with self._changed:
                while not (self._inbox or self._engine.has_work or self._is_closing):
                    self._changed.wait()
                commands = list(self._inbox)
                self._inbox.clear()
                closing = self._is_closing
            for command in commands:
                command()
            if closing:
                self._engine.cancel_all()
                return
            self._step()

    def _step(self) -> None:
        try:
            self._engine.step()
        except Exception as error:
            logger.exception("the engine failed; every running request ends with an error")
            self._engine.fail_all(error)
