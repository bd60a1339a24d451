"""The threads of a real server: the one that talks to clients is preferred where that is allowed, and no other."""

import os
import sys
from pathlib import Path

import pytest

from tests.builders_llm import write_puppet
from tests.e2e.server_process import running_server
from tests.e2e.test_serve_model import TWOSTROKE
from tests.test_preferred_thread import policy_that_is_allowed
from twostroke.preferred_thread import NICENESS

NICE_FIELD, POLICY_FIELD = 16, 38  # of those behind the name, in proc(5)


def priority_of_threads(pid: int) -> dict[int, tuple[int, int]]:
    """Policy and niceness by thread id, of a running process."""
    found: dict[int, tuple[int, int]] = {}
    for folder in Path(f"/proc/{pid}/task").iterdir():
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        found[int(folder.name)] = int(fields[POLICY_FIELD]), int(fields[NICE_FIELD])
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="priority of threads is Linux's")
def test_the_event_loop_is_preferred_and_threads_that_compute_are_not(tmp_path: Path) -> None:
    if (allowed := policy_that_is_allowed()) is None:
        pytest.skip("this process has no right to it")
    policy = allowed & ~os.SCHED_RESET_ON_FORK
    files = [str(write_puppet(tmp_path / name, context=512)) for name in ("a.gguf", "b.gguf")]
    with running_server([*TWOSTROKE, "serve", "-m", files[0], "-m", files[1], "--port", "0", "--threads", "2"]) as one:
        for name in ("a.gguf", "b.gguf"):  # the other is loaded by its request, on a thread that the event loop starts
            reply = one.post("/v1/completions", {"model": name, "prompt": "hi", "max_tokens": 3})
            assert reply["usage"]["completion_tokens"] > 0
        found = priority_of_threads(one.process.pid)
        assert found.pop(one.process.pid) == (policy, 0 if policy == os.SCHED_RR else NICENESS)
        assert len(found) >= 4
        assert set(found.values()) == {(os.SCHED_OTHER, 0)}
