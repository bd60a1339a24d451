"""The KV cache of one loaded model: probe, reserve, commit; fork; trim, drop_tail, blank, free.

Asking changes nothing. Reserving succeeds whole or changes nothing. Content becomes findable only by
commit, for full blocks of verified tokens. Called by the scheduler; tables are read by the engine.
Never touches KV bytes: a BlockCopy asks the engine to.
"""

from collections import Counter
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from twostroke.cache.block_pool import BlockPool
from twostroke.cache.block_table import BLANK, BlockTable
from twostroke.cache.config import CacheConfig
from twostroke.cache.prefix_index import block_key, root_key
from twostroke.core.step import BlockCopy


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """A reusable start of a sequence: `num_tokens` tokens, and per group the table entries they need."""

    num_tokens: int
    blocks: tuple[tuple[int, ...], ...]
    num_held: tuple[int, ...]  # per group: blocks of the hit
    num_idle: tuple[int, ...]  # per group: of these, blocks that nobody holds now


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """Blocks summed over KV groups."""

    free: int
    cached: int
    held: int
    total: int


@dataclass(slots=True)
class _Tenure:
    """What one sequence holds. `keys` are the chained keys of its full blocks, computed once."""

    root: bytes
    tables: tuple[BlockTable, ...]
    keys: list[bytes] = field(default_factory=list)
    num_computed: int = 0
    num_published: int = 0  # full blocks offered to the index
    num_writable: int = 0  # positions below it can be written without asking
    next_change: int = 0  # commit has nothing to do while num_computed is below


class KVCache:
    """Integer bookkeeping over KV groups (layers of equal window)."""

    def __init__(self, config: CacheConfig) -> None:
        self.config = config
        self._block_size = config.block_size
        self._pools = tuple(BlockPool(num_blocks) for num_blocks in config.num_blocks)
        self._tenures: dict[int, _Tenure] = {}
        self.num_queries = 0  # prompt tokens looked up
        self.num_hits = 0  # of these, found

    # What is there

    @property
    def num_groups(self) -> int:
        return len(self._pools)

    def counts(self) -> BlockCounts:
        """Where the blocks are now."""
        free = sum(pool.num_free for pool in self._pools)
        cached = sum(pool.num_cached for pool in self._pools)
        total = sum(pool.num_blocks for pool in self._pools)
        return BlockCounts(free=free, cached=cached, held=total - free - cached, total=total)

    @property
    def num_available(self) -> tuple[int, ...]:
        """Blocks that can be handed out: free ones and cached ones nobody holds."""
        return tuple([pool.num_available for pool in self._pools])

    @property
    def num_wasted_slots(self) -> int:
        """Reserved slots without a computed token, over all sequences and groups."""
        return sum(
            len(table.blocks) * self._block_size - tenure.num_computed
            for tenure in self._tenures.values()
            for table in tenure.tables
        )

    @property
    def num_reserved_slots(self) -> int:
        return sum(table.num_held for tenure in self._tenures.values() for table in tenure.tables) * self._block_size

    def table(self, sequence_id: int, group: int) -> list[int]:
        """Block ids of a sequence, BLANK (-1) where a window left an entry behind."""
        return list(self._tenures[sequence_id].tables[group].blocks)

    def table_array(self, sequence_id: int, group: int) -> npt.NDArray[np.int32]:
        """The same as an int32 view without a copy; valid until the next plan, commit or abort."""
        return self._tenures[sequence_id].tables[group].array

    def num_held_by(self, sequence_id: int) -> tuple[int, ...]:
        """Blocks in the sequence's tables, per group."""
        return tuple([table.num_held for table in self._tenures[sequence_id].tables])

    def num_held_together(self, sequence_ids: Seq[int]) -> tuple[int, ...]:
        """Blocks per group in the tables of these sequences, a shared one counted once."""
        if len(sequence_ids) == 1:
            return self.num_held_by(sequence_ids[0])
        return tuple(
            [
                len({block for each in sequence_ids for block in self._tenures[each].tables[group].held})
                for group in range(self.num_groups)
            ]
        )

    def num_entries(self, sequence_id: int) -> int:
        """Length of the sequence's tables, blank entries included; the same in every group."""
        return len(self._tenures[sequence_id].tables[0].blocks)

    def blocks_for(self, num_tokens: int) -> tuple[int, ...]:
        """Blocks per group that a sequence with this many computed tokens holds."""
        num_entries = self._num_entries(num_tokens)
        return tuple(num_entries - self._first_visible(window, num_tokens) for window in self.config.windows)

    def peak_blocks(self, num_tokens: int, *, max_chunk: int) -> tuple[int, ...]:
        """Most blocks per group a sequence holds on its way to `num_tokens`, in chunks of at most `max_chunk`."""
        num_entries = self._num_entries(num_tokens)
        peaks = []
        for window in self.config.windows:
            if window is None:
                peaks.append(num_entries)
            else:  # an interval of that many positions touches at most so many blocks
                peaks.append(min(num_entries, (window + max_chunk - 3) // self._block_size + 2))
        return tuple(peaks)

    def peak_blocks_of_beams(self, num_prompt: int, num_tokens: int, *, width: int, max_chunk: int) -> tuple[int, ...]:
        """The same for `width` sequences that share a prompt, each on its own way to `num_tokens`.

        Full blocks of the prompt are held once; a window may have left them behind, so there each counts for itself.
        """
        shared = min(num_prompt, num_tokens) // self._block_size
        peaks = self.peak_blocks(num_tokens, max_chunk=max_chunk)
        return tuple(
            width * peak if window is not None else shared + width * (peak - shared)
            for peak, window in zip(peaks, self.config.windows, strict=True)
        )

    # Life of a sequence

    def open(self, sequence_id: int, *, salt: str = "") -> None:
        """Make a sequence known; it holds nothing yet. Only sequences of equal `salt` share content."""
        assert sequence_id not in self._tenures, f"sequence {sequence_id} is open already"
        config = self.config
        root = root_key((salt, config.fingerprint, config.precision, config.adapter))
        self._tenures[sequence_id] = _Tenure(root, tuple(BlockTable() for _ in self._pools))

    def probe(self, sequence_id: int, token_ids: Seq[int]) -> PrefixHit:
        """The longest findable prefix that leaves at least the last token to compute. Changes nothing.

        Full groups need the whole chain, window groups the blocks the next token can see. The tokens of a
        sequence only grow at the end (but for `trim`): keys once computed are kept.
        """
        tenure = self._tenures[sequence_id]
        limit = max(len(token_ids) - 1, 0) // self._block_size
        self._extend_keys(tenure, token_ids, limit)
        keys = tenure.keys[:limit]
        runs = [0] * self.num_groups  # per group: findable blocks in a row up to here
        best = 0
        for entry, key in enumerate(keys):
            for group, pool in enumerate(self._pools):
                runs[group] = runs[group] + 1 if pool.index.find(key) is not None else 0
            position = (entry + 1) * self._block_size
            windows = self.config.windows
            if any(window is None and runs[group] <= entry for group, window in enumerate(windows)):
                break
            if all(runs[g] >= entry + 1 - self._first_visible(window, position) for g, window in enumerate(windows)):
                best = entry + 1
        return self._hit(keys[:best])

    def adopt(self, sequence_id: int, hit: PrefixHit) -> None:
        """Let the sequence hold a hit probed just now, in place of what it held; it starts behind the hit."""
        tenure = self._tenures[sequence_id]
        for pool, blocks in zip(self._pools, hit.blocks, strict=True):
            for block in blocks:
                if block != BLANK:
                    pool.retain(block)
        for pool, table, blocks in zip(self._pools, tenure.tables, hit.blocks, strict=True):
            self._cut(pool, table, 0)
            for block in blocks:
                table.append(block)
        tenure.num_computed = hit.num_tokens
        tenure.num_published = hit.num_tokens // self._block_size
        self._settle(tenure)

    def record_lookup(self, *, num_queries: int, num_hits: int) -> None:
        """Count a prompt's lookup, once per sequence."""
        self.num_queries += num_queries
        self.num_hits += num_hits

    def can_write(self, sequence_id: int, end: int) -> bool:
        """Whether positions up to `end` (exclusive) are reserved and private."""
        return end <= self._tenures[sequence_id].num_writable

    def try_reserve(self, sequence_id: int, *, end: int) -> tuple[BlockCopy, ...] | None:
        """Reserve the positions from the computed ones up to `end` for writing; None if they do not fit.

        Whole or not at all. Shared blocks in that range are replaced; the copies must run before the step.
        """
        tenure = self._tenures[sequence_id]
        num_entries = self._num_entries(end)
        first = tenure.num_computed // self._block_size
        for pool, table in zip(self._pools, tenure.tables, strict=True):
            num_needed = max(num_entries - len(table.blocks), 0) + len(self._shared(pool, table, first))
            if num_needed > pool.num_available:
                return None
        copies: list[BlockCopy] = []
        for group, (pool, table) in enumerate(zip(self._pools, tenure.tables, strict=True)):
            copies += self._unshare(group, table, first)
            while len(table.blocks) < num_entries:
                table.append(pool.allocate())
        tenure.num_writable = min(len(table.blocks) for table in tenure.tables) * self._block_size
        return tuple(copies)

    def commit(self, sequence_id: int, token_ids: Seq[int], *, num_computed: int, publish: bool = True) -> None:
        """The first `num_computed` tokens are computed and verified: publish full blocks, blank what no one sees."""
        tenure = self._tenures[sequence_id]
        tenure.num_computed = num_computed
        if num_computed < tenure.next_change:
            return
        if publish:
            self._publish(tenure, token_ids)
        self._blank(tenure)
        self._settle_change(tenure)

    def fork(self, sequence_id: int, *, child_id: int) -> None:
        """Open `child_id` with the same blocks, shared; whoever writes first into a shared one copies it."""
        assert child_id not in self._tenures, f"sequence {child_id} is open already"
        parent = self._tenures[sequence_id]
        tables = []
        for pool, table in zip(self._pools, parent.tables, strict=True):
            twin = BlockTable()
            for block in table.blocks:
                if block != BLANK:
                    pool.retain(block)
                twin.append(block)
            tables.append(twin)
        parent.num_writable = 0
        self._tenures[child_id] = _Tenure(
            parent.root,
            tuple(tables),
            keys=list(parent.keys),
            num_computed=parent.num_computed,
            num_published=parent.num_published,
            next_change=parent.next_change,
        )

    # Ways to shrink

    def trim(self, sequence_id: int, num_tokens: int) -> None:
        """Forget the tokens from `num_tokens` on: drafts that were refused, text past a stop."""
        tenure = self._tenures[sequence_id]
        assert num_tokens >= 0, num_tokens
        for pool, table, window in zip(self._pools, tenure.tables, self.config.windows, strict=True):
            visible = self._first_visible(window, num_tokens)
            assert table.num_blank <= visible, f"entry {visible} is needed at {num_tokens} tokens but blank"
            self._cut(pool, table, self._num_entries(num_tokens))
        full = num_tokens // self._block_size
        del tenure.keys[full:]
        tenure.num_computed = min(tenure.num_computed, num_tokens)
        tenure.num_published = min(tenure.num_published, full)
        self._settle(tenure)

    def drop_tail(self, sequence_id: int, num_entries: int) -> int:
        """Keep the first `num_entries` blocks; returns the computed tokens that survive.

        Where a window group has lost what a token behind the head must see, nothing survives.
        """
        tenure = self._tenures[sequence_id]
        num_kept = min(tenure.num_computed, num_entries * self._block_size)
        for table, window in zip(tenure.tables, self.config.windows, strict=True):
            if table.num_blank > self._first_visible(window, num_kept):
                num_kept = 0
        for pool, table in zip(self._pools, tenure.tables, strict=True):
            self._cut(pool, table, self._num_entries(num_kept))
        tenure.num_computed = num_kept
        tenure.num_published = min(tenure.num_published, num_kept // self._block_size)
        self._settle(tenure)
        return num_kept

    def blank(self, sequence_id: int) -> None:
        """Let go of the entries that sliding windows left behind."""
        self._blank(self._tenures[sequence_id])

    def free(self, sequence_id: int) -> None:
        """The sequence ends; its published blocks stay findable until they are reused, tails first to go."""
        tenure = self._tenures.pop(sequence_id)
        for pool, table in zip(self._pools, tenure.tables, strict=True):
            self._cut(pool, table, 0)

    def num_freed_by(self, sequence_ids: Seq[int]) -> tuple[int, ...]:
        """Blocks per group that would become available if these sequences let go of everything."""
        freed = []
        for group, pool in enumerate(self._pools):
            holders = Counter(block for each in sequence_ids for block in self._tenures[each].tables[group].held)
            freed.append(sum(pool.count(block) == count for block, count in holders.items()))
        return tuple(freed)

    def check_integrity(self) -> None:
        """Assert free + cached + held = total in every group, and counts equal to the tables."""
        for group, pool in enumerate(self._pools):
            tables = [tenure.tables[group] for tenure in self._tenures.values()]
            pool.check_integrity(Counter(block for table in tables for block in table.held))
            for table in tables:
                assert table.array.tolist() == table.blocks, "array and list of a table differ"
                assert [block == BLANK for block in table.blocks].count(True) == table.num_blank

    # Inside

    def _num_entries(self, num_tokens: int) -> int:
        return -(-num_tokens // self._block_size)

    def _first_visible(self, window: int | None, position: int) -> int:
        """First entry that a query at `position` or later can see; never beyond the entries before it."""
        if window is None:
            return 0
        return min(max(position - window + 1, 0), position) // self._block_size

    def _hit(self, keys: Seq[bytes]) -> PrefixHit:
        num_tokens = len(keys) * self._block_size
        blocks, num_held, num_idle = [], [], []
        for pool, window in zip(self._pools, self.config.windows, strict=True):
            first = self._first_visible(window, num_tokens)
            found = [pool.index.find(key) for key in keys[first:]]
            entries = tuple(block for block in found if block is not None)
            assert len(entries) == len(found), "a hit without its blocks"
            blocks.append((BLANK,) * first + entries)
            num_held.append(len(entries))
            num_idle.append(sum(pool.count(block) == 0 for block in entries))
        return PrefixHit(num_tokens, tuple(blocks), tuple(num_held), tuple(num_idle))

    def _extend_keys(self, tenure: _Tenure, token_ids: Seq[int], num_keys: int) -> None:
        keys, size = tenure.keys, self._block_size
        while len(keys) < num_keys:
            start = len(keys) * size
            keys.append(block_key(keys[-1] if keys else tenure.root, token_ids[start : start + size]))

    def _publish(self, tenure: _Tenure, token_ids: Seq[int]) -> None:
        full = tenure.num_computed // self._block_size
        self._extend_keys(tenure, token_ids, full)
        for entry in range(tenure.num_published, full):
            for pool, table in zip(self._pools, tenure.tables, strict=True):
                block = table.blocks[entry]
                if block != BLANK:
                    pool.index.publish(tenure.keys[entry], block=block)
        tenure.num_published = max(tenure.num_published, full)

    def _blank(self, tenure: _Tenure) -> None:
        for pool, table, window in zip(self._pools, tenure.tables, self.config.windows, strict=True):
            first = min(self._first_visible(window, tenure.num_computed), len(table.blocks))
            while table.num_blank < first:
                pool.release(table.blank_next())

    def _shared(self, pool: BlockPool, table: BlockTable, first: int) -> list[int]:
        """Entries from `first` on that another table holds too."""
        return [j for j in range(max(first, table.num_blank), len(table.blocks)) if pool.count(table.blocks[j]) > 1]

    def _unshare(self, group: int, table: BlockTable, first: int) -> list[BlockCopy]:
        """Give the sequence its own blocks from entry `first` on; content about to be overwritten is withdrawn."""
        pool, copies = self._pools[group], []
        for entry in self._shared(pool, table, first):
            target = pool.allocate()
            source = table.replace(entry, target)
            pool.release(source)
            copies.append(BlockCopy(group, source, target))
        for block in table.blocks[max(first, table.num_blank) :]:
            pool.index.withdraw(block)
        return copies

    def _cut(self, pool: BlockPool, table: BlockTable, num_entries: int) -> None:
        for block in table.shorten(num_entries):
            pool.release(block)

    def _settle(self, tenure: _Tenure) -> None:
        """After a change of tables: the next write asks again."""
        tenure.num_writable = 0
        self._settle_change(tenure)

    def _settle_change(self, tenure: _Tenure) -> None:
        size = self._block_size
        next_change = (tenure.num_computed // size + 1) * size
        for table, window in zip(tenure.tables, self.config.windows, strict=True):
            if window is not None:
                next_change = min(next_change, (table.num_blank + 1) * size + window - 1)
        tenure.next_change = next_change
