"""Seams for what lives above the engine: who proposes draft tokens, who chooses among candidates."""

from collections.abc import Mapping, Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

from twostroke.core.sequence import Sequence
from twostroke.core.step import TokenLogprob


class Drafter(Protocol):
    """Guesses the next tokens of a sequence; called on the engine's thread before plan."""

    def propose(self, sequence: Sequence, limit: int) -> Seq[int]: ...


@dataclass(frozen=True, slots=True)
class Choice:
    """What becomes of a group of sequences: who grows by which token, who forks, who is dropped."""

    extend: Mapping[int, int]  # sequence id -> token id
    fork: tuple[tuple[int, int], ...]  # (parent sequence id, token id)
    drop: tuple[int, ...]


class Chooser(Protocol):
    """Decides for a whole group, between sampler and commit."""

    def choose(self, group: Seq[Sequence], candidates: Mapping[int, Seq[TokenLogprob]]) -> Choice: ...
