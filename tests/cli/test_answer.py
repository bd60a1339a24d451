"""An answer is shown as it comes; Ctrl-C ends it once, a closed pipe ends it at once."""

import os
import signal
import threading
from collections.abc import Callable

import pytest

from tests.cli.builders import press_ctrl_c_once_caught
from tests.view.builders import make_result
from twostroke.cli.answer import cancel_on_interrupt, follow
from twostroke.core.account import Account
from twostroke.core.event import Event, FinishEvent, KVUsage, Timing, TokenEvent, Usage
from twostroke.core.report import Result
from twostroke.core.sequence import FinishReason


def token(text: str) -> TokenEvent:
    return TokenEvent(request_id="1", token_id=5, text=text, time_s=0.0)


def finish(text: str = "", *, reason: FinishReason = FinishReason.STOP) -> FinishEvent:
    return FinishEvent(
        request_id="1",
        reason=reason,
        text=text,
        usage=Usage(1, 0, 1),
        timing=Timing(None, None, 0.0, None),
        kv=KVUsage(0, 0, 0, 0.0),
        account=Account(request_id="1", arrival_s=0.0, before={}),
        seed=0,
    )


class Scripted:
    """A request whose events are written down; the last, endless one waits for cancel."""

    def __init__(self, *events: Event, waits_for_cancel: bool = False) -> None:
        self.events = events
        self.waits_for_cancel = waits_for_cancel
        self.num_cancels = 0
        self._cancelled = threading.Event()

    def submit(self, on_event: Callable[[Event], None]) -> "Scripted":
        threading.Thread(target=self._play, args=(on_event,), daemon=True).start()
        return self

    def _play(self, on_event: Callable[[Event], None]) -> None:
        for event in self.events:
            on_event(event)
        if self.waits_for_cancel:
            self._cancelled.wait(10)
            on_event(finish(" cut", reason=FinishReason.CANCELLED))

    def cancel(self) -> None:
        self.num_cancels += 1
        self._cancelled.set()

    def result(self, timeout_s: float | None = None) -> Result:
        return make_result(finish_reason=FinishReason.CANCELLED if self.num_cancels else FinishReason.STOP)


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_text_is_written_piece_by_piece() -> None:
    written: list[str] = []
    result = follow(Scripted(token("The "), token(""), token("sky"), finish(".")).submit, written.append)
    assert written == ["The ", "sky", "."]
    assert result.finish_reason is FinishReason.STOP


def test_ctrl_c_cancels_and_shows_what_is_there() -> None:
    written: list[str] = []
    scripted = Scripted(token("some"), waits_for_cancel=True)

    def write(text: str) -> None:
        written.append(text)
        if text == "some":
            press_ctrl_c()

    result = follow(scripted.submit, write)
    assert written == ["some", " cut"]
    assert scripted.num_cancels == 1
    assert result.finish_reason is FinishReason.CANCELLED


def test_ctrl_c_before_the_first_token_cancels_too() -> None:
    scripted = Scripted(waits_for_cancel=True)
    pressing = press_ctrl_c_once_caught()
    assert follow(scripted.submit, lambda text: None).finish_reason is FinishReason.CANCELLED
    pressing.join()


def test_a_second_ctrl_c_leaves() -> None:
    scripted = Scripted(token("some"), waits_for_cancel=True)

    def write(text: str) -> None:
        press_ctrl_c()
        press_ctrl_c()

    with pytest.raises(KeyboardInterrupt):
        follow(scripted.submit, write)


def test_a_closed_pipe_cancels_the_request() -> None:
    scripted = Scripted(token("some"), waits_for_cancel=True)

    def write(text: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        follow(scripted.submit, write)
    assert scripted.num_cancels == 1


def test_the_signal_handler_is_given_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    follow(Scripted(finish("done")).submit, lambda text: None)
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(ZeroDivisionError), cancel_on_interrupt(lambda: None):
        _ = 1 / 0
    assert signal.getsignal(signal.SIGINT) is before
