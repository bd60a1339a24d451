"""The one thread that drives the engine, and the one lock of the project: an inbox of commands."""

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from twostroke.engine.engine import Engine
from twostroke.errors import TwostrokeError

logger = logging.getLogger("twostroke")
T = TypeVar("T")

CLOSED = "the model is closed: load it again to ask more"
FORKED = "the engine's thread stayed in the parent process: load the model after the fork"
EXIT_WAIT_S = 10.0  # at the end of the program; a step takes far less, a listener that blocks may take for ever
NUM_EXIT_LOOKS = 100  # within it: a process that was stopped meanwhile has lost one of them, not all its time
OWN_THREAD = (
    "this would wait for the engine on the engine's own thread, for ever: an on_event listener must hand over to "
    "another thread and return"
)


@dataclass(frozen=True, slots=True)
class _Call(Generic[T]):
    """A command on its way to the engine, and where its outcome goes."""

    command: Callable[[Engine], T]
    future: "Future[T]"

    def run(self, engine: Engine) -> None:
        try:
            self.future.set_result(self.command(engine))
        except BaseException as error:  # noqa: BLE001 - it is the caller's to see, whatever it is
            self.future.set_exception(error)


class Worker:
    """Runs commands between steps and steps while there is work; sleeps otherwise. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._inbox: deque[_Call[Any]] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self._process_id = os.getpid()
        self._thread = threading.Thread(target=self._loop, name="twostroke-engine", daemon=True)
        self._thread.start()
        atexit.register(self._end_with_program)

    def call(self, command: Callable[[Engine], T]) -> "Future[T]":
        """Run `command` on the engine's thread between two steps; never waits.

        Raises TwostrokeError once the worker is closed, and in a forked child.
        """
        if self._is_in_child():
            raise TwostrokeError(FORKED)
        future: Future[T] = Future()
        with self._changed:
            if self._is_closing:
                raise TwostrokeError(CLOSED)
            self._inbox.append(_Call(command, future))
            self._changed.notify()
        return future

    def ask(self, command: Callable[[Engine], T]) -> T:
        """The same, and wait for the outcome. Raises what `command` raises."""
        self._refuse_own_thread()
        return self.call(command).result()

    def close(self) -> None:
        """Cancel what runs and end the thread. May be called twice and by several threads."""
        self._refuse_own_thread()
        self.end()
        self._thread.join()

    def end(self) -> None:
        """The same without waiting, for any thread."""
        if self._is_in_child():  # whose copy of the lock may be held for ever
            return
        with self._changed:
            self._is_closing = True
            self._changed.notify()

    def _end_with_program(self) -> None:
        """Python ends threads by force while it shuts down, which native code on them does not survive."""
        self.end()
        for _ in range(NUM_EXIT_LOOKS):
            self._thread.join(EXIT_WAIT_S / NUM_EXIT_LOOKS)
            if not self._thread.is_alive():
                return

    def _is_in_child(self) -> bool:
        return os.getpid() != self._process_id

    def _refuse_own_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise TwostrokeError(OWN_THREAD)

    def _loop(self) -> None:
        try:
            while self._run_commands():
                self._step()
            self._engine.cancel_all()
        finally:  # also after a fault nobody foresaw: no caller may wait for a dead thread
            self._refuse_rest()
            atexit.unregister(self._end_with_program)

    def _run_commands(self) -> bool:
        """Wait for something to do, run what was asked; False when it is time to end."""
        with self._changed:
            while not (self._inbox or self._engine.has_work or self._is_closing):
                self._changed.wait()
            # swapped, not copied: a collected stream may call from within an allocation on this thread
            calls, self._inbox = self._inbox, deque()
            is_closing = self._is_closing
        for each in calls:
            each.run(self._engine)
        return not is_closing

    def _refuse_rest(self) -> None:
        with self._changed:
            self._is_closing = True
            calls, self._inbox = self._inbox, deque()
        for each in calls:
            each.future.set_exception(TwostrokeError(CLOSED))

    def _step(self) -> None:
        try:
            self._engine.step()
        except Exception as error:
            logger.exception("the engine failed; every running request ends with an error")
            self._engine.fail_all(error)
