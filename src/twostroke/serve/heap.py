"""The C library's heap of a server's process.

Called by the command line before any thread starts; never by the library, whose process is somebody else's.
"""

import ctypes

_M_ARENA_MAX = -8  # malloc.h of glibc
MAX_ARENAS = 2


def use_few_arenas() -> None:
    """Have all threads share `MAX_ARENAS` areas of memory.

    glibc gives a thread that meets another in malloc an area of its own, up to eight per core, and what is free in one
    serves no other: a dozen threads in turn made each area as large as the busiest moment it saw, and half of that
    memory lay idle. Python's lock keeps all but a few of them out of malloc at once anyhow. A C library without such
    areas is left as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, MAX_ARENAS)
