"""What every reader that runs a program offers: the engine knows this protocol and nothing else of them."""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from twostroke.program.program import BoundStep

Precision = Literal["f32", "f16", "bf16", "int8"]


@dataclass(frozen=True, slots=True)
class KVSpec:
    """The KV store a reader is to allocate: one pool of blocks per KV group."""

    precision: Precision
    block_size: int  # tokens, 16 or 32
    num_blocks: tuple[int, ...]  # per KV group


class Reader(Protocol):
    """Walks a program over one step at a time and owns the bytes of its KV cache."""

    def run(self, step: BoundStep) -> npt.NDArray[np.float32]:
        """Logits [num_selected, vocab], or states [num_selected, width] of a program without a head.

        Valid until the next run. Of rows with candidates there are none. Raises KernelError.
        """
        ...

    def copy_block(self, group: int, source: int, target: int) -> None:
        """Bytes of block `source` of every layer of a KV group go to block `target`."""
        ...

    @property
    def kv_bytes_per_block(self) -> tuple[int, ...]:
        """Bytes of one block over all layers, per KV group."""
        ...

    def close(self) -> None:
        """Frees what the reader holds; it must not run again."""
        ...
