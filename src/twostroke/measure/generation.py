"""Both phases of the engine timed as its users meet them, alternating with a peer in one run.

Ours goes through `LLM.submit`: scheduler, sampler and hand-over are inside the times. A peer is timed
around its evaluation alone, as its own bench does.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from twostroke.core.event import Event, TokenEvent
from twostroke.errors import ConfigError, RequestError
from twostroke.measure.peer import PeerProcess, PhaseTimes
from twostroke.params import SamplingParams

if TYPE_CHECKING:
    from twostroke.llm import LLM


@dataclass(frozen=True, slots=True)
class Load:
    """What is timed: `prompt` tokens behind `depth`, then `generate` steps behind it, `batch` sequences at once."""

    prompt: int
    generate: int
    depth: int
    batch: int

    def __post_init__(self) -> None:
        for name, least in (("prompt", 0), ("generate", 0), ("depth", 0), ("batch", 1)):
            if (value := getattr(self, name)) < least:
                raise ConfigError(f"--{name} is {value}: it must be at least {least}")
        if not self.prompt + self.generate:
            raise ConfigError("--prompt and --generate are both 0: nothing would be timed, give at least one")

    @property
    def context(self) -> int:
        """Tokens one sequence needs."""
        return self.depth + max(self.prompt, self.generate) + 2


@dataclass(frozen=True, slots=True)
class Series:
    """Rates of one engine over the repeats, tokens per second over all sequences; None where nothing was timed."""

    engine: str
    prefill_per_s: tuple[float, ...]
    decode_per_s: tuple[float, ...]

    @property
    def prefill(self) -> float | None:
        return median(self.prefill_per_s) if self.prefill_per_s else None

    @property
    def decode(self) -> float | None:
        return median(self.decode_per_s) if self.decode_per_s else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours beside a peer's; a ratio is the median over pairs of runs that followed each other."""

    ours: Series
    peer: Series | None
    prefill_ratio: float | None
    decode_ratio: float | None


def compare(llm: "LLM", load: Load, *, repeat: int, peer: PeerProcess | None) -> Comparison:
    """One uncounted pair to warm up, then `repeat` pairs in turn."""
    ours: list[PhaseTimes] = []
    theirs: list[PhaseTimes] = []
    rng = random.Random(0)
    for round_number in range(repeat + 1):
        own = measure_ours(llm, load, rng)
        other = None
        if peer is not None:
            other = peer.measure(prompt=load.prompt, generate=load.generate, depth=load.depth, batch=load.batch)
        if round_number > 0:
            ours.append(own)
            theirs += [] if other is None else [other]
    return Comparison(
        ours=_series("twostroke", ours, load),
        peer=None if peer is None else _series(peer.name, theirs, load),
        prefill_ratio=_ratio([o.prefill_s for o in ours], [t.prefill_s for t in theirs]),
        decode_ratio=_ratio([o.decode_s for o in ours], [t.decode_s for t in theirs]),
    )


def measure_ours(llm: "LLM", load: Load, rng: random.Random) -> PhaseTimes:
    """One measurement; random prompts, so that no repeat finds another one's blocks."""
    prefill_s = decode_s = 0.0
    heads = [_random_ids(llm, load.depth, rng) for _ in range(load.batch)]
    if load.prompt:
        for head in heads:
            if head:
                _run(llm, [head], max_tokens=1)  # its blocks stay findable
        runs = _run(llm, [head + _random_ids(llm, load.prompt, rng) for head in heads], max_tokens=1)
        prefill_s = max(run.first_s for run in runs)
    if load.generate:
        heads = [head or _random_ids(llm, 1, rng) for head in heads]
        runs = _run(llm, heads, max_tokens=load.generate + 1)
        decode_s = _decode_seconds(runs, num_tokens=load.batch * load.generate)
    return PhaseTimes(prefill_s=prefill_s, decode_s=decode_s)


@dataclass(slots=True)
class _Run:
    times: list[float] = field(default_factory=list)  # of its tokens, after the start of all

    @property
    def first_s(self) -> float:
        return self.times[0]


def _decode_seconds(runs: Sequence[_Run], *, num_tokens: int) -> float:
    """Time for `num_tokens` at the rate from the last first token on: before it, some sequences did not decode."""
    start_s = max(run.first_s for run in runs)
    counted = [time_s for run in runs for time_s in run.times if time_s > start_s]
    return (max(counted) - start_s) * num_tokens / len(counted)


def _run(llm: "LLM", prompts: Sequence[list[int]], *, max_tokens: int) -> list[_Run]:
    """Submit all at once; times are on the engine's clock, from the common arrival."""
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    runs = [_Run() for _ in prompts]
    arrival_s = llm.now()

    def listener(run: _Run) -> Callable[[Event], None]:
        def hear(event: Event) -> None:
            if isinstance(event, TokenEvent):
                run.times.append(event.time_s - arrival_s)

        return hear

    handles = [
        llm.submit(prompt, params, on_event=listener(run), arrival_s=arrival_s)
        for prompt, run in zip(prompts, runs, strict=True)
    ]
    for handle in handles:
        result = handle.result()
        if result.error is not None:
            raise RequestError(f"a measured request failed: {result.error}")
    return runs


def _random_ids(llm: "LLM", count: int, rng: random.Random) -> list[int]:
    return [rng.randrange(llm.program.vocab_size) for _ in range(count)]


def _series(engine: str, times: Sequence[PhaseTimes], load: Load) -> Series:
    return Series(
        engine=engine,
        prefill_per_s=tuple(load.batch * load.prompt / t.prefill_s for t in times if t.prefill_s),
        decode_per_s=tuple(load.batch * load.generate / t.decode_s for t in times if t.decode_s),
    )


def _ratio(ours_s: Sequence[float], theirs_s: Sequence[float]) -> float | None:
    pairs = [their / our for our, their in zip(ours_s, theirs_s, strict=False) if our and their]
    return median(pairs) if pairs else None
