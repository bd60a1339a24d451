"""A thread that others wait for runs before those that compute: the event loop of a server, that of a load.

A thread that wakes while every core computes may wait for the scheduler's next tick, 4 ms on many systems: longer than
a token takes. Used by whoever runs an event loop on its own thread; nothing happens where the system does not allow it.
"""

import contextlib
import os
import sys
from collections.abc import Iterator

if sys.platform == "linux":
    import resource

NICENESS = -10  # nine times the weight of a thread that nobody prefers
REAL_TIME = 1  # the lowest priority of real time: before every thread that has none, behind whoever needs it more


@contextlib.contextmanager
def preferred_thread() -> Iterator[None]:
    """Inside the block the calling thread is preferred; threads it starts are not.

    Linux, and only with the right to it: by real time with CAP_SYS_NICE or a limit (systemd's LimitRTPRIO=1), where
    others find another core; else by niceness (LimitNICE=-10). A niceness still waits for a tick now and then: who ran
    a moment ago has to let others have theirs. A process with a niceness or a scheduler that somebody chose keeps it.
    """
    is_preferred = _prefer()
    try:
        yield
    finally:
        if is_preferred:
            with contextlib.suppress(OSError):
                _leave()


def _prefer() -> bool:
    """Whether the system did it. Sandboxes and C libraries refuse in many ways: each is a no, and leaves nothing."""
    if sys.platform != "linux":
        return False
    try:
        if os.getpriority(os.PRIO_PROCESS, 0) != 0 or os.sched_getscheduler(0) != os.SCHED_OTHER:
            return False
        if _may_be_real_time():
            with contextlib.suppress(OSError):
                _schedule(os.SCHED_RR, priority=REAL_TIME)
                return True
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)  # on Linux of a thread, not of its process
    except (OSError, AttributeError):
        return False
    try:
        _schedule(os.SCHED_OTHER)
    except OSError:  # threads that it starts would be preferred too
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        return False
    return True


def _may_be_real_time() -> bool:
    """Not where it would be alone on the only core, and not where the system kills who computes longer than a limit."""
    if sys.platform != "linux":
        return False
    limit_us, _ = resource.getrlimit(resource.RLIMIT_RTTIME)
    return len(os.sched_getaffinity(0)) > 1 and limit_us == resource.RLIM_INFINITY


def _schedule(policy: int, *, priority: int = 0) -> None:
    """The calling thread alone: what it starts begins as if nobody had chosen anything."""
    os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, os.sched_param(priority))


def _leave() -> None:
    """As it was, unless somebody changed it meanwhile."""
    if sys.platform != "linux":
        return
    is_real_time = os.sched_getscheduler(0) == os.SCHED_RR | os.SCHED_RESET_ON_FORK
    if is_real_time or os.getpriority(os.PRIO_PROCESS, 0) == NICENESS:
        _schedule(os.SCHED_OTHER)
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))  # needs more of a right than the lines above
