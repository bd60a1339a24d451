"""`twostroke dyno`: this machine measured with one model, kept for scheduler and ledger."""

import dataclasses
import json
import sys
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from twostroke.cli.entry import leaving_on_interrupt
from twostroke.cli.loading import KVOption, ModelOption, ThreadsOption, find_model
from twostroke.config import resolve
from twostroke.core.clock import WallClock
from twostroke.model.catalog import DEFAULT_MODEL, model_defaults

if TYPE_CHECKING:
    from twostroke.load import LoadedModel
    from twostroke.measure.dyno import Dyno, LoadModel


def dyno(
    *,
    model: ModelOption = DEFAULT_MODEL,
    kv: KVOption = None,
    threads: ThreadsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Measure again, whatever is kept.")] = False,
) -> None:
    """Measure this machine with a model, at most 20 s. Close other programs first: everything is wall time."""
    config = resolve()
    path = find_model(model, config=config, quiet=as_json)
    with leaving_on_interrupt():
        from twostroke.load import load_model  # with all it stands on a third of a second
        from twostroke.measure.dyno import measure_dyno
        from twostroke.measure.dyno_file import dyno_to_json, store_dyno
        from twostroke.view.dyno_report import dyno_lines
    defaults = model_defaults(model, ollama_models=config.ollama_models)
    load = partial(load_model, path, config=config, clock=WallClock(), context=None, kv=kv, defaults=defaults)

    def load_with(count: int | None) -> "LoadedModel":
        return load(threads=threads if count is None else count)

    kept = None if force else kept_dyno(load_with)
    measured = kept or measure_dyno(load_with, home=config.home, clock=WallClock())
    if kept is None:
        store_dyno(measured, home=config.home)
    if as_json:
        report = {"model": model, "is_kept": kept is not None, **dyno_to_json(measured)}
        sys.stdout.write(json.dumps(report, allow_nan=False) + "\n")
    else:
        sys.stdout.write(
            "\n".join([*dyno_lines(measured), "", closing_line(measured, is_kept=kept is not None)]) + "\n"
        )


def kept_dyno(load: "LoadModel") -> "Dyno | None":
    """What was measured earlier, if both phases still take as long; why not is said on stderr.

    Its peaks are the best that is known by now: a probe that was disturbed then counts no more.
    """
    from twostroke.measure.dyno import drift_of, has_drifted, probed_peaks
    from twostroke.measure.dyno_file import read_dyno

    with closing(load(None)) as model:
        earlier = read_dyno(model.cost_key.path(resolve().home))
        if earlier is None:
            return None
        drift = drift_of(earlier, model, clock=WallClock())
        if not has_drifted(drift):
            return dataclasses.replace(earlier, peaks=probed_peaks(model, home=resolve().home))
    sys.stderr.write(f"twostroke: steps take {drift:.2f} times as long as when they were measured: measuring again\n")
    return None


def closing_line(measured: "Dyno", *, is_kept: bool) -> str:
    """Where the numbers come from."""
    if is_kept:
        return "kept from an earlier run, both phases and the peaks checked just now; --force measures again"
    return f"measured in {measured.took_s:.1f} s, kept for the next start of this model"
