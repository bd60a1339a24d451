"""Where the positions of one sequence lie in one KV group: entry j holds [j * block_size, (j + 1) * block_size).

Grows while the sequence lives; an entry a sliding window left behind is blank. Called by the cache
alone, which keeps the pool's counts in step.
"""

import numpy as np
import numpy.typing as npt

BLANK = -1
_FIRST_CAPACITY = 8  # entries; doubles, so growth is rare


class BlockTable:
    """Block ids as a list, and the same as an array that readers are given without a copy."""

    __slots__ = ("_array", "blocks", "num_blank")

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.num_blank = 0  # blank entries are always the first ones
        self._array: npt.NDArray[np.int32] = np.empty(_FIRST_CAPACITY, np.int32)

    @property
    def array(self) -> npt.NDArray[np.int32]:
        """View of the entries; valid until the table changes."""
        return self._array[: len(self.blocks)]

    @property
    def held(self) -> list[int]:
        return self.blocks[self.num_blank :]

    @property
    def num_held(self) -> int:
        return len(self.blocks) - self.num_blank

    def append(self, block: int) -> None:
        """One more entry at the end; BLANK only before the first held block."""
        if block == BLANK:
            assert self.num_blank == len(self.blocks), "blank entry behind a held one"
            self.num_blank += 1
        if len(self.blocks) == len(self._array):
            self._array = np.concatenate([self._array, np.empty_like(self._array)])
        self._array[len(self.blocks)] = block
        self.blocks.append(block)

    def replace(self, entry: int, block: int) -> int:
        """Put another block into a held entry; returns the old one."""
        old = self.blocks[entry]
        self.blocks[entry] = block
        self._array[entry] = block
        return old

    def blank_next(self) -> int:
        """Blank the first held entry; returns its block."""
        block = self.replace(self.num_blank, BLANK)
        self.num_blank += 1
        return block

    def shorten(self, num_entries: int) -> list[int]:
        """Cut to `num_entries`; returns the held blocks cut off, last first."""
        cut = self.blocks[max(num_entries, self.num_blank) :]
        del self.blocks[num_entries:]
        self.num_blank = min(self.num_blank, num_entries)
        return cut[::-1]
