"""A dyno on disk: one JSON file below the cache directory, written whole or not at all, read strictly.

`core/cost_file.py` names the file and reads the part that the engine needs.
"""

import dataclasses
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from twostroke.core.cost_file import (
    CostKey,
    cost_from_json,
    cost_to_json,
    number,
    threads_from_json,
    warn_damaged,
    whole_number,
)
from twostroke.core.peaks import Peaks
from twostroke.engine.cost_fit import StepCounts
from twostroke.measure.dyno import Dyno, PhaseTimes
from twostroke.measure.dyno_fit import Fit
from twostroke.measure.dyno_machine import ReadRate
from twostroke.measure.dyno_shapes import Shape
from twostroke.measure.dyno_steps import Timing
from twostroke.program.cost import Row

logger = logging.getLogger("twostroke")


def store_dyno(dyno: Dyno, *, home: Path) -> Path:
    """Write the file; where that fails the dyno is still worth showing, so it is a warning."""
    path = dyno.key.path(home)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(dyno_to_json(dyno), file, allow_nan=False)
        Path(temporary).replace(path)
    except OSError as error:
        logger.warning("the dyno cannot be kept in %s: %s", path.parent, error.strerror)
    return path


def read_dyno(path: Path) -> Dyno | None:
    """The dyno in a file; None without one, and with a warning where it is damaged."""
    try:
        return dyno_from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AssertionError) as error:
        warn_damaged(path, error)
        return None


def dyno_to_json(dyno: Dyno) -> dict[str, Any]:
    """Plain JSON values; seconds, bytes and operations."""
    return {
        "key": dataclasses.asdict(dyno.key),
        "threads": dyno.threads._asdict(),
        "cost": cost_to_json(dyno.cost),
        "is_table": dyno.fit.is_table,
        "counts": dataclasses.asdict(dyno.counts),
        "steps": [
            {"rows": [dataclasses.astuple(row) for row in timing.shape], "seconds": timing.seconds, "error": error}
            | ({"law_error": law_error} if dyno.fit.is_table else {})
            for timing, error, law_error in zip(dyno.timings, dyno.fit.errors, dyno.fit.law_errors, strict=True)
        ],
        "num_rounds": dyno.num_rounds,
        "reference": {
            "read_bytes_per_s": dyno.reference_read_bytes_per_s,
            "dot_ops_per_s": dyno.reference_dot_ops_per_s,
        },
        "peaks": dataclasses.asdict(dyno.peaks),
        "reads": [dataclasses.asdict(each) for each in dyno.reads],
        "phases": [dataclasses.asdict(each) for each in dyno.phases],
        "disk_bytes_per_s": dyno.disk_bytes_per_s,
        "took_s": dyno.took_s,
    }


def dyno_from_json(fields: dict[str, Any]) -> Dyno:
    """The dyno again. Raises ValueError, TypeError, KeyError or AssertionError for what is none."""
    steps, is_table = fields["steps"], bool(fields["is_table"])
    errors = tuple(float(step["error"]) for step in steps)
    counts = fields["counts"]
    windows = tuple((window, number(share)) for window, share in counts["windows"])
    dyno = Dyno(
        key=CostKey(**fields["key"]),
        threads=threads_from_json(fields["threads"]),
        fit=Fit(
            cost_from_json(fields["cost"]),
            errors,
            is_table=is_table,
            law_errors=tuple(float(step["law_error"]) for step in steps) if is_table else errors,
        ),
        counts=StepCounts(**(counts | {"windows": windows})),
        timings=tuple(Timing(_shape(step["rows"]), number(step["seconds"])) for step in steps),
        num_rounds=whole_number(fields["num_rounds"]),
        reference_read_bytes_per_s=number(fields["reference"]["read_bytes_per_s"]),
        reference_dot_ops_per_s=number(fields["reference"]["dot_ops_per_s"]),
        peaks=Peaks(**fields["peaks"]),
        reads=tuple(ReadRate(**each) for each in fields["reads"]),
        phases=tuple(PhaseTimes(**each) for each in fields["phases"]),
        disk_bytes_per_s=None if fields["disk_bytes_per_s"] is None else number(fields["disk_bytes_per_s"]),
        took_s=number(fields["took_s"]),
    )
    counts_measured = {each.threads for each in dyno.phases}
    assert counts_measured.issuperset(dyno.threads), f"no phases with {dyno.threads}"
    return dyno


def _shape(rows: Any) -> Shape:
    return tuple(
        Row(int(start_pos), int(num_tokens), bool(needs_logits)) for start_pos, num_tokens, needs_logits in rows
    )
