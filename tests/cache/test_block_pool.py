"""Ids, counts and who is evicted first."""

import pytest
from hypothesis import given, strategies as st

from twostroke.cache.block_pool import BlockPool


def key(number: int) -> bytes:
    return bytes([number])


def cached(pool: BlockPool, numbers: list[int]) -> list[int]:
    """Allocate and publish a block per number, then release them in that order."""
    blocks = [pool.allocate() for _ in numbers]
    for number, block in zip(numbers, blocks, strict=True):
        pool.index.publish(key(number), block=block)
    for block in blocks:
        pool.release(block)
    return blocks


def test_blocks_go_from_free_to_held_to_free() -> None:
    pool = BlockPool(2)
    block = pool.allocate()
    assert (pool.num_free, pool.num_held, pool.num_cached) == (1, 1, 0)
    pool.release(block)
    assert (pool.num_free, pool.num_held, pool.num_cached) == (2, 0, 0)


def test_a_published_block_stays_cached_and_can_be_held_again() -> None:
    pool = BlockPool(2)
    (block,) = cached(pool, [1])
    assert (pool.num_free, pool.num_held, pool.num_cached) == (1, 0, 1)
    pool.retain(block)
    assert (pool.num_free, pool.num_held, pool.num_cached) == (1, 1, 0)
    assert pool.index.find(key(1)) == block


def test_free_blocks_go_before_cached_ones_and_the_oldest_cached_one_first() -> None:
    pool = BlockPool(3)
    first, second = cached(pool, [1, 2])
    assert pool.allocate() not in (first, second)
    assert pool.allocate() == first
    assert pool.index.find(key(1)) is None
    assert pool.index.find(key(2)) == second


def test_holding_a_block_makes_it_young_again() -> None:
    pool = BlockPool(2)
    first, second = cached(pool, [1, 2])
    pool.retain(first)
    pool.release(first)
    assert pool.allocate() == second


def test_a_held_block_is_never_evicted() -> None:
    pool = BlockPool(2)
    first, second = cached(pool, [1, 2])
    pool.retain(first)
    assert pool.allocate() == second
    with pytest.raises(AssertionError, match="no block left of 2"):
        pool.allocate()


def test_a_block_is_free_only_when_its_last_holder_left() -> None:
    pool = BlockPool(1)
    block = pool.allocate()
    pool.retain(block)
    pool.release(block)
    assert (pool.count(block), pool.num_free) == (1, 0)
    pool.release(block)
    assert (pool.count(block), pool.num_free) == (0, 1)


def test_releasing_twice_raises() -> None:
    pool = BlockPool(1)
    block = pool.allocate()
    pool.release(block)
    with pytest.raises(AssertionError, match="released twice"):
        pool.release(block)


def test_a_free_block_cannot_be_shared() -> None:
    with pytest.raises(AssertionError, match="block 0 is free"):
        BlockPool(1).retain(0)


def test_integrity_names_the_block_whose_count_is_wrong() -> None:
    pool = BlockPool(2)
    block = pool.allocate()
    pool.check_integrity({block: 1})
    with pytest.raises(AssertionError, match=f"block {block} counts 1, 2 tables hold it"):
        pool.check_integrity({block: 2})


@given(st.lists(st.tuples(st.sampled_from(["allocate", "retain", "release", "publish"]), st.integers(0, 9))))
def test_any_walk_keeps_the_books_like_a_naive_model(walk: list[tuple[str, int]]) -> None:
    pool = BlockPool(4)
    holds: list[int] = []  # one entry per hold
    released: list[int] = []  # cached blocks, oldest release first
    keys: dict[int, int] = {}
    for number, (verb, pick) in enumerate(walk):
        if verb == "allocate" and len(set(holds)) < 4:
            free = set(range(4)) - set(holds) - set(released)
            block = pool.allocate()
            if free:
                assert block in free
            else:
                assert block == released.pop(0)
                del keys[block]
            holds.append(block)
        elif verb == "publish" and holds and holds[pick % len(holds)] not in keys:
            block = holds[pick % len(holds)]
            pool.index.publish(key(number), block=block)
            keys[block] = number
        elif verb == "retain" and (holds or released):
            able = [*sorted(set(holds)), *released]
            block = able[pick % len(able)]
            pool.retain(block)
            if block in released:
                released.remove(block)
            holds.append(block)
        elif verb == "release" and holds:
            block = holds.pop(pick % len(holds))
            pool.release(block)
            if block not in holds and block in keys:
                released.append(block)
        pool.check_integrity({block: holds.count(block) for block in holds})
        assert (pool.num_held, pool.num_cached) == (len(set(holds)), len(released))
