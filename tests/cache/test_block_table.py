"""The list and the array say the same, whatever happened."""

import pytest
from hypothesis import given, strategies as st

from twostroke.cache.block_table import BLANK, BlockTable


def table_of(*blocks: int) -> BlockTable:
    table = BlockTable()
    for block in blocks:
        table.append(block)
    return table


def test_the_array_grows_with_the_list_past_its_first_capacity() -> None:
    table = table_of(*range(100))
    assert table.array.tolist() == table.blocks == list(range(100))
    assert table.array.dtype == "int32"


def test_the_array_is_a_view_and_not_a_copy() -> None:
    table = table_of(1, 2)
    assert not table.array.flags.owndata


def test_blank_entries_are_the_first_ones_and_hold_nothing() -> None:
    table = table_of(BLANK, BLANK, 7, 8)
    assert (table.num_blank, table.held, table.num_held) == (2, [7, 8], 2)
    assert table.blank_next() == 7
    assert table.array.tolist() == [BLANK, BLANK, BLANK, 8]


def test_a_blank_entry_behind_a_held_one_raises() -> None:
    with pytest.raises(AssertionError, match="behind a held one"):
        table_of(7, BLANK)


def test_shortening_returns_the_tail_before_the_head() -> None:
    table = table_of(1, 2, 3, 4)
    assert table.shorten(2) == [4, 3]
    assert table.array.tolist() == [1, 2]
    assert table.shorten(2) == []


def test_shortening_into_the_blank_part_returns_held_blocks_only() -> None:
    table = table_of(BLANK, BLANK, 5, 6)
    assert table.shorten(1) == [6, 5]
    assert (table.blocks, table.num_blank) == ([BLANK], 1)


def test_replacing_an_entry_returns_the_old_block() -> None:
    table = table_of(1, 2)
    assert table.replace(1, 9) == 2
    assert table.array.tolist() == [1, 9]


@given(st.lists(st.integers(-20, 20), max_size=60))
def test_any_walk_keeps_list_and_array_equal(walk: list[int]) -> None:
    table, expected, num_blank = BlockTable(), [], 0
    for move in walk:
        if move > 0:
            table.append(move)
            expected.append(move)
        elif move == 0 and table.num_held:
            assert table.blank_next() == expected[num_blank]
            expected[num_blank] = BLANK
            num_blank += 1
        else:
            keep = len(expected) + move
            cut = table.shorten(max(keep, 0))
            gone = expected[max(keep, 0) :]
            assert cut == [block for block in reversed(gone) if block != BLANK]
            expected = expected[: max(keep, 0)]
            num_blank = min(num_blank, len(expected))
        assert table.array.tolist() == table.blocks == expected
        assert table.num_blank == num_blank
