"""Time, read in one place: the wall clock of the engine and the virtual one of tests."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Seconds on a monotonic scale."""

    def now(self) -> float: ...


class WallClock:
    """The process's one monotonic clock."""

    def now(self) -> float:
        return time.perf_counter()


class VirtualClock:
    """A clock that moves only when told to."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now(self) -> float:
        return self._now_s

    def advance(self, duration_s: float) -> None:
        """Move forward; time never runs back."""
        assert duration_s >= 0, duration_s
        self._now_s += duration_s


def cpu_time_s() -> float:
    """Seconds of processor time this process has used, over all threads."""
    return time.process_time()


def local_time() -> datetime:
    """Date and time of day where the process runs, for texts that mention them."""
    return datetime.now()


def utc_time() -> datetime:
    """Date and time of day in UTC, for records that leave the process; never for durations."""
    return datetime.now(UTC)


def unix_time_s() -> int:
    """Seconds since 1970, for records that leave the process; never for durations."""
    return int(time.time())
