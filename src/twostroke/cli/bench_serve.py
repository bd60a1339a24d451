"""`twostroke bench serve`: a load for a running server of any make, timed as its clients see it."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twostroke.cli.entry import leaving_on_interrupt
from twostroke.cli.exit_code import ExitCode
from twostroke.cli.given_flags import refuse_beside
from twostroke.errors import ConfigError

if TYPE_CHECKING:
    from twostroke.traffic.load import LoadConfig


def bench_serve(
    context: typer.Context,
    *,
    url: Annotated[str | None, typer.Option(help="The server, like http://127.0.0.1:8000.", show_default=False)] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="Else the first the server lists.")] = None,
    api: Annotated[str, typer.Option(help="completions or chat.")] = "completions",
    api_key: Annotated[str | None, typer.Option(help="Sent as a bearer token.")] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", help="Closed loop: so many at once.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Open loop: requests per second.")] = None,
    arrivals: Annotated[str, typer.Option(help="With --rate: poisson, constant or gamma.")] = "poisson",
    burstiness: Annotated[float, typer.Option(help="Of gamma: 1 is Poisson, less is burstier.")] = 1.0,
    trace: Annotated[Path | None, typer.Option(help="Lengths and arrivals from a file: CSV or JSONL, .gz too.")] = None,
    block_tokens: Annotated[int | None, typer.Option(help="Tokens of a trace's hash id; 512 or 16 are found.")] = None,
    length_scale: Annotated[float, typer.Option(help="All lengths of the trace times this.")] = 1.0,
    speed: Annotated[float, typer.Option(help="All times of the trace divided by this.")] = 1.0,
    requests: Annotated[int | None, typer.Option("--requests", "-n", help="How many; 100, or all of a trace.")] = None,
    input_tokens: Annotated[str, typer.Option(help="Prompt tokens: 128, or 64-256 at random.")] = "128",
    output_tokens: Annotated[str, typer.Option(help="Answer tokens: 64, or 16-128 at random.")] = "64",
    warm_up: Annotated[int, typer.Option(help="Requests sent before, in no result.", min=0)] = 2,
    seed: Annotated[int, typer.Option(help="Same seed, same prompts and arrivals.")] = 0,
    ttft_ms: Annotated[float | None, typer.Option(help="Objective: goodput counts answers within it.")] = None,
    tpot_ms: Annotated[float | None, typer.Option(help="Objective: the same.")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="tokenizer.json that counts, where the server does not.")
    ] = None,
    count_along: Annotated[bool, typer.Option("--count-along", help="Ask for counts in every chunk.")] = False,
    body: Annotated[str | None, typer.Option(help="JSON object of fields added to every request.")] = None,
    timeout_s: Annotated[float, typer.Option(help="For one answer.", min=0.001)] = 600.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object with every request.")] = False,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Instead: this generator against a server of known times.")
    ] = False,
) -> None:
    """Send a load to a server and tell how it was answered. Errors are counted, never left out."""
    objective = said_objective(ttft_ms=ttft_ms, tpot_ms=tpot_ms)
    if self_test:
        refuse_beside("self_test", context, used=("as_json",))
        return _self_test(as_json=as_json)
    if url is None:
        raise ConfigError("--url is missing: say where the server is, like --url http://127.0.0.1:8000")
    with leaving_on_interrupt():
        from twostroke.traffic.load import LoadConfig
    _bench(
        LoadConfig(
            url=url,
            model=model,
            api=api,
            api_key=api_key,
            concurrency=concurrency,
            rate_per_s=rate,
            arrivals=arrivals,
            burstiness=burstiness,
            trace=trace,
            block_tokens=block_tokens,
            length_scale=length_scale,
            speed=speed,
            requests=requests,
            input_tokens=said_range("--input-tokens", input_tokens),
            output_tokens=said_range("--output-tokens", output_tokens),
            warm_up=warm_up,
            seed=seed,
            ttft_s=objective.ttft_s,
            tpot_s=objective.tpot_s,
            tokenizer=tokenizer,
            counts_along=count_along,
            extra=said_fields(body),
            timeout_s=timeout_s,
        ),
        as_json=as_json,
    )


@dataclass(frozen=True, slots=True)
class SaidObjective:
    ttft_s: float | None
    tpot_s: float | None


def said_objective(*, ttft_ms: float | None, tpot_ms: float | None) -> SaidObjective:
    """Limits in seconds. Raises ConfigError for one that nothing can meet."""
    for flag, value in (("--ttft-ms", ttft_ms), ("--tpot-ms", tpot_ms)):
        if value is not None and not value > 0:
            raise ConfigError(f"{flag} is {value:g}: it must be above 0")
    return SaidObjective(
        None if ttft_ms is None else ttft_ms / 1000,
        None if tpot_ms is None else tpot_ms / 1000,
    )


def said_range(flag: str, text: str) -> tuple[int, int]:
    """128 or 64-256, both bounds inside."""
    low, dash, high = text.partition("-")
    try:
        bounds = int(low), int(high if dash else low)
    except ValueError:
        raise ConfigError(f"{flag} is {text!r}: a number like 128, or two like 64-256") from None
    if not 1 <= bounds[0] <= bounds[1]:
        raise ConfigError(f"{flag} is {text!r}: numbers from 1 on, the smaller one first")
    return bounds


def said_fields(body: str | None) -> dict[str, Any]:
    try:
        fields = json.loads(body or "{}")
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--body is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ConfigError('--body must be a JSON object like {"top_k": 5}')
    return fields


def _bench(config: "LoadConfig", *, as_json: bool) -> None:
    from twostroke.traffic.load import run_load
    from twostroke.view.traffic_report import traffic_json, traffic_lines

    def tell(words: str) -> None:
        if not as_json:
            sys.stderr.write(f"twostroke: {words}\n")
            sys.stderr.flush()

    load = run_load(config, tell=tell)
    if as_json:
        shown = traffic_json(load.summary, load.outcomes, settings=load.settings, start_s=load.start_s)
        sys.stdout.write(json.dumps(shown, allow_nan=False) + "\n")
    else:
        lines = traffic_lines(load.summary, about=load.about, objective=config.objective_words)
        sys.stdout.write("\n".join(lines) + "\n")
    if load.is_interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if not load.summary.num_answered:
        raise typer.Exit(ExitCode.FAILED)


def _self_test(*, as_json: bool) -> None:
    from twostroke.traffic.self_test import self_test
    from twostroke.view.traffic_report import self_test_json, self_test_lines

    test = self_test()
    sys.stdout.write((json.dumps(self_test_json(test)) if as_json else "\n".join(self_test_lines(test))) + "\n")
