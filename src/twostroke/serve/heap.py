"""The memory of a server's process: the C library's areas, and what Python's collector looks at.

Set by the command line; never by the library, whose process is somebody else's.
"""

import ctypes
import gc

_M_ARENA_MAX = -8  # malloc.h of glibc
MAX_ARENAS = 2


def use_few_arenas() -> None:
    """Have all threads share `MAX_ARENAS` areas of memory. Before any thread starts.

    glibc gives a thread that meets another in malloc an area of its own, up to eight per core, and what is free in one
    serves no other: a dozen threads in turn made each area as large as the busiest moment it saw, and half of that
    memory lay idle. Python's lock keeps all but a few of them out of malloc at once anyhow. A C library without such
    areas is left as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, MAX_ARENAS)


def spare_what_stays() -> None:
    """Collect what nothing holds any more, and keep what stays out of later collections.

    Python looks at every object there is when enough new ones have stayed: 60 ms with a model loaded, in which it lets
    no thread go on and every answer waits. So all objects are looked at only here, when models come and go, and later
    only those that were made since.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
