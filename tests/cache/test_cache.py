"""Probe, reserve, commit, fork and the ways to shrink, on caches that fit in the head."""

import copy
from collections.abc import Sequence as Seq

import pytest
from hypothesis import given, strategies as st

from tests.builders_schedule import make_cache
from twostroke.cache.cache import KVCache
from twostroke.core.step import BlockCopy

A, B, C = 1, 2, 3  # sequence ids


def compute(cache: KVCache, sequence_id: int, token_ids: Seq[int], *, num_computed: int | None = None) -> None:
    """Reserve and commit in one go."""
    end = len(token_ids) if num_computed is None else num_computed
    assert cache.try_reserve(sequence_id, end=end) is not None
    cache.commit(sequence_id, token_ids, num_computed=end)
    cache.check_integrity()


def opened(cache: KVCache, sequence_id: int, token_ids: Seq[int], *, salt: str = "") -> None:
    cache.open(sequence_id, salt=salt)
    compute(cache, sequence_id, token_ids)


def state_of(cache: KVCache) -> object:
    """Everything but the memo of keys."""
    twin = copy.deepcopy(cache)
    for tenure in twin._tenures.values():
        tenure.keys.clear()
    tables = {each: [t.blocks for t in tenure.tables] for each, tenure in twin._tenures.items()}
    pools = [(p._counts, p._free, list(p._cached), p.index._key_of) for p in twin._pools]
    return (tables, pools, [(t.num_computed, t.num_published, t.num_writable) for t in twin._tenures.values()])


# Reserve


def test_reserve_takes_the_blocks_that_positions_need() -> None:
    cache = make_cache(num_blocks=4, block_size=4)
    cache.open(A)
    assert cache.try_reserve(A, end=5) == ()
    assert len(cache.table(A, 0)) == 2
    assert cache.num_available == (2,)
    assert cache.can_write(A, 8)
    assert not cache.can_write(A, 9)


@pytest.mark.parametrize("windows", [(None,), (None, 6)])
def test_reserve_that_does_not_fit_changes_nothing(windows: tuple[int | None, ...]) -> None:
    cache = make_cache(num_blocks=(4, 3)[: len(windows)], block_size=4, windows=windows)
    opened(cache, A, range(9))
    cache.open(B)
    before = state_of(cache)
    assert cache.try_reserve(B, end=8) is None
    assert state_of(cache) == before


def test_the_array_of_a_table_is_the_table() -> None:
    cache = make_cache(num_blocks=20, block_size=4)
    opened(cache, A, range(70))
    assert cache.table_array(A, 0).tolist() == cache.table(A, 0)


# Probe


def test_a_second_sequence_finds_full_blocks_and_computes_the_rest() -> None:
    cache = make_cache(num_blocks=8, block_size=4)
    opened(cache, A, range(10))
    cache.open(B)
    hit = cache.probe(B, range(10))
    assert hit.num_tokens == 8
    assert hit.num_idle == (0,)
    cache.adopt(B, hit)
    cache.check_integrity()
    assert cache.table(B, 0) == cache.table(A, 0)[:2]


@pytest.mark.parametrize(("num_prompt", "num_found"), [(1, 0), (3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8)])
def test_at_least_the_last_token_is_left_to_compute(num_prompt: int, num_found: int) -> None:
    """Known bug Q10: an identical request, or one of exactly k blocks, found itself whole and computed nothing."""
    cache = make_cache(num_blocks=8, block_size=4)
    opened(cache, A, range(12))
    cache.free(A)
    cache.open(B)
    assert cache.probe(B, range(num_prompt)).num_tokens == num_found


def test_a_probe_changes_nothing() -> None:
    cache = make_cache(num_blocks=8, block_size=4, windows=(None, 6))
    opened(cache, A, range(10))
    cache.free(A)
    cache.open(B)
    before = state_of(cache)
    first = cache.probe(B, range(10))
    assert state_of(cache) == before
    assert cache.probe(B, range(10)) == first


def test_the_chain_ends_at_the_first_difference() -> None:
    cache = make_cache(num_blocks=8, block_size=2)
    opened(cache, A, [1, 2, 3, 4, 5, 6])
    cache.open(B)
    assert cache.probe(B, [1, 2, 3, 9, 5, 6, 7]).num_tokens == 2


def test_equal_blocks_behind_different_heads_are_not_confused() -> None:
    cache = make_cache(num_blocks=8, block_size=2)
    opened(cache, A, [1, 2, 5, 6])
    cache.open(B)
    assert cache.probe(B, [3, 4, 5, 6, 7]).num_tokens == 0


def test_tenants_with_other_salts_never_meet() -> None:
    """Known bug Q8: whether somebody else's prompt is cached must not show."""
    cache = make_cache(num_blocks=8, block_size=2)
    opened(cache, A, [1, 2, 3, 4], salt="tenant a")
    for sequence_id, salt, found in [(B, "", 0), (C, "tenant b", 0), (4, "tenant a", 2)]:
        cache.open(sequence_id, salt=salt)
        assert cache.probe(sequence_id, [1, 2, 3, 4]).num_tokens == found


def test_a_block_is_findable_only_when_full_and_committed() -> None:
    cache = make_cache(num_blocks=8, block_size=4)
    cache.open(A)
    cache.open(B)
    cache.try_reserve(A, end=8)
    assert cache.probe(B, range(9)).num_tokens == 0
    cache.commit(A, range(8), num_computed=3)
    assert cache.probe(B, range(9)).num_tokens == 0
    cache.commit(A, range(8), num_computed=4)
    assert cache.probe(B, range(9)).num_tokens == 4
    cache.commit(A, range(8), num_computed=7)
    assert cache.probe(B, range(9)).num_tokens == 4


def test_unpublished_content_is_never_found() -> None:
    cache = make_cache(num_blocks=8, block_size=4)
    cache.open(A)
    cache.try_reserve(A, end=8)
    cache.commit(A, range(8), num_computed=8, publish=False)
    cache.free(A)
    cache.open(B)
    assert cache.probe(B, range(9)).num_tokens == 0
    assert cache.counts().free == 8


# Eviction


def test_tails_are_evicted_before_heads() -> None:
    cache = make_cache(num_blocks=4, block_size=2)
    opened(cache, A, range(8))
    cache.free(A)
    opened(cache, B, range(100, 104))
    cache.open(C)
    assert cache.probe(C, range(9)).num_tokens == 4


def test_what_was_used_last_is_evicted_last() -> None:
    cache = make_cache(num_blocks=4, block_size=2)
    opened(cache, A, [1, 2, 3])
    opened(cache, B, [5, 6, 7])
    cache.free(A)
    cache.free(B)
    cache.open(C)
    cache.adopt(C, cache.probe(C, [1, 2, 3]))
    cache.free(C)
    opened(cache, 4, range(50, 56))
    cache.open(5)
    assert cache.probe(5, [1, 2, 3]).num_tokens == 2
    assert cache.probe(5, [1, 2, 3]).num_idle == (1,)
    cache.open(6)
    assert cache.probe(6, [5, 6, 7]).num_tokens == 0


def test_idle_blocks_of_a_hit_are_told_so_that_nobody_counts_them_twice() -> None:
    cache = make_cache(num_blocks=4, block_size=2)
    opened(cache, A, range(5))
    cache.open(B)
    assert cache.probe(B, range(5)).num_idle == (0,)
    cache.free(A)
    hit = cache.probe(B, range(5))
    assert (hit.num_held, hit.num_idle) == ((2,), (2,))
    cache.adopt(B, hit)
    assert cache.num_available == (2,)


# Windows


def test_entries_a_window_left_behind_are_blank_and_free() -> None:
    cache = make_cache(num_blocks=4, block_size=2, windows=(3,))
    cache.open(A)
    for end in range(1, 11):
        assert cache.try_reserve(A, end=end) == ()
        cache.commit(A, range(end), num_computed=end)
        visible = range(max(end - 3 + 1, 0), end)  # what a query at `end` sees of the past
        table = cache.table(A, 0)
        assert all(table[position // 2] >= 0 for position in visible)
        assert table.count(-1) == max(end - 3 + 1, 0) // 2
        assert cache.num_held_by(A) == cache.blocks_for(end)
        cache.check_integrity()


def test_a_full_group_needs_the_whole_chain_and_a_window_group_its_last_window() -> None:
    cache = make_cache(num_blocks=(8, 3), block_size=2, windows=(None, 3))
    cache.open(A)
    for end in range(1, 9):
        cache.try_reserve(A, end=end)
        cache.commit(A, range(end), num_computed=end)
    cache.free(A)
    cache.open(B)
    hit = cache.probe(B, range(9))
    assert hit.num_tokens == 8
    assert hit.blocks[0].count(-1) == 0
    assert hit.blocks[1].count(-1) == 3
    cache.adopt(B, hit)
    cache.check_integrity()
    assert cache.table(B, 1).count(-1) == 3


def test_a_window_group_that_lost_its_last_window_falls_back_to_an_earlier_hit() -> None:
    cache = make_cache(num_blocks=(8, 8), block_size=2, windows=(None, 3))
    opened(cache, A, range(8))
    cache.free(A)
    evicted = cache._pools[1].index.find(next(iter(cache._pools[1].index._block_of)))
    assert evicted is not None
    last_key = list(cache._pools[1].index._block_of)[-1]
    last = cache._pools[1].index.find(last_key)
    assert last is not None
    cache._pools[1].retain(last)
    cache._pools[1].index.withdraw(last)
    cache._pools[1].release(last)
    cache.open(B)
    assert cache.probe(B, range(9)).num_tokens == 6


@given(st.integers(1, 5), st.integers(1, 12), st.integers(1, 6), st.lists(st.integers(1, 6), min_size=1, max_size=12))
def test_no_walk_holds_more_blocks_than_the_stated_peak(
    block_size: int, window: int, max_chunk: int, chunks: list[int]
) -> None:
    cache = make_cache(num_blocks=100, block_size=block_size, windows=(None, window))
    chunks = [min(chunk, max_chunk) for chunk in chunks]
    peaks = cache.peak_blocks(sum(chunks), max_chunk=max_chunk)
    cache.open(A)
    end = 0
    for chunk in chunks:
        end += chunk
        cache.try_reserve(A, end=end)
        assert all(held <= peak for held, peak in zip(cache.num_held_by(A), peaks, strict=True))
        cache.commit(A, range(end), num_computed=end)
        assert cache.num_held_by(A) == cache.blocks_for(end)


# Fork and copy on write


def test_a_fork_shares_blocks_and_the_first_writer_copies() -> None:
    cache = make_cache(num_blocks=6, block_size=4)
    opened(cache, A, range(6))
    cache.fork(A, child_id=B)
    assert cache.table(B, 0) == cache.table(A, 0)
    assert cache.counts().held == 2
    assert not cache.can_write(A, 7)
    assert not cache.can_write(B, 7)
    shared = cache.table(A, 0)
    (copy_of_tail,) = cache.try_reserve(B, end=7) or ()
    assert copy_of_tail == BlockCopy(group=0, source=shared[1], target=cache.table(B, 0)[1])
    assert cache.table(B, 0)[0] == shared[0]
    assert cache.try_reserve(A, end=7) == (), "the other one is alone with its block now"
    assert cache.table(A, 0) == shared
    cache.check_integrity()


def test_a_fork_at_a_block_border_copies_nothing() -> None:
    cache = make_cache(num_blocks=6, block_size=4)
    opened(cache, A, range(8))
    cache.fork(A, child_id=B)
    assert cache.try_reserve(B, end=9) == ()
    assert cache.table(B, 0)[:2] == cache.table(A, 0)


def test_a_copy_that_does_not_fit_changes_nothing() -> None:
    cache = make_cache(num_blocks=2, block_size=4)
    opened(cache, A, range(6))
    cache.fork(A, child_id=B)
    before = state_of(cache)
    assert cache.try_reserve(B, end=7) is None
    assert state_of(cache) == before


def test_blocks_of_a_fork_are_free_when_both_are_gone() -> None:
    cache = make_cache(num_blocks=4, block_size=4)
    opened(cache, A, range(6))
    cache.fork(A, child_id=B)
    cache.free(A)
    cache.check_integrity()
    assert cache.counts().held == 2
    cache.free(B)
    assert cache.counts().held == 0


# Ways to shrink


def test_trim_forgets_tokens_and_their_blocks() -> None:
    cache = make_cache(num_blocks=4, block_size=4)
    opened(cache, A, range(10))
    cache.trim(A, 5)
    cache.check_integrity()
    assert len(cache.table(A, 0)) == 2
    cache.trim(A, 0)
    assert cache.table(A, 0) == []


def test_other_tokens_written_after_a_trim_are_published_as_themselves() -> None:
    cache = make_cache(num_blocks=4, block_size=4)
    opened(cache, A, [0, 1, 2, 3, 4])
    cache.trim(A, 2)
    compute(cache, A, [0, 1, 8, 9, 4])
    cache.open(B)
    assert cache.probe(B, [0, 1, 2, 3, 4]).num_tokens == 0, "that content was overwritten"
    cache.open(C)
    assert cache.probe(C, [0, 1, 8, 9, 4]).num_tokens == 4


def test_a_trimmed_block_that_others_read_is_copied_before_it_is_overwritten() -> None:
    cache = make_cache(num_blocks=4, block_size=4)
    opened(cache, A, [0, 1, 2, 3, 4])
    cache.open(B)
    cache.adopt(B, cache.probe(B, [0, 1, 2, 3, 4]))
    cache.trim(A, 2)
    copies = cache.try_reserve(A, end=5)
    assert copies is not None
    assert [each.source for each in copies] == cache.table(B, 0)
    assert cache.table(A, 0)[0] != cache.table(B, 0)[0]
    cache.check_integrity()


def test_trim_behind_a_window_raises_with_the_entry() -> None:
    cache = make_cache(num_blocks=8, block_size=2, windows=(3,))
    opened(cache, A, range(12))
    with pytest.raises(AssertionError, match="needed at 4 tokens but blank"):
        cache.trim(A, 4)


def test_drop_tail_keeps_the_head_and_tells_how_much() -> None:
    cache = make_cache(num_blocks=4, block_size=4)
    opened(cache, A, range(10))
    assert cache.drop_tail(A, 3) == 10
    assert cache.drop_tail(A, 2) == 8
    assert len(cache.table(A, 0)) == 2
    cache.check_integrity()
    assert cache.drop_tail(A, 0) == 0
    assert cache.counts().held == 0


def test_drop_tail_keeps_nothing_where_a_window_has_moved_on() -> None:
    cache = make_cache(num_blocks=8, block_size=2, windows=(None, 3))
    opened(cache, A, range(12))
    assert cache.drop_tail(A, 6) == 12
    assert cache.drop_tail(A, 5) == 0
    assert cache.counts().held == 0
    cache.check_integrity()


def test_a_dropped_tail_can_be_found_again() -> None:
    cache = make_cache(num_blocks=4, block_size=4)
    opened(cache, A, range(13))
    assert cache.drop_tail(A, 1) == 4
    hit = cache.probe(A, range(13))
    assert hit.num_tokens == 12
    cache.adopt(A, hit)
    cache.check_integrity()
    assert len(cache.table(A, 0)) == 3


def test_blank_is_the_shrinker_commit_uses() -> None:
    cache = make_cache(num_blocks=8, block_size=2, windows=(3,))
    opened(cache, A, range(8))
    before = cache.table(A, 0)
    cache.blank(A)
    assert cache.table(A, 0) == before


def test_freeing_twice_raises() -> None:
    cache = make_cache()
    cache.open(A)
    cache.free(A)
    with pytest.raises(KeyError):
        cache.free(A)


def test_a_sequence_is_opened_once() -> None:
    cache = make_cache()
    cache.open(A)
    with pytest.raises(AssertionError, match="sequence 1 is open already"):
        cache.open(A)
    with pytest.raises(AssertionError, match="sequence 1 is open already"):
        cache.fork(A, child_id=A)


# Counters


def test_waste_is_what_is_reserved_and_not_computed() -> None:
    cache = make_cache(num_blocks=8, block_size=4)
    cache.open(A)
    cache.try_reserve(A, end=9)
    assert (cache.num_reserved_slots, cache.num_wasted_slots) == (12, 12)
    cache.commit(A, range(9), num_computed=9)
    assert cache.num_wasted_slots == 3
    counts = cache.counts()
    assert (counts.free, counts.cached, counts.held, counts.total) == (5, 0, 3, 8)
    cache.free(A)
    counts = cache.counts()
    assert (counts.free, counts.cached, counts.held) == (6, 2, 0)


def test_blocks_freed_together_count_what_only_they_hold() -> None:
    cache = make_cache(num_blocks=8, block_size=4)
    opened(cache, A, range(6))
    cache.fork(A, child_id=B)
    opened(cache, C, range(100, 104))
    assert cache.num_freed_by([A]) == (0,)
    assert cache.num_freed_by([A, B]) == (2,)
    assert cache.num_freed_by([A, B, C]) == (3,)


def test_integrity_notices_a_leak() -> None:
    cache = make_cache()
    opened(cache, A, range(4))
    cache._pools[0].allocate()
    with pytest.raises(AssertionError, match="counts 1, 0 tables hold it"):
        cache.check_integrity()


@pytest.mark.parametrize("window", [1, 3, 4, 5, 9])
def test_a_block_is_blanked_at_the_first_position_that_cannot_see_it(window: int) -> None:
    cache = make_cache(num_blocks=(16, 16), block_size=4, windows=(None, window))
    cache.open(A)
    for position in range(30):
        assert cache.try_reserve(A, end=position + 1) is not None
        cache.commit(A, range(30), num_computed=position + 1)
        first_seen = max(position + 1 - window + 1, 0)  # by the next token
        wanted = min(first_seen // 4, len(cache.table(A, 1)))
        blanks = [entry for entry, block in enumerate(cache.table(A, 1)) if block == -1]
        assert blanks == list(range(wanted)), f"after {position + 1} tokens"
        assert -1 not in cache.table(A, 0)
    cache.check_integrity()
