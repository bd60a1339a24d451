"""Ctrl-C reaches whoever listens, at any moment. A SIGINT that another thread gets is one Python alone would sleep
through: the main thread, waiting in C, is never woken."""

import signal
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from tests.cli.terminal import typing_to
from twostroke.cli.interrupts import POKE, Interrupts, interrupt

PATIENCE_S = 60.0

EDITOR = """
import readline, signal, sys, threading
from twostroke.cli.interrupts import Interrupts, interrupt

def press():
    # Beside the main thread, which sleeps in the line editor by then.
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

interrupts = Interrupts()
with interrupts.heard():
    for i in range(int(sys.argv[1])):
        if sys.argv[2] == "beside":
            threading.Timer(0.2, press).start()
        try:
            with interrupts.calling(interrupt):
                input(f"line {i}: ")
        except KeyboardInterrupt:
            print(f"pressed {i}", flush=True)
print("left", flush=True)
"""


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    made = Interrupts()
    with made.heard():
        yield made


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def press_beside_the_main_thread() -> None:
    def press_here() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    threading.Timer(0.05, press_here).start()


def test_a_wait_in_c_ends_whichever_thread_got_the_signal(interrupts: Interrupts) -> None:
    events: SimpleQueue[str] = SimpleQueue()
    with interrupts.calling(lambda: events.put("stopped")):
        press_beside_the_main_thread()
        assert events.get(timeout=PATIENCE_S) == "stopped"


def test_a_listener_that_raises_is_interrupted_where_it_waits(interrupts: Interrupts) -> None:
    press_beside_the_main_thread()
    with pytest.raises(KeyboardInterrupt), interrupts.calling(interrupt):
        SimpleQueue[str]().get(timeout=PATIENCE_S)


def test_a_press_that_nobody_listened_to_waits_for_the_next_listener(interrupts: Interrupts) -> None:
    """And is theirs alone."""
    acts: SimpleQueue[str] = SimpleQueue()
    press()
    for name in ("first", "second"):
        with interrupts.calling(lambda name=name: acts.put(name)):  # type: ignore[misc]
            if name == "first":
                assert acts.get(timeout=PATIENCE_S) == "first"
    assert acts.empty()


def test_the_second_press_is_the_next_listeners(interrupts: Interrupts) -> None:
    acts: SimpleQueue[str] = SimpleQueue()
    with interrupts.calling(lambda: acts.put("answer")):
        press()
        assert acts.get(timeout=PATIENCE_S) == "answer"
        press()
        assert acts.empty()
    with pytest.raises(KeyboardInterrupt), interrupts.calling(interrupt):
        SimpleQueue[str]().get(timeout=PATIENCE_S)


def test_outside_of_listeners_nothing_is_raised(interrupts: Interrupts) -> None:
    for _ in range(100):
        press()


def test_other_signals_are_no_presses(interrupts: Interrupts) -> None:
    with interrupts.calling(interrupt):
        signal.raise_signal(POKE)


def test_afterwards_all_is_as_it_was() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(POKE), threading.active_count()
    with Interrupts().heard():
        assert threading.active_count() == before[2] + 1
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(POKE), threading.active_count()) == before
    assert signal.set_wakeup_fd(-1) == -1
    with pytest.raises(KeyboardInterrupt):
        press()


def test_the_line_editor_hears_a_signal_that_another_thread_got() -> None:
    pytest.importorskip("readline")
    with typing_to([sys.executable, "-c", EDITOR, "3", "beside"]) as typist:
        typist.wait_for(b"pressed 2")
        typist.wait_for(b"left")


def test_the_line_editor_hears_ctrl_c_while_it_draws_a_key() -> None:
    """Each press follows its key at once, when the editor still writes its echo and looks for no signals."""
    pytest.importorskip("readline")
    with typing_to([sys.executable, "-c", EDITOR, "40", "typed"]) as typist:
        for i in range(40):
            typist.wait_for(b"line %d: " % i)
            typist.type(b"key")
            typist.wait_for(b"line %d: key" % i)
            typist.type(b"\x03")
            typist.wait_for(b"pressed %d\r" % i)
        typist.wait_for(b"left")
