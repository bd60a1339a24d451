"""What a load asks for: how long each prompt and answer is, when it is due, what it shares with others.

Plain facts, made by `trace.py` or from numbers, read by prompts and the generator. Never sends anything.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from twostroke.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a prompt. Pieces of one name have the same text, so a prompt shares the pieces it begins with."""

    name: str
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One request to come. In an open loop it has a time of its own or follows another's end."""

    pieces: tuple[Piece, ...]
    output_tokens: int
    due_s: float | None = None  # after the start
    follows: int | None = None  # the item whose answer must have ended, by its place
    pause_s: float = 0.0  # after that end

    @property
    def prompt_tokens(self) -> int:
        return sum(piece.num_tokens for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Workload:
    """Items in the order they are due, where they come from, and how they were scaled."""

    items: tuple[Item, ...]
    source: str
    is_traced: bool = False  # from a file, as `source` says
    length_scale: float = 1.0
    speed: float = 1.0

    @property
    def has_times(self) -> bool:
        return bool(self.items) and all(item.due_s is not None or item.follows is not None for item in self.items)

    def scaled(self, *, lengths: float, speed: float) -> "Workload":
        """Tokens x `lengths`, each piece rounded and at least 1; times / `speed`."""

        def scaled(item: Item) -> Item:
            return replace(
                item,
                pieces=tuple(Piece(piece.name, max(1, round(piece.num_tokens * lengths))) for piece in item.pieces),
                output_tokens=max(1, round(item.output_tokens * lengths)),
                due_s=None if item.due_s is None else item.due_s / speed,
                pause_s=item.pause_s / speed,
            )

        items = tuple(map(scaled, self.items))
        return replace(self, items=items, length_scale=self.length_scale * lengths, speed=self.speed * speed)

    def first(self, count: int) -> "Workload":
        """The first `count` items."""
        return replace(self, items=self.items[:count])

    def due_at(self, times_s: Sequence[float]) -> "Workload":
        """The same requests at other times; nobody waits for anybody."""
        items = (replace(item, due_s=time_s, follows=None) for item, time_s in zip(self.items, times_s, strict=True))
        return replace(self, items=tuple(items))

    def in_turn(self) -> "Workload":
        """The same requests without times, for a closed loop."""
        return replace(self, items=tuple(replace(item, due_s=None, follows=None) for item in self.items))

    def check_fits(self, context: int) -> None:
        """Raises ConfigError where a request is longer than the server's context: nothing is cut or left out."""
        fix = "fewer --input-tokens or --output-tokens fit"
        longest = max(self.items, key=lambda item: item.prompt_tokens + item.output_tokens)
        needed = longest.prompt_tokens + longest.output_tokens
        if needed <= context:
            return
        if self.is_traced:
            fix = f"--length-scale of at most {self.length_scale * context / needed * 0.999:.3g} fits"
        sizes = f"{longest.prompt_tokens} + {longest.output_tokens} = {needed} tokens"
        raise ConfigError(f"the longest request has {sizes}, the server's context is {context}: {fix}")


def random_workload(
    *, count: int, prompt_tokens: tuple[int, int], output_tokens: tuple[int, int], seed: int
) -> Workload:
    """`count` prompts that share nothing, lengths even between two bounds."""
    rng = random.Random(seed)
    items = tuple(
        Item(
            pieces=(Piece(f"random {seed} {number}", rng.randint(*prompt_tokens)),),
            output_tokens=rng.randint(*output_tokens),
        )
        for number in range(count)
    )
    return Workload(items, "random words")
