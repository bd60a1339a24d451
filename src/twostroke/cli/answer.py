"""Follows one request from submit to its end, showing text as it comes. The first Ctrl-C ends the answer
and keeps what is there, a second one leaves at once."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import Protocol

from twostroke.core.event import Event, FinishEvent
from twostroke.core.report import Result


class Pending(Protocol):
    """What LLM.submit returns."""

    def cancel(self) -> None: ...

    def result(self, timeout_s: float | None = None) -> Result: ...


# Takes what Ctrl-C shall call in a stretch of the program.
OnInterrupt = Callable[[Callable[[], None]], AbstractContextManager[None]]


@contextmanager
def cancel_on_interrupt(cancel: Callable[[], None]) -> Iterator[None]:
    """SIGINT calls `cancel` once; after that Ctrl-C is KeyboardInterrupt again."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        cancel()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def follow(
    submit: Callable[[Callable[[Event], None]], Pending],
    write: Callable[[str], None],
    *,
    on_interrupt: OnInterrupt = cancel_on_interrupt,
) -> Result:
    """Write the answer's text piece by piece; the Result when it ended.

    A `write` that raises (a closed pipe) cancels the request before the error goes on.
    """
    events: SimpleQueue[Event] = SimpleQueue()
    pending = submit(events.put)
    with on_interrupt(pending.cancel):
        try:
            for text in _texts(events):
                write(text)
        except BaseException:
            pending.cancel()
            raise
    return pending.result()


def _texts(events: SimpleQueue[Event]) -> Iterator[str]:
    while True:
        event = events.get()
        if event.text:
            yield event.text
        if isinstance(event, FinishEvent):
            return
