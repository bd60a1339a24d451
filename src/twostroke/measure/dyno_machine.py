"""What the machine does without a model: reads by size and threads, and reads from the disk."""

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from twostroke import _native
from twostroke.core.clock import Clock
from twostroke.measure.peaks import Probe, best_rate

SIZES = (1 << 20, 8 << 20, 64 << 20, 256 << 20)  # bytes: caches near and far, then memory
READ_BUDGET_S = 0.05
DISK_BUDGET_S = 0.4
DISK_PIECE = 4 << 20


@dataclass(frozen=True, slots=True)
class ReadRate:
    """Best rate of reading a buffer of `num_bytes` over and over."""

    num_bytes: int
    threads: int
    bytes_per_s: float


def thread_counts(most: int) -> tuple[int, ...]:
    """1, 2, 4, ... and `most`: what is worth a measurement of its own."""
    counts = [1]
    while counts[-1] * 2 < most:
        counts.append(counts[-1] * 2)
    return tuple(dict.fromkeys([*counts, most]))


def read_rates(
    *, isa: str, threads: int, clock: Clock, new_probe: Callable[[str, int, int], Probe] = _native.Probe
) -> tuple[ReadRate, ...]:
    """Read bandwidth by size and by threads."""
    rates = []
    for count in thread_counts(threads):
        for size in SIZES:
            probe = new_probe(isa, count, size)
            rates.append(ReadRate(size, count, best_rate(probe.read, clock, budget_s=READ_BUDGET_S)))
    return tuple(rates)


def disk_rate(path: Path, *, clock: Clock) -> float | None:
    """Bytes per second of reading a file past the page cache; None where the system cannot."""
    if not hasattr(os, "O_DIRECT"):
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return None
    buffer = mmap.mmap(-1, DISK_PIECE)  # page-aligned, as direct reads ask for
    try:
        start_s, total = clock.now(), 0
        while clock.now() - start_s < DISK_BUDGET_S:
            num_read = os.preadv(descriptor, [buffer], total)
            total += num_read
            if num_read < DISK_PIECE:
                break
        elapsed_s = clock.now() - start_s
        return total / elapsed_s if total and elapsed_s > 0 else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
        buffer.close()
