"""How often the machine itself stops a thread that hardly anything in it may stop: below that no promise can go.

    python bench/pauses.py [--seconds 10]

A thread of niceness -20, where that is allowed, looks at the clock without a break on each core in turn; where two
looks are far apart the core was somebody else's: another machine's on the same host, or the system's. Close other
programs first.
"""

import argparse
import contextlib
import os
import time
from collections.abc import Sequence

LEAST_S = 0.001  # a look takes a ten thousandth of it


def pauses(seconds: float) -> list[float]:
    """Of at least a millisecond, the longest first, in so many seconds shared out over the cores."""
    if not hasattr(os, "sched_setaffinity"):  # macOS: on whichever core it is
        return sorted(_pauses_here(seconds), reverse=True)
    found, cores, niceness = [], os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    for core in cores:
        os.sched_setaffinity(0, {core})
        found += _pauses_here(seconds / len(cores))
    os.sched_setaffinity(0, cores)
    os.setpriority(os.PRIO_PROCESS, 0, niceness)
    return sorted(found, reverse=True)


def _pauses_here(seconds: float) -> list[float]:
    found, now = [], time.perf_counter
    last_s = now()
    end_s = last_s + seconds
    while last_s < end_s:
        look_s = now()
        if look_s - last_s >= LEAST_S:
            found.append(look_s - last_s)
        last_s = look_s
    return found


def pauses_text(found: Sequence[float], *, seconds: float) -> str:
    """In one line."""
    if not found:
        return f"the machine paused no thread by 1 ms or more in {seconds:g} s"
    num_long = sum(pause_s >= 0.004 for pause_s in found)
    return (
        f"the machine paused a thread {len(found)} times by 1 ms or more in {seconds:g} s, {num_long} times "
        f"by 4 ms or more, {sum(found) / seconds:.1%} of the time, {found[0] * 1e3:.1f} ms at most"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Pauses of the machine itself.")
    parser.add_argument("--seconds", type=float, default=10.0)
    seconds = parser.parse_args().seconds
    print(pauses_text(pauses(seconds), seconds=seconds))


if __name__ == "__main__":
    main()
