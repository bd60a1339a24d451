"""Priority of threads, looked at in threads of the test's own: nothing of it is left behind."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from twostroke.preferred_thread import NICENESS, preferred_thread

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="niceness of threads is Linux's")


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def in_thread(work: Callable[[], None]) -> None:
    """Do it in a thread of its own; raises what it raised."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        executor.submit(work).result()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the system is asked for; it allows everything and does nothing."""
    found: list[int] = []
    monkeypatch.setattr(os, "setpriority", lambda which, who, value: found.append(value))
    return found


def may_prefer() -> bool:
    before, allowed = niceness(), True

    def work() -> None:
        nonlocal allowed
        try:
            os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
        except PermissionError:
            allowed = False

    in_thread(work)
    return allowed and before == 0


def test_the_thread_alone_is_preferred_and_only_inside() -> None:
    if not may_prefer():
        pytest.skip("this process has no right to it")

    def work() -> None:
        started: list[int] = []
        with preferred_thread():
            assert niceness() == NICENESS
            in_thread(lambda: started.append(niceness()))
        assert niceness() == 0
        assert started == [0]

    in_thread(work)
    assert niceness() == 0


def test_without_the_right_to_it_everything_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(which: int, who: int, value: int) -> None:
        if value < 0:
            raise PermissionError

    def work() -> None:
        with preferred_thread():
            assert niceness() == 0

    monkeypatch.setattr(os, "setpriority", refuse)
    in_thread(work)


def test_who_was_started_to_be_nice_stays_so(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpriority", lambda which, who: 5)
    with preferred_thread():
        pass
    assert asked == []


def test_other_systems_are_asked_for_nothing(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with preferred_thread():
        pass
    assert asked == []


def test_an_error_inside_ends_it_too(asked: list[int]) -> None:
    def work() -> None:
        with pytest.raises(ZeroDivisionError), preferred_thread():
            raise ZeroDivisionError
        assert asked == [NICENESS, 0]

    in_thread(work)
