"""Pairs of a row against a count one by one."""

from hypothesis import given, strategies as st

from twostroke.causal import visible_pairs


@given(st.integers(0, 60), st.integers(0, 60), st.none() | st.integers(1, 70))
def test_pairs_equal_a_count_one_by_one(start_pos: int, num_tokens: int, window: int | None) -> None:
    expected = sum(min(pos + 1, window or pos + 1) for pos in range(start_pos, start_pos + num_tokens))
    assert visible_pairs(start_pos, num_tokens, window=window) == expected
