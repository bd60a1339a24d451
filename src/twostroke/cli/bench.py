"""`twostroke bench`: both phases timed, alone or in turn with a peer, in one run."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from twostroke.cli.bench_kernels import bench_kernels
from twostroke.cli.entry import leaving_on_interrupt
from twostroke.cli.given_flags import given_flags, refuse_beside
from twostroke.cli.loading import KVOption, ModelOption, ThreadsOption, find_model
from twostroke.config import resolve
from twostroke.errors import ConfigError
from twostroke.measure.cell import cells_of
from twostroke.measure.cpu_units import units_of_isa, why_unfair
from twostroke.measure.generation import Comparison, compare, spread
from twostroke.measure.peer import Peer, open_peer
from twostroke.model.catalog import DEFAULT_MODEL
from twostroke.view import quantity


def bench(
    context: typer.Context,
    *,
    model: ModelOption = DEFAULT_MODEL,
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="Prompt tokens to time, 0 for none; 512,2048.")] = "512",
    generate: Annotated[str, typer.Option("--generate", "-n", help="Decode steps to time, 0 for none.")] = "128",
    depth: Annotated[str, typer.Option("--depth", "-d", help="Tokens in the cache before either.")] = "0",
    batch: Annotated[str, typer.Option("--batch", "-b", help="Sequences at once.")] = "1",
    requests: Annotated[
        str | None, typer.Option(help="IN,OUT: whole requests of so many tokens, --batch at once.")
    ] = None,
    kv: KVOption = None,
    threads: ThreadsOption = None,
    repeat: Annotated[int, typer.Option(help="Counted runs; medians are shown.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    vs: Annotated[
        str | None,
        typer.Option(help="A peer measured in turn with us: llama.cpp, openvino, or the path of a llama-bench."),
    ] = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="The kernels alone, by weight type and ISA; no model is loaded.")
    ] = False,
    kv_quality: Annotated[
        bool, typer.Option("--kv-quality", help="Instead: what KV precisions save in bytes and cost in quality.")
    ] = False,
    text: Annotated[Path | None, typer.Option(help="Text read for --kv-quality; else Python's reference.")] = None,
) -> None:
    """Time prefill and decode. Close other programs first: everything here is wall time."""
    if context.invoked_subcommand is not None:
        return _refuse_options(context)
    if kernels:
        refuse_beside("kernels", context, used=("threads", "as_json"))
        bench_kernels(config=resolve(), threads=threads, as_json=as_json)
        return
    if kv_quality:
        refuse_beside("kv_quality", context, used=("model", "kv", "threads", "text", "as_json"))
        with leaving_on_interrupt():
            from twostroke.cli.bench_kv import bench_kv  # with all it stands on a third of a second
        return bench_kv(model=model, kv=kv, threads=threads, text=text, as_json=as_json)
    if text is not None:
        raise ConfigError("--text is read for --kv-quality alone")
    if repeat < 1:
        raise ConfigError(f"--repeat is {repeat}: it must be at least 1")
    cells = cells_of(
        prompts=_numbers("--prompt", prompt, least=0),
        generates=_numbers("--generate", generate, least=0),
        requests=None if requests is None else _pair("--requests", requests),
        depths=_numbers("--depth", depth, least=0),
        batches=_numbers("--batch", batch, least=1),
    )
    config = resolve()
    path = find_model(model, config=config, quiet=as_json)
    with leaving_on_interrupt():
        from twostroke.llm import LLM  # with all it stands on a third of a second
    with ExitStack() as stack:
        llm = stack.enter_context(LLM(model, threads=threads, kv=kv, config=config))
        peer = None if vs is None else stack.enter_context(open_peer(vs, path, threads=llm.threads))
        report = Report(
            about={"model": model, "isa": llm.isa, "threads": llm.threads, "kv": llm.kv_precision, "repeat": repeat},
            comparisons=[compare(llm, cell, repeat=repeat, peer=peer) for cell in cells],
            peer=peer,
        )
    said = json.dumps(json_of(report), allow_nan=False) if as_json else "\n".join(lines_of(report))
    sys.stdout.write(said + "\n")


def _refuse_options(context: typer.Context) -> None:
    """Options between `bench` and the command after it would be dropped."""
    for flag in given_flags(context).values():
        command = context.invoked_subcommand
        raise ConfigError(f"{flag} stands before {command}: write bench {command} first")


@dataclass(frozen=True, slots=True)
class Report:
    """Everything measured in one run."""

    about: dict[str, Any]
    comparisons: Sequence[Comparison]
    peer: Peer | None

    @property
    def unfairness(self) -> str | None:
        """Why no ratio is shown; None where ratios mean something."""
        if self.peer is None:
            return None
        return why_unfair(self.about["isa"], self.peer.features, peer=self.peer.name)


def json_of(report: Report) -> dict[str, Any]:
    """Each run's rate, medians, and ratios of pairs that followed each other."""
    engines = [{"engine": "twostroke", "features": _own_features(report)}]
    if (peer := report.peer) is not None:
        engines.append({"engine": peer.name, "version": peer.version, "features": peer.features})
    return {
        **report.about,
        "engines": engines,
        "cells": [_json_cell(one, is_fair=report.unfairness is None) for one in report.comparisons],
        "no_ratio": report.unfairness,
    }


def lines_of(report: Report) -> list[str]:
    """A table with one line per cell: tokens per second, median and spread of the runs."""
    about, peer = report.about, report.peer
    where = f"{about['model']}  {about['isa']}, {quantity.count(about['threads'], 'thread')}, kv {about['kv']}"
    headings = ("twostroke",) if peer is None else ("twostroke", peer.name, "ratio")
    lines = [
        f"{where}, median of {about['repeat']} [lowest, highest], tok/s",
        _line("", headings),
        *(_line(one.cell.label, _columns(one, report)) for one in report.comparisons),
    ]
    if peer is not None:
        lines += dict.fromkeys(f"-: {one.refusal}" for one in report.comparisons if one.refusal is not None)
        lines += [report.unfairness] if report.unfairness is not None else []
        lines += [f"twostroke: {_own_features(report)}", f"{peer.version}: {peer.features or 'features unknown'}"]
    return lines


def _columns(one: Comparison, report: Report) -> tuple[str, ...]:
    ours = _spread(one.ours_per_s, digits=1)
    if report.peer is None:
        return (ours,)
    ratios = one.ratios if report.unfairness is None else ()
    return ours, _spread(one.theirs_per_s, digits=1), _spread(ratios, digits=2)


def _line(label: str, columns: Sequence[str]) -> str:
    return f"{label:36}" + "".join(f"{column:>26}" for column in columns)


def _spread(values: Sequence[float], *, digits: int) -> str:
    found = spread(values)
    if found is None:
        return quantity.ABSENT
    return f"{found.median:.{digits}f} [{found.lowest:.{digits}f}, {found.highest:.{digits}f}]"


def _own_features(report: Report) -> str:
    isa = report.about["isa"]
    return f"{isa} ({', '.join(sorted(units_of_isa(isa))) or 'neither AVX-512 nor VNNI'})"


def _json_cell(one: Comparison, *, is_fair: bool) -> dict[str, Any]:
    return {
        "cell": dataclasses.asdict(one.cell),
        "twostroke": _json_rates(one.ours_per_s),
        "peer": _json_rates(one.theirs_per_s),
        "ratio": _json_rates(one.ratios if is_fair else ()),
        "refusal": one.refusal,
    }


def _json_rates(values: Sequence[float]) -> dict[str, Any] | None:
    found = spread(values)
    return None if found is None else {**dataclasses.asdict(found), "runs": list(values)}


def _numbers(flag: str, text: str, *, least: int) -> list[int]:
    """Whole numbers between commas, each at least `least`."""
    numbers = []
    for part in text.split(","):
        try:
            number = int(part)
        except ValueError:
            raise ConfigError(f"{flag} is {text!r}: whole numbers with commas between them, like 512,2048") from None
        if number < least:
            raise ConfigError(f"{flag} is {number}: it must be at least {least}")
        numbers.append(number)
    return numbers


def _pair(flag: str, text: str) -> tuple[int, int]:
    numbers = _numbers(flag, text, least=1)
    if len(numbers) != 2:
        raise ConfigError(f"{flag} is {text!r}: two numbers, tokens in and tokens out, like 128,64")
    return numbers[0], numbers[1]
