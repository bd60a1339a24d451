"""The machine's peak rates: a short probe (at most half a second), cached per CPU, threads, ISA and buffer size.

Neighbours and other programs only ever make a probe slower, so the best rates of several processes count:
the first few runs probe, later ones only when a phase went faster than the peaks. Called by doors after an
answer, so that it delays nothing. Where the cache cannot be written it measures every time, and says so.
"""

import dataclasses
import hashlib
import json
import logging
import math
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from twostroke import _native
from twostroke.core.clock import Clock, WallClock
from twostroke.core.peaks import Peaks
from twostroke.engine.cores import cpu_model

logger = logging.getLogger("twostroke")

VERSION = 3  # of the probe and its file: a change makes cached peaks stale
NUM_PROBES = 3  # runs apart from each other: one of them meets a machine that is not busy
UNIT_BUDGET_S = 0.06  # three units and the reads stay below half a second
READ_BUDGET_S = 0.2
MIN_READ_BYTES = 1 << 20  # a smaller model lives in the caches, and is judged by their rate
MAX_READ_BYTES = 256 << 20  # touching more than this would itself take longer than the probe may
RATES = ("int8_ops_per_s", "bf16_ops_per_s", "fp32_ops_per_s", "read_bytes_per_s")
ROUNDS = 100_000  # about half a millisecond on a fast core: many runs fit the budget, starting threads does not count


class Probe(Protocol):
    """What is timed: amounts of work on all threads at once. _native.Probe, or a double in tests."""

    def compute(self, unit: str, rounds: int, /) -> int: ...  # operations done
    def read(self) -> int: ...  # bytes read


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """What the file holds: the best rates of so many probes."""

    peaks: Peaks
    num_probes: int


def ensure_peaks(
    *,
    home: Path,
    isa: str,
    threads: int,
    weight_bytes: int,
    are_beaten: Callable[[Peaks], bool] = lambda peaks: False,
    clock: Clock | None = None,
    new_probe: Callable[[str, int, int], Probe] = _native.Probe,
) -> Peaks:
    """The best rates known for this machine and these settings, with at most one probe.

    It is made while fewer than NUM_PROBES are known, and when `are_beaten` says that the known peaks are too low.
    """
    read_bytes = _read_bytes(weight_bytes)
    path = _cache_path(home, isa=isa, threads=threads, read_bytes=read_bytes)
    known = _load(path)
    if known is not None and known.num_probes >= NUM_PROBES and not are_beaten(known.peaks):
        return known.peaks
    probe = new_probe(isa, threads, read_bytes)
    measured = Known(measure_peaks(probe, isa=isa, threads=threads, clock=clock or WallClock()), num_probes=1)
    best = measured if known is None else _best(known, measured)
    _store(path, best)
    return best.peaks


def known_peaks(*, home: Path, isa: str, threads: int, weight_bytes: int) -> Peaks | None:
    """What earlier runs have found, without a probe that would disturb others."""
    known = _load(_cache_path(home, isa=isa, threads=threads, read_bytes=_read_bytes(weight_bytes)))
    return None if known is None else known.peaks


def measure_peaks(probe: Probe, *, isa: str, threads: int, clock: Clock) -> Peaks:
    """Best of several short runs of each unit, with all threads at once."""
    rates = {unit: _compute_rate(probe, unit, clock) for unit in ("int8", "bf16", "fp32")}
    return Peaks(
        threads=threads,
        isa=isa,
        int8_ops_per_s=rates["int8"],
        bf16_ops_per_s=rates["bf16"],
        fp32_ops_per_s=rates["fp32"],
        read_bytes_per_s=best_rate(probe.read, clock, budget_s=READ_BUDGET_S),
    )


def _best(known: Known, measured: Known) -> Known:
    peaks = dataclasses.replace(
        known.peaks, **{name: max(getattr(known.peaks, name), getattr(measured.peaks, name)) for name in RATES}
    )
    return Known(peaks, num_probes=known.num_probes + measured.num_probes)


def _compute_rate(probe: Probe, unit: str, clock: Clock) -> float:
    return best_rate(lambda: probe.compute(unit, ROUNDS), clock, budget_s=UNIT_BUDGET_S)


def best_rate(run: Callable[[], int], clock: Clock, *, budget_s: float) -> float:
    """Highest amount per second over as many runs as the budget holds, at least two."""
    start_s = clock.now()
    best = 0.0
    num_runs = 0
    while num_runs < 2 or clock.now() - start_s < budget_s:
        began_s = clock.now()
        amount = run()
        best = max(best, amount / (clock.now() - began_s))
        num_runs += 1
    return best


def _read_bytes(weight_bytes: int) -> int:
    """How much a probe of reads goes over: as much as a step, within reason."""
    return min(max(weight_bytes, MIN_READ_BYTES), MAX_READ_BYTES) >> 20 << 20


def _cache_path(home: Path, *, isa: str, threads: int, read_bytes: int) -> Path:
    machine = f"{VERSION} {platform.machine()} {cpu_model()} {isa} {threads} {read_bytes}"
    return home / "peaks" / f"{hashlib.sha256(machine.encode()).hexdigest()[:16]}.json"


def _load(path: Path) -> Known | None:
    """A damaged or old cache file is no peaks: they are measured again and the file is replaced."""
    try:
        fields = json.loads(path.read_text())
        known = Known(Peaks(**fields["peaks"]), num_probes=fields["num_probes"])
        rates = (getattr(known.peaks, name) for name in RATES)
        is_sound = all(math.isfinite(rate) and rate > 0 for rate in rates) and known.num_probes > 0
        return known if is_sound else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _store(path: Path, known: Known) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(descriptor, "w") as file:
            json.dump(dataclasses.asdict(known), file)
        Path(temporary).replace(path)
    except OSError as error:  # an answer is there already: its report must not fail
        logger.warning("the measured peaks cannot be kept in %s: %s", path.parent, error.strerror)
