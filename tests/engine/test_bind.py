"""From plan to arrays: every row in its place, nothing left of the step before, no array made anew."""

from collections.abc import Sequence as Seq

import numpy as np
import pytest

from tests.builders_schedule import make_cache, make_sequence
from twostroke.cache.cache import KVCache
from twostroke.core.phase import Phase
from twostroke.core.sequence import Sequence
from twostroke.core.step import RowPlan, StepPlan
from twostroke.engine.bind import Binder
from twostroke.program.program import BoundStep

BLOCK = 4


def make_binder(cache: KVCache) -> Binder:
    return Binder(cache, num_groups=cache.num_groups, max_tokens=32, max_rows=4, max_blocks=8)


def admit(cache: KVCache, sequence_id: int, *, length: int) -> Sequence:
    """A sequence of tokens 100 * id, 100 * id + 1, ... with its blocks reserved."""
    cache.open(sequence_id)
    assert cache.try_reserve(sequence_id, end=length) is not None
    return make_sequence(sequence_id, prompt=range(100 * sequence_id, 100 * sequence_id + length))


def prefill(sequence_id: int, start_pos: int, num_tokens: int, *, needs_logits: bool = True) -> RowPlan:
    return RowPlan(sequence_id, start_pos, num_tokens, Phase.PREFILL, needs_logits)


def decode(sequence_id: int, start_pos: int) -> RowPlan:
    return RowPlan(sequence_id, start_pos, 1, Phase.DECODE, True)


def bind(binder: Binder, rows: Seq[RowPlan], sequences: Seq[Sequence]) -> BoundStep:
    return binder.bind(StepPlan(1, tuple(rows)), {each.sequence_id: each for each in sequences})


def test_rows_lie_one_after_the_other() -> None:
    cache = make_cache(num_blocks=16, block_size=BLOCK)
    sequences = [admit(cache, 1, length=9), admit(cache, 2, length=5), admit(cache, 3, length=7)]
    step = bind(make_binder(cache), [decode(1, 8), prefill(2, 0, 5), prefill(3, 3, 3)], sequences)
    assert step.token_ids.tolist() == [108, 200, 201, 202, 203, 204, 303, 304, 305]
    assert step.row_starts.tolist() == [0, 1, 6, 9]
    assert step.row_positions.tolist() == [8, 0, 3]


def test_the_last_token_of_every_row_that_needs_logits_is_selected() -> None:
    cache = make_cache(num_blocks=16, block_size=BLOCK)
    sequences = [admit(cache, 1, length=9), admit(cache, 2, length=5), admit(cache, 3, length=7)]
    rows = [decode(1, 8), prefill(2, 0, 4, needs_logits=False), prefill(3, 0, 7)]
    assert bind(make_binder(cache), rows, sequences).selected.tolist() == [0, 11]
    rows = [prefill(2, 0, 4, needs_logits=False), prefill(3, 0, 2, needs_logits=False)]
    assert bind(make_binder(cache), rows, sequences).selected.tolist() == []


def test_tables_are_those_of_the_cache_in_every_group() -> None:
    cache = make_cache(num_blocks=16, block_size=BLOCK, windows=(None, 4))
    sequences = [admit(cache, 1, length=6), admit(cache, 2, length=13)]
    step = bind(make_binder(cache), [prefill(2, 0, 13), prefill(1, 0, 6)], sequences)
    assert len(step.block_tables) == 2
    for group, tables in enumerate(step.block_tables):
        assert tables.shape == (2, 8)
        assert tables[0, :4].tolist() == cache.table(2, group)
        assert tables[1, :2].tolist() == cache.table(1, group)
    assert set(step.block_tables[0][0, :4]).isdisjoint(step.block_tables[0][1, :2])


def test_blanks_of_a_window_stay_blank() -> None:
    cache = make_cache(num_blocks=16, block_size=BLOCK, windows=(None, 4))
    sequence = admit(cache, 1, length=13)
    cache.commit(1, sequence.token_ids, num_computed=12)
    step = bind(make_binder(cache), [decode(1, 12)], [sequence])
    full, windowed = (tables[0, :4].tolist() for tables in step.block_tables)
    assert -1 not in full
    assert windowed[:2] == [-1, -1]
    assert windowed == cache.table(1, 1)


def test_a_step_leaves_nothing_to_the_next() -> None:
    cache = make_cache(num_blocks=16, block_size=BLOCK)
    sequences = [admit(cache, 1, length=9), admit(cache, 2, length=5)]
    binder = make_binder(cache)
    bind(binder, [prefill(1, 0, 9), prefill(2, 0, 5)], sequences)
    step = bind(binder, [decode(2, 4)], sequences)
    assert step.token_ids.tolist() == [204]
    assert step.row_starts.tolist() == [0, 1]
    assert step.row_positions.tolist() == [4]
    assert step.selected.tolist() == [0]
    assert [tables.shape for tables in step.block_tables] == [(1, 8)]
    assert step.block_tables[0][0, :2].tolist() == cache.table(2, 0)


def test_steps_share_the_memory_of_their_arrays() -> None:
    cache = make_cache(num_blocks=16, block_size=BLOCK)
    sequence = admit(cache, 1, length=9)
    binder = make_binder(cache)
    one, two = (bind(binder, [prefill(1, 0, length)], [sequence]) for length in (9, 3))
    for name in ("token_ids", "row_starts", "row_positions", "selected"):
        assert np.shares_memory(getattr(one, name), getattr(two, name)), name
    assert np.shares_memory(one.block_tables[0], two.block_tables[0])


def test_the_whole_of_every_limit_can_be_bound() -> None:
    cache = make_cache(num_blocks=32, block_size=BLOCK)
    sequences = [admit(cache, sequence_id, length=8) for sequence_id in range(4)]
    step = bind(make_binder(cache), [prefill(each.sequence_id, 0, 8) for each in sequences], sequences)
    assert (len(step.token_ids), len(step.row_starts), len(step.selected)) == (32, 5, 4)
    assert step.selected.tolist() == [7, 15, 23, 31]


@pytest.mark.parametrize("start_pos", [0, 4])
def test_scoring_selects_every_token_of_one_row(start_pos: int) -> None:
    cache = make_cache(num_blocks=16, block_size=BLOCK, windows=(None, 4))
    admit(cache, 7, length=9)
    step = make_binder(cache).bind_all(7, [5, 3, 1, 2], start_pos=start_pos)
    assert step.token_ids.tolist() == [5, 3, 1, 2]
    assert step.row_starts.tolist() == [0, 4]
    assert step.row_positions.tolist() == [start_pos]
    assert step.selected.tolist() == [0, 1, 2, 3]
    assert [tables.shape for tables in step.block_tables] == [(1, 8), (1, 8)]
    for group, tables in enumerate(step.block_tables):
        assert tables[0, :3].tolist() == cache.table(7, group)


def test_scoring_after_a_batch_sees_only_its_own_row() -> None:
    cache = make_cache(num_blocks=16, block_size=BLOCK)
    sequences = [admit(cache, 1, length=9), admit(cache, 2, length=5)]
    binder = make_binder(cache)
    bind(binder, [decode(1, 8), prefill(2, 0, 5)], sequences)
    step = binder.bind_all(2, [9, 8], start_pos=0)
    assert step.token_ids.tolist() == [9, 8]
    assert step.row_starts.tolist() == [0, 2]
    assert step.block_tables[0][0, :2].tolist() == cache.table(2, 0)


def test_every_array_is_int32() -> None:
    cache = make_cache(num_blocks=16, block_size=BLOCK)
    sequence = admit(cache, 1, length=9)
    binder = make_binder(cache)
    for step in (bind(binder, [prefill(1, 0, 9)], [sequence]), binder.bind_all(1, [1, 2], start_pos=0)):
        arrays = [step.token_ids, step.row_starts, step.row_positions, *step.block_tables, step.selected]
        assert {array.dtype for array in arrays} == {np.dtype(np.int32)}
