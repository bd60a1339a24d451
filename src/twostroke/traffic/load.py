"""One load from its settings to its summary: probe, workload, prompts, warm-up, the run itself.

The door of this room for the command line and for Python; every step is in a file of its own.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twostroke.errors import ConfigError
from twostroke.preferred_thread import preferred_thread
from twostroke.traffic.arrivals import Arrivals, arrival_times
from twostroke.traffic.event_loop import new_event_loop
from twostroke.traffic.generator import Ready, closed_loop, open_loop, prepare
from twostroke.traffic.http_client import Address, HttpClient
from twostroke.traffic.outcome import Outcome
from twostroke.traffic.probe import Probed, probe
from twostroke.traffic.server import Api
from twostroke.traffic.summary import Objective, Summary, summarise
from twostroke.traffic.trace import read_trace
from twostroke.traffic.workload import Workload, random_workload

DEFAULT_REQUESTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """What to send where. Driven by `concurrency` (a closed loop), `rate_per_s` or a trace's own times."""

    url: str
    model: str | None = None
    api: str = Api.COMPLETIONS
    api_key: str | None = None
    concurrency: int | None = None
    rate_per_s: float | None = None
    arrivals: str = Arrivals.POISSON
    burstiness: float = 1.0
    trace: Path | None = None
    block_tokens: int | None = None
    length_scale: float = 1.0
    speed: float = 1.0
    requests: int | None = None
    input_tokens: tuple[int, int] = (128, 128)
    output_tokens: tuple[int, int] = (64, 64)
    warm_up: int = 2
    seed: int = 0
    ttft_s: float | None = None
    tpot_s: float | None = None
    tokenizer: Path | None = None
    counts_along: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 600.0

    def check(self) -> None:
        """Raises ConfigError that names the flag."""
        if self.api not in list(Api):
            raise ConfigError(f"--api is {self.api!r}: it must be one of {', '.join(Api)}")
        if self.arrivals not in list(Arrivals):
            raise ConfigError(f"--arrivals is {self.arrivals!r}: it must be one of {', '.join(Arrivals)}")
        for flag, value in self._amounts():
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(f"{flag} is {value:g}: it must be above 0")
        if self.concurrency is not None and self.rate_per_s is not None:
            raise ConfigError("--concurrency and --rate are both given: a closed loop has no rate of its own, take one")
        if self.trace is None and (self.length_scale, self.speed, self.block_tokens) != (1.0, 1.0, None):
            raise ConfigError(
                "--length-scale, --speed and --block-tokens belong to --trace: give one or leave them out"
            )
        if self.burstiness != 1.0 and self.arrivals != Arrivals.GAMMA:
            raise ConfigError("--burstiness belongs to --arrivals gamma")

    def _amounts(self) -> tuple[tuple[str, float | None], ...]:
        return (
            ("--concurrency", self.concurrency),
            ("--rate", self.rate_per_s),
            ("--burstiness", self.burstiness),
            ("--block-tokens", self.block_tokens),
            ("--length-scale", self.length_scale),
            ("--speed", self.speed),
            ("--requests", self.requests),
        )

    @property
    def objective(self) -> Objective:
        return Objective(ttft_s=self.ttft_s, tpot_s=self.tpot_s)

    @property
    def objective_words(self) -> str | None:
        limits = (("TTFT", self.ttft_s), ("TPOT", self.tpot_s))
        words = [f"{name} {limit * 1000:g} ms" for name, limit in limits if limit is not None]
        return ", ".join(words) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load that was sent. `settings` and `about` say what it was, for programs and for people."""

    summary: Summary
    outcomes: Sequence[Outcome]
    settings: Mapping[str, Any]
    about: Sequence[str]

    @property
    def start_s(self) -> float:
        return min((outcome.sent_s for outcome in self.outcomes), default=0.0)

    @property
    def is_interrupted(self) -> bool:
        is_cut = any(outcome.error == "interrupted" for outcome in self.outcomes)
        return is_cut or self.summary.num_sent < self.summary.num_planned


def run_load(config: LoadConfig, *, tell: Callable[[str], None] = lambda words: None) -> Load:
    """Send it and wait for the end; `tell` hears what is going on.

    Raises ConfigError for what cannot be sent and RemoteError where the server does not answer a first request.
    """
    config.check()
    workload = workload_of(config)
    with preferred_thread(), asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_run(config, workload, tell))


def workload_of(config: LoadConfig) -> Workload:
    """What will be sent, and when, before a server is asked."""
    if config.trace is None:
        workload = random_workload(
            count=config.requests or DEFAULT_REQUESTS,
            prompt_tokens=config.input_tokens,
            output_tokens=config.output_tokens,
            seed=config.seed,
        )
    else:
        workload = read_trace(config.trace, block_tokens=config.block_tokens, count=config.requests, seed=config.seed)
        workload = workload.scaled(lengths=config.length_scale, speed=config.speed)
        if config.requests is not None:
            workload = workload.first(config.requests)
    if config.concurrency is not None:
        return workload.in_turn()
    if config.rate_per_s is not None:
        kind = Arrivals(config.arrivals)
        count = len(workload.items)
        return workload.due_at(
            arrival_times(
                kind, rate_per_s=config.rate_per_s, count=count, seed=config.seed, burstiness=config.burstiness
            )
        )
    if workload.has_times:
        return workload
    raise ConfigError("nothing says when to send: give --concurrency, --rate, or a --trace with arrival times")


async def _run(config: LoadConfig, workload: Workload, tell: Callable[[str], None]) -> Load:
    client = HttpClient(Address.of(config.url), api_key=config.api_key)
    try:
        found = await probe(
            client,
            model=config.model,
            api=Api(config.api),
            tokenizer=config.tokenizer,
            counts_along=config.counts_along,
            timeout_s=config.timeout_s,
            extra=config.extra,
        )
        if found.context is not None:
            workload.check_fits(found.context)
        tell(f"{client.address.url} serves {found.server.model}; making {len(workload.items)} prompts")
        ready = await prepare(workload.items, prompts=found.prompts, server=found.server)
        await _warm_up(config, found)
        about = about_lines(config, workload, found)
        tell(f"sending {len(ready)} requests")
        outcomes = await _sent(config, ready, found)
    finally:
        await client.close()
    summary = summarise(
        outcomes, num_planned=len(ready), objective=config.objective, asked_rate_per_s=config.rate_per_s
    )
    return Load(summary=summary, outcomes=outcomes, settings=settings_of(config, workload, found), about=about)


async def _warm_up(config: LoadConfig, found: Probed) -> None:
    """Prompts of their own, all at once: weights, caches and connections are warm, the prefix cache knows nothing."""
    if not config.warm_up:
        return
    workload = random_workload(
        count=config.warm_up, prompt_tokens=(64, 64), output_tokens=(16, 16), seed=-1 - config.seed
    )
    ready = await prepare(workload.items, prompts=found.prompts, server=found.server)
    await closed_loop(ready, server=found.server, concurrency=len(ready))


async def _sent(config: LoadConfig, ready: Sequence[Ready], found: Probed) -> list[Outcome]:
    if config.concurrency is not None:
        return await closed_loop(ready, server=found.server, concurrency=config.concurrency)
    return await open_loop(ready, server=found.server)


def about_lines(config: LoadConfig, workload: Workload, found: Probed) -> list[str]:
    """Server, load and prompts, a line each."""
    server = found.server
    return [
        f"{server.client.address.url}  {server.model}, {server.api.value}",
        f"{len(workload.items)} requests, {_driven_by(config)}; {config.warm_up} to warm up, seed {config.seed}",
        f"prompts: {_lengths(workload, config)}, counted by {found.counted_by}",
        *_dialect_lines(found),
    ]


def _driven_by(config: LoadConfig) -> str:
    if config.concurrency is not None:
        return f"closed loop of {config.concurrency}"
    if config.rate_per_s is not None:
        bursts = f" of burstiness {config.burstiness:g}" if config.arrivals == Arrivals.GAMMA else ""
        return f"open loop, {config.arrivals}{bursts} at {config.rate_per_s:g}/s"
    return f"open loop at the times of the trace / {config.speed:g}"


def _lengths(workload: Workload, config: LoadConfig) -> str:
    count = len(workload.items)
    mean_in = sum(item.prompt_tokens for item in workload.items) / count
    mean_out = sum(item.output_tokens for item in workload.items) / count
    scale = f", lengths x {workload.length_scale:g}" if config.trace is not None else ""
    return f"{workload.source}{scale}, {mean_in:.1f} tokens in and {mean_out:.1f} out on average"


def _dialect_lines(found: Probed) -> list[str]:
    dialect = found.server.dialect
    lines = []
    if not dialect.has_lengths:
        lines.append("the server takes no ignore_eos and min_tokens: answers may end before their length")
    if not dialect.has_usage:
        lines.append("the server takes no stream_options: its token counts are unknown")
    return lines


def settings_of(config: LoadConfig, workload: Workload, found: Probed) -> dict[str, Any]:
    """Everything that was asked for, and what probing found."""
    asked = {name.name: getattr(config, name.name) for name in dataclasses.fields(config) if name.name != "api_key"}
    asked["trace"] = None if config.trace is None else str(config.trace)
    asked["tokenizer"] = None if config.tokenizer is None else str(config.tokenizer)
    found_out = {
        "model": found.server.model,
        "requests": len(workload.items),
        "counted_by": found.counted_by,
        "has_lengths": found.server.dialect.has_lengths,
        "has_usage": found.server.dialect.has_usage,
    }
    return {**asked, **found_out, "extra": dict(config.extra)}
