"""How a model makes one vector of a text: which of its tokens' final states it takes. A fact of the model's file."""

from dataclasses import dataclass
from enum import StrEnum


class PoolingKind(StrEnum):
    MEAN = "mean"  # of all tokens
    CLS = "cls"  # the first token's
    LAST = "last"  # the last token's, which has seen the others


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling:
    """`dimensions` are the lengths a vector may be cut to (Matryoshka), its own last; that alone where none is told."""

    kind: PoolingKind
    dimensions: tuple[int, ...] | range

    @property
    def width(self) -> int:
        return self.dimensions[-1]
