"""What is timed: one phase, or whole requests, of so many sequences at once. Every engine reads the same cells."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from twostroke.errors import ConfigError


class Kind(StrEnum):
    PREFILL = "prefill"  # `prompt` tokens behind `depth` others
    DECODE = "decode"  # `generate` steps behind `depth` tokens
    REQUESTS = "requests"  # from the arrival of `prompt` tokens to the last of `generate`


@dataclass(frozen=True, slots=True)
class Cell:
    """One line of a comparison; sizes are of each of `batch` sequences."""

    kind: Kind
    prompt: int = 0
    generate: int = 0
    depth: int = 0
    batch: int = 1

    @property
    def num_tokens(self) -> int:
        """Tokens its rate counts, over all sequences: those read in prefill, those written otherwise."""
        return self.batch * (self.prompt if self.kind is Kind.PREFILL else self.generate)

    @property
    def label(self) -> str:
        times = f"{self.batch} x " if self.batch > 1 else ""
        if self.kind is Kind.REQUESTS:
            return f"{times}request of {self.prompt} in, {self.generate} out"
        behind = f" at depth {self.depth}" if self.depth else ""
        return f"{times}{self.kind} {self.prompt or self.generate}{behind}"


def cells_of(
    *,
    prompts: Sequence[int],
    generates: Sequence[int],
    requests: tuple[int, int] | None,
    depths: Sequence[int],
    batches: Sequence[int],
) -> list[Cell]:
    """All combinations, phase by phase. Raises ConfigError where there is none."""
    found = list(_combinations(prompts, generates, requests, depths, batches))
    if not found:
        raise ConfigError("--prompt and --generate are both 0: nothing would be timed, give at least one")
    return found


def _combinations(
    prompts: Sequence[int],
    generates: Sequence[int],
    requests: tuple[int, int] | None,
    depths: Sequence[int],
    batches: Sequence[int],
) -> Iterator[Cell]:
    for batch in batches:
        for depth in depths:
            for prompt in filter(None, prompts):
                yield Cell(Kind.PREFILL, prompt=prompt, depth=depth, batch=batch)
            for generate in filter(None, generates):
                yield Cell(Kind.DECODE, generate=generate, depth=depth, batch=batch)
        if requests is not None:
            yield Cell(Kind.REQUESTS, prompt=requests[0], generate=requests[1], batch=batch)
