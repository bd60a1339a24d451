"""What the processor is, and how many threads a model gets where nobody says: the physical cores it may use."""

import os
import platform
from collections.abc import Collection
from pathlib import Path

TOPOLOGY = Path("/sys/devices/system/cpu")
CGROUP = Path("/sys/fs/cgroup")


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The name of the processor: measurements of one are none of another."""
    for line in _text(cpuinfo).splitlines():
        if line.startswith(("model name", "CPU part")):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def usable_cores(topology: Path = TOPOLOGY, cgroup: Path = CGROUP) -> int:
    """Cores of the CPUs this process may run on, at most what a cgroup pays for, at least 1.

    Two threads of one core share its units, so a second one adds waiting and no speed; threads beyond a
    quota spin until the kernel stops them all.
    """
    return _paid_for(len({_core_of(cpu, topology) for cpu in _cpus()}), cgroup)


def usable_cpus(cgroup: Path = CGROUP) -> int:
    """CPUs this process may run on, at most what a cgroup pays for: more threads cannot run at the same time."""
    return _paid_for(len(_cpus()), cgroup)


def _cpus() -> Collection[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


def _paid_for(count: int, cgroup: Path) -> int:
    quota = _quota(cgroup)
    return count if quota is None else max(1, min(count, int(quota)))


def _core_of(cpu: int, topology: Path) -> str:
    """What names the core of a CPU: the list of its siblings, or the CPU itself where nothing is known."""
    return _text(topology / f"cpu{cpu}" / "topology" / "thread_siblings_list") or str(cpu)


def _quota(cgroup: Path) -> float | None:
    """Processors' worth of time the cgroup may use (version 2, else 1); None without a limit."""
    words = _text(cgroup / "cpu.max").split()
    if not words:
        parts = [_text(cgroup / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        words = [part for part in parts if part]
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) == 0:
        return None  # no cgroup, or "max", or -1
    return int(words[0]) / int(words[1])


def _text(path: Path) -> str:
    """What the file says, or nothing where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
