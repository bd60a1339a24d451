"""What a sequence remembers of its drafts: odds, reach, sleep, and the gain it is told at its end."""

import pytest
from hypothesis import given, strategies as st

from twostroke.core.event import DraftStop, NoDraft
from twostroke.strategy.draft_record import (
    FIRST_REACH,
    FORGETTING,
    PRIOR_RIGHT,
    PRIOR_WRONG,
    Acceptance,
    DecodeTime,
    DraftRecord,
)


def test_before_anything_is_known_two_of_three_are_right() -> None:
    assert Acceptance().odds == pytest.approx(2 / 3)


def test_odds_follow_what_was_accepted_and_forget() -> None:
    acceptance = Acceptance()
    acceptance.see(num_drafted=4, num_accepted=1)
    right, wrong = PRIOR_RIGHT * FORGETTING + 1, PRIOR_WRONG * FORGETTING + 1
    assert acceptance.odds == pytest.approx(right / (right + wrong))
    acceptance.see(num_drafted=3, num_accepted=3)
    right, wrong = right * FORGETTING + 3, wrong * FORGETTING
    assert acceptance.odds == pytest.approx(right / (right + wrong))
    for _ in range(200):
        acceptance.see(num_drafted=2, num_accepted=0)
    assert acceptance.odds < 1e-6, "an old success does not last"


def test_reach_doubles_with_whole_drafts_and_falls_to_what_was_right() -> None:
    acceptance, reaches = Acceptance(), [FIRST_REACH]
    for num_drafted, num_accepted in ((2, 2), (4, 4), (1, 1), (8, 3), (5, 0), (2, 2)):
        acceptance.see(num_drafted=num_drafted, num_accepted=num_accepted)
        reaches.append(acceptance.reach)
    assert reaches == [2, 4, 8, 8, 5, 2, 4]


@given(st.lists(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), max_size=40))
def test_odds_are_odds_whatever_happened(drafts: list[tuple[int, int]]) -> None:
    acceptance = Acceptance()
    for num_drafted, num_accepted in drafts:
        before = acceptance.odds
        acceptance.see(num_drafted=num_drafted, num_accepted=num_accepted)
        assert 0 < acceptance.odds < 1
        assert acceptance.reach >= FIRST_REACH
        if num_accepted == num_drafted:
            assert acceptance.odds > before
        if num_accepted == 0:
            assert acceptance.odds < before


@pytest.mark.parametrize(("step", "num_steps", "until"), [(0, 1, 8), (7, 1, 8), (8, 1, 16), (3, 5, 8), (3, 6, 16)])
def test_all_wake_in_the_same_steps(step: int, num_steps: int, until: int) -> None:
    acceptance = Acceptance()
    acceptance.sleep(step, every=8, beside=2, num_steps=num_steps)
    assert acceptance.asleep_until == until
    assert [acceptance.wakes(each, beside=2) for each in (until - 1, until, until + 5)] == [until, until, until + 5]
    assert [acceptance.has_slept(each) for each in (until - 1, until)] == [False, True]


def test_another_batch_wakes_it_and_who_never_slept_has_not_slept() -> None:
    acceptance = Acceptance()
    assert acceptance.wakes(0, beside=1) == 0
    assert not acceptance.has_slept(10**6)
    acceptance.sleep(0, every=100, beside=1)
    assert acceptance.wakes(1, beside=2) == 1
    assert acceptance.wakes(1, beside=1) > 1


def test_pace_is_that_of_plain_steps_lately() -> None:
    time = DecodeTime()
    assert time.pace is None
    time.see(wall_s=9.0, plain_cost_s=1.0, is_plain=False)
    assert time.pace is None, "drafts say nothing about plain steps"
    time.see(wall_s=2.0, plain_cost_s=1.0, is_plain=True)
    assert time.pace == pytest.approx(2.0)
    for _ in range(100):
        time.see(wall_s=3.0, plain_cost_s=1.0, is_plain=True)
    assert time.pace == pytest.approx(3.0, rel=1e-3)
    assert (time.wall_s, time.plain_cost_s) == pytest.approx((311.0, 102.0))


def lived(*, pace: float, wall_s: float, plain_cost_s: float) -> DecodeTime:
    """One plain step that set the pace, then so much more with drafts."""
    time = DecodeTime()
    time.see(wall_s=pace, plain_cost_s=1.0, is_plain=True)
    time.see(wall_s=wall_s - pace, plain_cost_s=plain_cost_s - 1.0, is_plain=False)
    return time


def test_the_gain_is_what_plain_steps_would_have_taken_over_what_it_took() -> None:
    """10 steps of cost 1 took 16 s at a pace of 2, and 6 accepted tokens stood in for 6 more."""
    record = DraftRecord()
    for _ in range(3):
        record.verify(num_drafted=3, num_accepted=2, plain_cost_s=1.0)
    told = record.told(lived(pace=2.0, wall_s=16.0, plain_cost_s=10.0), kv_bytes=77)
    assert (told.drafted, told.accepted, told.kv_bytes, told.stop) == (9, 6, 77, None)
    assert told.gain == pytest.approx(2.0 * (10 + 6) / 16)


def test_a_sequence_counts_from_where_it_began() -> None:
    record = DraftRecord(began_wall_s=6.0, began_cost_s=4.0)
    record.verify(num_drafted=1, num_accepted=1, plain_cost_s=2.0)
    told = record.told(lived(pace=1.0, wall_s=16.0, plain_cost_s=10.0), kv_bytes=0)
    assert told.gain == pytest.approx((10 - 4 + 2) / (16 - 6))


@pytest.mark.parametrize("case", ["no drafts", "no time", "no pace"])
def test_where_nothing_can_be_said_no_gain_is_told(case: str) -> None:
    record, time = DraftRecord(), lived(pace=1.0, wall_s=4.0, plain_cost_s=4.0)
    if case != "no drafts":
        record.verify(num_drafted=2, num_accepted=0, plain_cost_s=1.0)
    if case == "no time":
        record.began_wall_s = time.wall_s
    if case == "no pace":
        time = DecodeTime(wall_s=4.0, plain_cost_s=4.0)
    assert record.told(time, kv_bytes=0).gain is None


def test_what_was_verified_is_learned_by_who_guessed_it() -> None:
    record = DraftRecord()
    record.guesser = record.model
    record.verify(num_drafted=2, num_accepted=2, plain_cost_s=1.0)
    record.guesser = None
    record.verify(num_drafted=2, num_accepted=0, plain_cost_s=1.0)
    assert record.lookup == Acceptance()
    assert record.model.reach == 4
    assert record.model.odds > Acceptance().odds


def test_why_it_stopped_is_told() -> None:
    stop = DraftStop(NoDraft.COST, acceptance=0.25, verify_share=0.5, draft_share=0.0, num_sequences=3)
    assert DraftRecord(stop=stop).told(DecodeTime(), kv_bytes=5).stop is stop
