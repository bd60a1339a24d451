"""Priority of threads, looked at in threads of the test's own: nothing of it is left behind."""

import errno
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


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that nobody chose anything for, whatever shell these tests run in."""
    monkeypatch.setattr(os, "getpriority", lambda which, who: 0)
    monkeypatch.setattr(os, "sched_getscheduler", lambda who: os.SCHED_OTHER)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("call", ["getpriority", "sched_getscheduler", "setpriority", "sched_setscheduler"])
@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS, errno.EINVAL, None])
def test_a_system_that_refuses_is_asked_no_more_and_everything_goes_on(
    call: str, error: int | None, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the right; musl; gVisor; a Python without the call."""

    def refuse(*facts: object) -> None:
        raise OSError(error, "refused")

    if error is None:
        monkeypatch.delattr(os, call)
    else:
        monkeypatch.setattr(os, call, refuse)
    with preferred_thread():
        asked_inside = list(asked)
    assert asked == asked_inside
    assert asked == ([NICENESS, 0] if call == "sched_setscheduler" else [])


@pytest.mark.usefixtures("asked")
def test_an_end_that_is_refused_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    niceness_now = iter([0, NICENESS])
    monkeypatch.setattr(os, "getpriority", lambda which, who: next(niceness_now))
    monkeypatch.setattr(os, "sched_getscheduler", lambda who: os.SCHED_OTHER)
    flags = iter([None, PermissionError()])

    def once(*facts: object) -> None:
        if (error := next(flags)) is not None:
            raise error

    monkeypatch.setattr(os, "sched_setscheduler", once)
    with preferred_thread():
        pass
    assert next(flags, "both were asked for") == "both were asked for"


def test_who_was_given_a_niceness_or_a_scheduler_keeps_it(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    for niceness_then, scheduler in ((5, os.SCHED_OTHER), (0, os.SCHED_IDLE), (0, os.SCHED_FIFO)):
        monkeypatch.setattr(os, "getpriority", lambda which, who, given=niceness_then: given)
        monkeypatch.setattr(os, "sched_getscheduler", lambda who, given=scheduler: given)
        with preferred_thread():
            pass
    assert asked == []


def test_who_is_made_nice_meanwhile_stays_so(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    niceness_now = iter([0, 5])
    monkeypatch.setattr(os, "getpriority", lambda which, who: next(niceness_now))
    monkeypatch.setattr(os, "sched_getscheduler", lambda who: os.SCHED_OTHER)
    monkeypatch.setattr(os, "sched_setscheduler", lambda *facts: None)
    with preferred_thread():
        pass
    assert asked == [NICENESS]


def test_other_systems_are_asked_for_nothing(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with preferred_thread():
        pass
    assert asked == []


def test_an_error_inside_ends_it_too(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    niceness_now = iter([0, NICENESS])
    monkeypatch.setattr(os, "getpriority", lambda which, who: next(niceness_now))
    monkeypatch.setattr(os, "sched_getscheduler", lambda who: os.SCHED_OTHER)
    monkeypatch.setattr(os, "sched_setscheduler", lambda *facts: None)
    with pytest.raises(ZeroDivisionError), preferred_thread():
        raise ZeroDivisionError
    assert asked == [NICENESS, 0]
