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

logger = logging.getLogger("twostroke")

FORMAT = 1  # of the file and of what is measured: a change makes older files unfound
FLOATS = ("base_s", "row_s", "sample_s")
CURVES = ("linear", "head", "attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class CostKey:
    """All that a step's time depends on but its rows: a change of any is another file."""

    cpu: str  # model name
    isa: str
    threads: int
    build: str  # tells native code apart
    model: str  # fingerprint: weights and their formats
    precision: str  # of the KV cache

    def path(self, home: Path) -> Path:
        """The file below the cache directory."""
        digest = hashlib.sha256(json.dumps([FORMAT, *astuple(self)]).encode()).hexdigest()
        return home / "dyno" / f"{digest[:16]}.json"


def read_cost(path: Path) -> StepCost | None:
    """The cost in a file of the dyno; None without one, and with a warning where it is damaged."""
    try:
        return cost_from_json(json.loads(path.read_text(encoding="utf-8"))["cost"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AssertionError) as error:
        warn_damaged(path, error)
        return None


def warn_damaged(path: Path, error: Exception) -> None:
    """Said by whoever reads the file; the cure is a new measurement."""
    logger.warning("%s holds no profile of this machine (%s: %s): it counts as unmeasured", path, _kind(error), error)


def cost_to_json(cost: StepCost) -> dict[str, Any]:
    """The cost as plain JSON values."""
    fields: dict[str, Any] = {name: getattr(cost, name) for name in FLOATS}
    for name in CURVES:
        curve: Curve = getattr(cost, name)
        fields[name] = {"table": list(curve.points)} if isinstance(curve, Table) else {"law": list(astuple(curve))}
    return fields | {"windows": list(cost.windows)}


def cost_from_json(fields: Any) -> StepCost:
    """The cost again. Raises ValueError, TypeError, KeyError or AssertionError for what is none."""
    windows = tuple((None if window is None else int(window), _number(share)) for window, share in fields["windows"])
    floats = {name: _number(fields[name]) for name in FLOATS}
    curves = {name: _curve(fields[name]) for name in CURVES}
    return StepCost(**floats, **curves, windows=windows)  # type: ignore[arg-type]


def _curve(fields: Any) -> Curve:
    if "table" in fields:
        return Table(tuple((_number(size), _number(time_s)) for size, time_s in fields["table"]))
    return Law(*map(_number, fields["law"]))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{value!r} where a number of at least 0 belongs")
    return float(value)


def _kind(error: Exception) -> str:
    return type(error).__name__
