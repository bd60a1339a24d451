"""Priority of threads, looked at in threads of the test's own: nothing of it is left behind."""

import errno
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from twostroke.preferred_thread import NICENESS, REAL_TIME, preferred_thread

if sys.platform == "linux":
    import resource

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="priority of threads is Linux's")


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def in_thread(work: Callable[[], None]) -> None:
    """Do it in a thread of its own; raises what it raised."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        executor.submit(work).result()


REAL_TIME_ALONE = os.SCHED_RR | os.SCHED_RESET_ON_FORK if sys.platform == "linux" else 0
OTHER_ALONE = os.SCHED_OTHER | os.SCHED_RESET_ON_FORK if sys.platform == "linux" else 0


class System:
    """A system that writes down what it is asked for, and allows what it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, allows_real_time: bool) -> None:
        self.niceness, self.policy = 0, 0
        self.asked: list[int | tuple[int, int]] = []
        self._allows_real_time = allows_real_time
        monkeypatch.setattr(os, "sched_getaffinity", lambda who: {0, 1})
        monkeypatch.setattr(resource, "getrlimit", lambda limit: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        monkeypatch.setattr(os, "getpriority", lambda which, who: self.niceness)
        monkeypatch.setattr(os, "setpriority", self._set_niceness)
        monkeypatch.setattr(os, "sched_getscheduler", lambda who: self.policy)
        monkeypatch.setattr(os, "sched_setscheduler", self._set_policy)

    def _set_niceness(self, which: int, who: int, value: int) -> None:
        self.asked.append(value)
        self.niceness = value

    def _set_policy(self, who: int, policy: int, param: os.sched_param) -> None:
        if policy == REAL_TIME_ALONE and not self._allows_real_time:
            raise PermissionError(errno.EPERM, "refused")
        self.asked.append((policy, param.sched_priority))
        self.policy = policy


@pytest.fixture
def generous(monkeypatch: pytest.MonkeyPatch) -> System:
    return System(monkeypatch, allows_real_time=True)


@pytest.fixture
def stingy(monkeypatch: pytest.MonkeyPatch) -> System:
    """Niceness is allowed, real time is not."""
    return System(monkeypatch, allows_real_time=False)


def policy_that_is_allowed() -> int | None:
    """What the system itself allows this very process, asked without the code under test; None where nothing is."""
    if niceness() != 0:
        return None
    is_free = (
        len(os.sched_getaffinity(0)) > 1 and resource.getrlimit(resource.RLIMIT_RTTIME)[0] == resource.RLIM_INFINITY
    )
    if is_free and is_allowed(lambda: os.sched_setscheduler(0, REAL_TIME_ALONE, os.sched_param(REAL_TIME))):
        return REAL_TIME_ALONE
    is_nice = is_allowed(lambda: os.setpriority(os.PRIO_PROCESS, 0, NICENESS))
    return OTHER_ALONE if is_nice else None


def is_allowed(ask: Callable[[], None]) -> bool:
    try:
        in_thread(ask)
    except PermissionError:
        return False
    return True


def test_the_thread_alone_is_preferred_and_only_inside() -> None:
    if (allowed := policy_that_is_allowed()) is None:
        pytest.skip("this process has no right to it")

    def work() -> None:
        started: list[tuple[int, int]] = []
        with preferred_thread():
            assert os.sched_getscheduler(0) == allowed
            assert niceness() == (0 if allowed == REAL_TIME_ALONE else NICENESS)
            in_thread(lambda: started.append((os.sched_getscheduler(0), niceness())))
        assert (os.sched_getscheduler(0), niceness()) == (os.SCHED_OTHER, 0)
        assert started == [(os.SCHED_OTHER, 0)]

    in_thread(work)
    assert (os.sched_getscheduler(0), niceness()) == (os.SCHED_OTHER, 0)


def test_real_time_is_asked_for_first_and_given_back(generous: System) -> None:
    with preferred_thread():
        assert generous.asked == [(REAL_TIME_ALONE, REAL_TIME)]
    assert generous.asked[1:] == [(OTHER_ALONE, 0), 0, (os.SCHED_OTHER, 0)]


def test_without_it_niceness_is(stingy: System) -> None:
    with preferred_thread():
        assert stingy.asked == [NICENESS, (OTHER_ALONE, 0)]
    assert stingy.asked[2:] == [(OTHER_ALONE, 0), 0, (os.SCHED_OTHER, 0)]


def test_the_only_core_is_not_taken_from_others(generous: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda who: {3})
    with preferred_thread():
        assert generous.asked == [NICENESS, (OTHER_ALONE, 0)]


def test_who_would_be_killed_for_computing_long_is_nice(generous: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (200_000, resource.RLIM_INFINITY))
    with preferred_thread():
        assert generous.asked == [NICENESS, (OTHER_ALONE, 0)]


@pytest.mark.parametrize("call", ["getpriority", "sched_getscheduler", "setpriority", "sched_setscheduler"])
@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS, errno.EINVAL, None])
def test_a_system_that_refuses_is_asked_no_more_and_everything_goes_on(
    call: str, error: int | None, stingy: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the right; musl; gVisor; a Python without the call."""

    def refuse(*facts: object) -> None:
        raise OSError(error, "refused")

    if error is None:
        monkeypatch.delattr(os, call)
    else:
        monkeypatch.setattr(os, call, refuse)
    with preferred_thread():
        asked_inside = list(stingy.asked)
    assert stingy.asked == asked_inside
    assert stingy.asked == ([NICENESS, 0] if call == "sched_setscheduler" and error is not None else [])


def test_an_end_that_is_refused_is_none(stingy: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of it takes more of a right than all before."""
    with preferred_thread():
        schedule = os.sched_setscheduler

        def refuse_last(who: int, policy: int, param: os.sched_param) -> None:
            if policy == os.SCHED_OTHER:
                raise PermissionError(errno.EPERM, "refused")
            schedule(who, policy, param)

        monkeypatch.setattr(os, "sched_setscheduler", refuse_last)
    assert (stingy.niceness, stingy.policy) == (0, OTHER_ALONE)


def test_who_was_given_a_niceness_or_a_scheduler_keeps_it(generous: System) -> None:
    for generous.niceness, generous.policy in ((5, os.SCHED_OTHER), (0, os.SCHED_IDLE), (0, os.SCHED_FIFO)):
        with preferred_thread():
            pass
    assert generous.asked == []


def test_who_is_changed_meanwhile_stays_so(stingy: System, monkeypatch: pytest.MonkeyPatch) -> None:
    with preferred_thread():
        stingy.niceness = 5
    assert stingy.asked == [NICENESS, (OTHER_ALONE, 0)]
    generous = System(monkeypatch, allows_real_time=True)
    with preferred_thread():
        generous.policy = os.SCHED_BATCH
    assert generous.asked == [(REAL_TIME_ALONE, REAL_TIME)]


def test_other_systems_are_asked_for_nothing(generous: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with preferred_thread():
        pass
    assert generous.asked == []


def test_an_error_inside_ends_it_too(generous: System) -> None:
    with pytest.raises(ZeroDivisionError), preferred_thread():
        raise ZeroDivisionError
    assert generous.policy == os.SCHED_OTHER
