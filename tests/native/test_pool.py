"""Threads that meet: every item is done once per round, failures end a run and not the pool, sleepers wake."""

import os
import subprocess
import sys
import time

import pytest

from twostroke import _native

THREADS = (1, 2, 3, 5)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("num_items", [0, 1, 2, 7, 64, 1000])
def test_every_item_is_done_once_per_round(threads: int, num_items: int) -> None:
    pool = _native.Pool(threads)
    assert pool.count_shares(num_items, 20, -1) == [20] * num_items


def test_many_barriers_in_many_runs() -> None:
    pool = _native.Pool(2)
    for _ in range(50):
        assert pool.count_shares(3, 100, -1) == [100] * 3


@pytest.mark.parametrize("threads", THREADS)
def test_threads_still_wait_for_each_other_when_the_count_of_runs_wraps(threads: int) -> None:
    pool = _native.Pool(threads, num_past_runs=2**32 - 3)
    for _ in range(6):
        assert pool.count_shares(7, 200, -1) == [200] * 7


@pytest.mark.parametrize("threads", THREADS)
def test_an_exception_on_any_thread_reaches_the_caller_and_the_pool_goes_on(threads: int) -> None:
    pool = _native.Pool(threads)
    for thrower in range(threads):
        with pytest.raises(RuntimeError, match="as asked"):
            pool.count_shares(10, 6, thrower)
        assert pool.count_shares(10, 6, -1) == [6] * 10


@pytest.mark.parametrize("threads", THREADS)
def test_a_run_may_have_fewer_threads_than_the_pool(threads: int) -> None:
    pool = _native.Pool(threads)
    for num_workers in (*range(1, threads + 2), 0):
        running = num_workers if 0 < num_workers < threads else threads
        assert pool.find_workers(num_workers) == [running] * running + [0] * (threads - running)
        assert pool.count_shares(7, 50, -1, num_workers=num_workers) == [50] * 7
        assert pool.count_shares(7, 50, -1) == [50] * 7


def test_what_a_thread_did_is_not_taken_for_done_once_the_marks_of_runs_repeat() -> None:
    pool = _native.Pool(2)
    assert pool.count_shares(8, 1, -1) == [1] * 8
    for _ in range(2**12 - 1):
        pool.count_shares(8, 1, -1, num_workers=1)
    assert pool.count_shares(8, 1, -1) == [1] * 8


@pytest.mark.parametrize("threads", THREADS)
def test_threads_without_a_part_wait_for_nobody_and_nobody_for_them(threads: int) -> None:
    pool = _native.Pool(threads)
    for round_ in range(300):
        assert pool.count_shares(5, 3, -1, num_workers=1 + round_ % threads) == [3] * 5
        if round_ % 100 == 50:
            time.sleep(0.002)  # they fall asleep
    with pytest.raises(RuntimeError, match="as asked"):
        pool.count_shares(10, 6, 0, num_workers=1)
    assert pool.count_shares(10, 6, -1) == [6] * 10


def test_threads_that_fell_asleep_wake_up() -> None:
    pool = _native.Pool(3)
    for _ in range(3):
        assert pool.count_shares(9, 2, -1) == [2] * 9
        time.sleep(0.005)


def test_an_idle_pool_uses_no_processor_time() -> None:
    pool = _native.Pool(4)
    pool.count_shares(4, 4, -1)
    time.sleep(0.02)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.05
    assert pool.num_threads == 4


def test_a_pool_without_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one thread"):
        _native.Pool(0)


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_told_and_can_end() -> None:
    pool = _native.Pool(2)
    pool.count_shares(2, 2, -1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            pool.count_shares(2, 2, -1)
        except RuntimeError as error:
            code = 0 if "after the fork" in str(error) else 2
        del pool
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.count_shares(2, 2, -1) == [2, 2]


def test_more_threads_than_processors_still_finish() -> None:
    assert _native.Pool(12).count_shares(50, 10, -1) == [10] * 50


def test_a_pool_that_gets_too_few_threads_says_so_and_leaves_none_behind() -> None:
    code = """
import resource
from twostroke import _native
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
try:
    _native.Pool(1000)
except RuntimeError as error:
    print(error)
print(open("/proc/self/status").read().split("Threads:")[1].split()[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    said, num_threads = done.stdout.splitlines()
    assert "of 1000 threads" in said
    assert "ask for fewer" in said
    assert num_threads == "1"
