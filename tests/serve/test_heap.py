"""The heap of a server. Looked at in processes of its own, whose threads and objects are known."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.builders import environment
from twostroke.serve.heap import MAX_ARENAS

NUM_THREADS = 6
# Threads that meet in malloc, all alive at once; then glibc's own count of its areas.
CROWD = """
import ctypes, sys, threading
from twostroke.serve.heap import use_few_arenas

libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fdopen.restype = ctypes.c_void_p
if sys.argv[1] == "few":
    use_few_arenas()
together = threading.Barrier(int(sys.argv[2]))

def allocate():
    together.wait()
    for _ in range(1000):
        libc.malloc(ctypes.c_size_t(2000))
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(int(sys.argv[2]))]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc.malloc_info(0, ctypes.c_void_p(libc.fdopen(1, b"w")))
libc.fflush(None)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="the C library is not glibc")
@pytest.mark.parametrize(("areas", "is_few"), [("few", True), ("many", False)])
def test_threads_share_areas_once_they_are_told_to(areas: str, is_few: bool, tmp_path: Path) -> None:

    program = [sys.executable, "-c", CROWD, areas, str(NUM_THREADS)]
    told = subprocess.run(program, env=environment(tmp_path), capture_output=True, text=True, check=True).stdout
    num_areas = told.count("<heap nr=")
    assert (num_areas <= MAX_ARENAS) is is_few, f"{num_areas} areas"


# What is there when models come and go is out of the collector's sight until they do again: then its rings are found.
COLLECTED = """
import gc, weakref
from twostroke.serve.heap import spare_what_stays

class Ring:
    def __init__(self):
        self.own = self

gc.disable()
ring = Ring()
is_gone = weakref.ref(ring)
spare_what_stays()
assert gc.get_freeze_count() > 1000, gc.get_freeze_count()
assert len(gc.get_objects()) < 100, len(gc.get_objects())
del ring
gc.collect()
assert is_gone() is not None
spare_what_stays()
assert is_gone() is None
"""


def test_a_collection_looks_at_what_is_new_alone_until_models_come_or_go(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COLLECTED], env=environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
