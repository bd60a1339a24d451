"""Owns the block ids of one KV group and how many tables hold each.

    free (no content) -> held (count >= 1) -> cached (count 0, still findable) -> held again, or evicted

Called by the cache alone; knows nothing of sequences or tokens.
"""

from collections import OrderedDict

from twostroke.cache.prefix_index import PrefixIndex


class BlockPool:
    """Blocks 0 .. num_blocks - 1. Evicts the cached block that was released longest ago."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.index = PrefixIndex()
        self._counts = [0] * num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))  # a stack; block 0 goes first
        self._cached: OrderedDict[int, None] = OrderedDict()  # oldest release first

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_available(self) -> int:
        return len(self._free) + len(self._cached)

    @property
    def num_held(self) -> int:
        return self.num_blocks - self.num_available

    def count(self, block: int) -> int:
        """How many tables hold the block."""
        return self._counts[block]

    def allocate(self) -> int:
        """A block for one new holder: a free one, else the oldest cached one, which loses its content."""
        assert self.num_available, f"no block left of {self.num_blocks}"
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            self.index.withdraw(block)
        self._counts[block] = 1
        return block

    def retain(self, block: int) -> None:
        """One more holder; the block must be held or cached."""
        if self._counts[block] == 0:
            assert block in self._cached, f"block {block} is free and cannot be shared"
            del self._cached[block]
        self._counts[block] += 1

    def release(self, block: int) -> None:
        """One holder less; the last one leaves it cached if it is findable, else free."""
        assert self._counts[block] > 0, f"block {block} is released twice"
        self._counts[block] -= 1
        if self._counts[block] == 0:
            if block in self.index:
                self._cached[block] = None
            else:
                self._free.append(block)

    def check_integrity(self, holders: dict[int, int]) -> None:
        """Assert that counts equal `holders` (block -> tables holding it) and every block has one state."""
        for block in range(self.num_blocks):
            count = holders.get(block, 0)
            assert self._counts[block] == count, f"block {block} counts {self._counts[block]}, {count} tables hold it"
            assert (block in self._cached) <= (count == 0 and block in self.index), f"block {block} is wrongly cached"
        free, cached, held = set(self._free), set(self._cached), {block for block, count in holders.items() if count}
        assert len(free) == len(self._free), "a block is free twice"
        assert not any(block in self.index for block in free), "a free block is findable"
        total = len(free | cached | held)
        assert len(free) + len(cached) + len(held) == total == self.num_blocks, (
            f"free {len(free)} + cached {len(cached)} + held {len(held)} is not {self.num_blocks}"
        )
