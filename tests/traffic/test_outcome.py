"""Durations of one request by the definitions of the metrics."""

import pytest
from hypothesis import given, strategies as st

from tests.traffic.traffic_builders import make_chunk, make_outcome
from twostroke.traffic.outcome import Outcome, gaps_of, spread_evenly


def test_durations_are_from_text_to_text_whatever_else_comes() -> None:
    outcome = make_outcome((1.5, 1.6, 1.9))
    assert outcome.ttft_s == pytest.approx(0.5)
    assert outcome.tpot_s == pytest.approx(0.2)
    assert outcome.itls_s == pytest.approx([0.1, 0.3])
    assert outcome.e2e_s == pytest.approx(0.92)
    assert outcome.num_empty == 3
    assert outcome.choice_times == pytest.approx([1.01, 1.5, 1.6, 1.9, 1.92])


def test_what_does_not_exist_is_none() -> None:
    one = make_outcome((1.5,))
    assert (one.tpot_s, one.decode_s, one.itls_s, one.late_s) == (None, None, [], None)
    none = Outcome(place=0, wanted_prompt=1, wanted_output=1)
    assert (none.ttft_s, none.num_tokens) == (None, 0)


def test_lateness_is_sent_after_due() -> None:
    assert make_outcome(due_s=0.75).late_s == pytest.approx(0.25)


def test_tokens_of_one_chunk_share_the_gap_before_it() -> None:
    """The server counted along: 1, then 3, then 2 tokens."""
    outcome = Outcome(place=0, wanted_prompt=8, wanted_output=6, sent_s=0.0)
    for time_s, sent in ((1.0, 1), (1.3, 4), (1.4, 6)):
        outcome.take(time_s, make_chunk("x", sent=sent))
    assert outcome.text_tokens == [1, 3, 2]
    assert outcome.itls_s == pytest.approx([0.1, 0.1, 0.1, 0.05, 0.05])
    assert outcome.tpot_s == pytest.approx(0.4 / 5)


def test_uncounted_tokens_are_spread_over_the_chunks() -> None:
    outcome = make_outcome((1.0, 1.4, 1.8), tokens=5)
    assert outcome.itls_s == pytest.approx([0.2] * 4)
    assert outcome.tpot_s == pytest.approx(0.2)


def test_a_server_without_counts_is_taken_to_send_one_token_a_chunk() -> None:
    outcome = Outcome(place=0, wanted_prompt=8, wanted_output=2)
    outcome.take(1.0, make_chunk("x"))
    outcome.take(1.5, make_chunk("x"))
    assert (outcome.num_tokens, outcome.prompt_tokens, outcome.tpot_s) == (2, None, 0.5)


def test_more_chunks_than_tokens_lose_no_gap() -> None:
    outcome = make_outcome((1.0, 1.5, 2.0), tokens=2)
    assert outcome.itls_s == pytest.approx([0.5, 0.5])


def test_what_was_cached_is_read_from_usage() -> None:
    outcome = make_outcome()
    outcome.take(2.0, make_chunk("", sent=3, prompt_tokens_details={"cached_tokens": 6}))
    assert outcome.cached_tokens == 6
    outcome.take(2.0, make_chunk("", sent=3, prompt_tokens_details=None))
    assert outcome.cached_tokens is None


def test_what_is_thought_is_text_of_the_answer() -> None:
    outcome = make_outcome(())
    outcome.take(2.0, make_chunk("", reasoning="hm"))
    outcome.take(2.5, make_chunk("x"))
    assert outcome.text_times == [2.0, 2.5]


@given(st.integers(0, 60), st.integers(1, 20))
def test_spreading_keeps_the_total_and_differs_by_one(total: int, parts: int) -> None:
    shares = spread_evenly(total, parts)
    assert (len(shares), sum(shares)) == (parts, total)
    assert max(shares) - min(shares) <= 1


def test_gaps_lie_between_neighbours() -> None:
    assert gaps_of([1.0, 1.5, 3.5]) == [0.5, 2.0]
    assert gaps_of([1.0]) == gaps_of([]) == []
