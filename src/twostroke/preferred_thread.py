"""A thread that others wait for runs before those that compute: the event loop of a server, that of a load.

A thread that wakes while every core computes may wait for the scheduler's next tick, 4 ms on many systems: longer than
a token takes. Used by whoever runs an event loop on its own thread; nothing happens where the system does not allow it.
"""

import contextlib
import os
import sys
from collections.abc import Iterator

NICENESS = -10  # nine times the weight of a thread that nobody prefers


@contextlib.contextmanager
def preferred_thread() -> Iterator[None]:
    """Inside the block the calling thread is preferred; threads it starts are not.

    Linux, and only with the right to it: root, CAP_SYS_NICE, or a limit on niceness (systemd's LimitNICE=-10). A
    process that was started to be nice stays so.
    """
    if sys.platform != "linux" or os.getpriority(os.PRIO_PROCESS, 0) != 0:
        yield
        return
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)  # on Linux of a thread, not of its process
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
