"""The machine's peak rates: a short probe (at most half a second), kept per CPU, threads and ISA, reads by size too.

Neighbours and other programs only ever make a probe slower, so the best rates of several processes count:
the first few runs probe, later ones only when a phase went faster than the peaks. Arithmetic is the same whatever
the model: each one's probes serve all. Called by doors after an answer, so that it delays nothing. Where the cache
cannot be written it measures every time, and says so.
"""

import dataclasses
import hashlib
import json
import logging
import math
import os
import platform
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from twostroke import _native
from twostroke.core.clock import Clock, WallClock
from twostroke.core.peaks import Peaks
from twostroke.engine.cores import cpu_model

logger = logging.getLogger("twostroke")

VERSION = 4  # of the probe and its file: a change makes cached peaks stale
NUM_PROBES = 3  # runs apart from each other: one of them meets a machine that is not busy
NUM_PASSES = 3  # of one probe over all rates: what disturbs one of them for a moment leaves it the others
UNIT_BUDGET_S = 0.02  # three units and the reads stay below half a second in all passes
READ_BUDGET_S = 0.06
MIN_READ_BYTES = 1 << 20  # a smaller model lives in the caches, and is judged by their rate
MAX_READ_BYTES = 256 << 20  # touching more than this would itself take longer than the probe may
UNITS = {"int8_ops_per_s": "int8", "bf16_ops_per_s": "bf16", "fp32_ops_per_s": "fp32"}
READ = "read_bytes_per_s"
ROUNDS = 100_000  # about half a millisecond on a fast core: many runs fit the budget, starting threads does not count


class Probe(Protocol):
    """What is timed: amounts of work on all threads at once. _native.Probe, or a double in tests."""

    def compute(self, unit: str, rounds: int, /) -> int: ...  # operations done
    def read(self) -> int: ...  # bytes read


Rates = dict[str, float]  # by their names in Peaks


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """What files hold: the best rates of so many probes."""

    rates: Rates
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
    files = _files(home, isa=isa, threads=threads, read_bytes=read_bytes)
    known = _load_all(files)
    if known is not None and known.num_probes >= NUM_PROBES:
        peaks = Peaks(threads=threads, isa=isa, **known.rates)
        if not are_beaten(peaks):
            return peaks
    measured = measure_rates(new_probe(isa, threads, read_bytes), clock=clock or WallClock())
    best: Rates = {}
    for path, names in files.items():
        best |= _keep(path, {name: measured[name] for name in names})
    return Peaks(threads=threads, isa=isa, **best)


def known_peaks(*, home: Path, isa: str, threads: int, weight_bytes: int) -> Peaks | None:
    """What earlier runs have found, without a probe that would disturb others."""
    known = _load_all(_files(home, isa=isa, threads=threads, read_bytes=_read_bytes(weight_bytes)))
    return None if known is None else Peaks(threads=threads, isa=isa, **known.rates)


def measure_rates(probe: Probe, *, clock: Clock) -> Rates:
    """Best of several short runs of each unit and of the reads in turn, with all threads at once."""
    best = dict.fromkeys([*UNITS, READ], 0.0)
    for _ in range(NUM_PASSES):
        for name, unit in UNITS.items():
            best[name] = max(best[name], _compute_rate(probe, unit, clock))
        best[READ] = max(best[READ], best_rate(probe.read, clock, budget_s=READ_BUDGET_S))
    return best


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


def _files(home: Path, *, isa: str, threads: int, read_bytes: int) -> dict[Path, tuple[str, ...]]:
    """Where rates are kept: reads by their size, arithmetic for all sizes."""
    machine = f"{VERSION} {platform.machine()} {cpu_model()} {isa} {threads}"
    return {_file(home, machine): tuple(UNITS), _file(home, f"{machine} {read_bytes}"): (READ,)}


def _file(home: Path, settings: str) -> Path:
    return home / "peaks" / f"{hashlib.sha256(settings.encode()).hexdigest()[:16]}.json"


def _load_all(files: Mapping[Path, tuple[str, ...]]) -> Known | None:
    """What all of them hold, and the probes of the one that has had fewest."""
    found = [known for path, names in files.items() if (known := _load(path, names)) is not None]
    if len(found) < len(files):
        return None
    rates = {name: rate for known in found for name, rate in known.rates.items()}
    return Known(rates, num_probes=min(known.num_probes for known in found))


def _load(path: Path, names: tuple[str, ...]) -> Known | None:
    """A damaged or old file is no peaks: they are measured again and the file is replaced."""
    try:
        fields = json.loads(path.read_text())
        known = Known({name: fields["rates"][name] for name in names}, num_probes=fields["num_probes"])
        is_sound = all(math.isfinite(rate) and rate > 0 for rate in known.rates.values()) and known.num_probes > 0
        return known if is_sound else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _keep(path: Path, measured: Rates) -> Rates:
    """The best of what was measured and what the file holds, which has it then."""
    known = _load(path, tuple(measured)) or Known(measured, num_probes=0)
    best = {name: max(rate, known.rates[name]) for name, rate in measured.items()}
    _store(path, Known(best, num_probes=known.num_probes + 1))
    return best


def _store(path: Path, known: Known) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(descriptor, "w") as file:
            json.dump(dataclasses.asdict(known), file)
        Path(temporary).replace(path)
    except OSError as error:  # an answer is there already: its report must not fail
        logger.warning("the measured peaks cannot be kept in %s: %s", path.parent, error.strerror)
