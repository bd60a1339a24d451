"""Where a measured StepCost lies and how it is written: one JSON file per machine, build, model and KV precision.

measure/ writes the file, load.py reads it for scheduler and ledger; nobody else knows its form.
"""

import hashlib
import json
import logging
import math
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from twostroke.core.step_cost import Curve, Law, StepCost, Table
from twostroke.phase_threads import PhaseThreads

logger = logging.getLogger("twostroke")

FORMAT = 2  # of the file and of what is measured: a change makes older files unfound
FLOATS = ("base_s", "row_s", "sample_s")
CURVES = ("linear", "head", "attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class CostKey:
    """All that a step's time depends on but its rows: a change of any is another file."""

    cpu: str  # model name
    cores: int  # this process may use
    isa: str
    threads: int | None  # that were asked for; None: as many as the dyno found best
    build: str  # tells native code apart
    model: str  # fingerprint: weights and their formats
    precision: str  # of the KV cache

    def path(self, home: Path) -> Path:
        """The file below the cache directory."""
        digest = hashlib.sha256(json.dumps([FORMAT, *astuple(self)]).encode()).hexdigest()
        return home / "dyno" / f"{digest[:16]}.json"


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """A cost and the numbers of threads it holds for."""

    cost: StepCost
    threads: PhaseThreads


def read_measured(path: Path) -> MeasuredCost | None:
    """The cost in a file of the dyno; None without one, and with a warning where it is damaged."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return MeasuredCost(cost_from_json(fields["cost"]), threads=threads_from_json(fields["threads"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AssertionError) as error:
        warn_damaged(path, error)
        return None


def warn_damaged(path: Path, error: Exception) -> None:
    """Said by whoever reads the file; the cure is a new measurement."""
    problem = f"{type(error).__name__}: {error}"
    logger.warning("%s holds no dyno (%s): the model counts as unmeasured; twostroke dyno measures it", path, problem)


def cost_to_json(cost: StepCost) -> dict[str, Any]:
    """The cost as plain JSON values."""
    fields: dict[str, Any] = {name: getattr(cost, name) for name in FLOATS}
    for name in CURVES:
        curve: Curve = getattr(cost, name)
        fields[name] = {"table": list(curve.points)} if isinstance(curve, Table) else {"law": list(astuple(curve))}
    return fields | {"windows": list(cost.windows)}


def cost_from_json(fields: Any) -> StepCost:
    """The cost again. Raises ValueError, TypeError, KeyError or AssertionError for what is none."""
    windows = tuple((None if window is None else int(window), number(share)) for window, share in fields["windows"])
    floats = {name: number(fields[name]) for name in FLOATS}
    curves = {name: _curve(fields[name]) for name in CURVES}
    return StepCost(**floats, **curves, windows=windows)  # type: ignore[arg-type]


def threads_from_json(fields: Any) -> PhaseThreads:
    """Threads by phase. Raises ValueError, TypeError or KeyError for what is none."""
    return PhaseThreads(prefill=whole_number(fields["prefill"]), decode=whole_number(fields["decode"]))


def _curve(fields: Any) -> Curve:
    if "table" in fields:
        return Table(tuple((number(size), number(time_s)) for size, time_s in fields["table"]))
    return Law(*map(number, fields["law"]))


def number(value: Any) -> float:
    """A finite number of at least 0. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{value!r} where a number of at least 0 belongs")
    return float(value)


def whole_number(value: Any) -> int:
    """A count of at least 1. Raises ValueError."""
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} where a whole number of at least 1 belongs")
    return value
