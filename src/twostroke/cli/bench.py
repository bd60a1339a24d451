"""`twostroke bench`: both phases timed, alone or in turn with a peer, in one run."""

import dataclasses
import json
import sys
from contextlib import ExitStack
from typing import Annotated, Any

import typer

from twostroke.cli.bench_kernels import bench_kernels
from twostroke.cli.entry import leaving_on_interrupt
from twostroke.cli.loading import KVOption, ModelOption, ThreadsOption, find_model
from twostroke.config import resolve
from twostroke.errors import ConfigError
from twostroke.measure.generation import Comparison, Load, Series, compare
from twostroke.measure.peer import PeerProcess
from twostroke.model.catalog import DEFAULT_MODEL
from twostroke.view import quantity


def bench(
    *,
    model: ModelOption = DEFAULT_MODEL,
    prompt: Annotated[int, typer.Option("--prompt", "-p", help="Prompt tokens to time, 0 for none.")] = 512,
    generate: Annotated[int, typer.Option("--generate", "-n", help="Decode steps to time, 0 for none.")] = 128,
    depth: Annotated[int, typer.Option("--depth", "-d", help="Tokens in the cache before either.")] = 0,
    batch: Annotated[int, typer.Option("--batch", "-b", help="Sequences at once.")] = 1,
    kv: KVOption = None,
    threads: ThreadsOption = None,
    repeat: Annotated[int, typer.Option(help="Counted runs; medians are shown.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    vs: Annotated[str | None, typer.Option(help="A peer measured in turn with us: llama.cpp.")] = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="The kernels alone, by weight type and ISA; no model is loaded.")
    ] = False,
) -> None:
    """Time prefill and decode. Close other programs first: everything here is wall time."""
    if kernels:
        bench_kernels(config=resolve(), threads=threads, as_json=as_json)
        return
    if repeat < 1:
        raise ConfigError(f"--repeat is {repeat}: it must be at least 1")
    load = Load(prompt=prompt, generate=generate, depth=depth, batch=batch)
    config = resolve()
    path = find_model(model, config=config, quiet=as_json)
    with leaving_on_interrupt():
        from twostroke.llm import LLM  # with all it stands on a third of a second
    with ExitStack() as stack:
        llm = stack.enter_context(LLM(model, threads=threads, kv=kv, config=config))
        peer = None
        if vs is not None:
            opened = PeerProcess(vs, path, threads=llm.threads, context=load.context, sequences=batch)
            peer = stack.enter_context(opened)
        comparison = compare(llm, load, repeat=repeat, peer=peer)
        about = {"model": model, "isa": llm.isa, "threads": llm.threads, "kv": llm.kv_precision, "repeat": repeat}
    if as_json:
        report = json_of(comparison, load, about, peer)
        sys.stdout.write(json.dumps(report, allow_nan=False) + "\n")
    else:
        sys.stdout.write("\n".join(lines_of(comparison, load, about, peer)) + "\n")


def json_of(comparison: Comparison, load: Load, about: dict[str, Any], peer: PeerProcess | None) -> dict[str, Any]:
    """Everything measured: each run's rate, medians, and ratios of pairs that followed each other."""
    engines = [_json_series(comparison.ours)]
    if comparison.peer is not None and peer is not None:
        engines.append({**_json_series(comparison.peer), "version": peer.version, "features": peer.features})
    return {
        **about,
        "load": dataclasses.asdict(load),
        "engines": engines,
        "ratios": {"prefill": comparison.prefill_ratio, "decode": comparison.decode_ratio},
    }


def lines_of(comparison: Comparison, load: Load, about: dict[str, Any], peer: PeerProcess | None) -> list[str]:
    """A table: tokens per second, median and spread of the runs."""
    where = f"{about['model']}  {about['isa']}, {quantity.count(about['threads'], 'thread')}, kv {about['kv']}"
    prefill, decode = f"prefill {load.prompt} at depth {load.depth}", f"decode {load.generate} at depth {load.depth}"
    lines = [
        f"{where}, median of {about['repeat']} [lowest, highest], tok/s",
        f"{'':12}{prefill:>34}{decode:>34}",
        _row(comparison.ours),
    ]
    if comparison.peer is not None and peer is not None:
        lines.append(_row(comparison.peer))
        lines.append(f"{'ratio':12}{_ratio(comparison.prefill_ratio):>34}{_ratio(comparison.decode_ratio):>34}")
        lines.append(f"{peer.version}: {peer.features}")
    return lines


def _json_series(series: Series) -> dict[str, Any]:
    return {
        "engine": series.engine,
        "prefill_tokens_per_s": series.prefill,
        "decode_tokens_per_s": series.decode,
        "prefill_runs": list(series.prefill_per_s),
        "decode_runs": list(series.decode_per_s),
    }


def _row(series: Series) -> str:
    prefill, decode = _spread(series.prefill, series.prefill_per_s), _spread(series.decode, series.decode_per_s)
    return f"{series.engine:12}{prefill:>34}{decode:>34}"


def _spread(median: float | None, runs: tuple[float, ...]) -> str:
    return "-" if median is None else f"{median:.1f} [{min(runs):.1f}, {max(runs):.1f}]"


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"
