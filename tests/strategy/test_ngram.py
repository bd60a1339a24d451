"""Prompt lookup: what followed the last few tokens the last time."""

from hypothesis import given, strategies as st

from tests.builders_schedule import make_sequence
from twostroke.core.sequence import Sequence
from twostroke.strategy.ngram import LENGTHS, NgramDrafter


def sequence_of(token_ids: list[int]) -> Sequence:
    return make_sequence(1, prompt=token_ids)


def test_a_run_seen_before_is_followed_by_what_followed_it() -> None:
    assert list(NgramDrafter().propose(sequence_of([1, 2, 3, 4, 5, 9, 1, 2]), 3)) == [3, 4, 5]


def test_the_latest_place_wins() -> None:
    assert list(NgramDrafter().propose(sequence_of([1, 2, 3, 1, 2, 7, 1, 2]), 1)) == [7]


def test_a_longer_run_beats_a_later_shorter_one() -> None:
    text = [5, 6, 1, 2, 3, 0, 1, 2, 8, 5, 6, 1, 2]
    assert list(NgramDrafter().propose(sequence_of(text), 1)) == [3]


def test_nothing_is_guessed_from_a_text_without_repetition() -> None:
    assert not NgramDrafter().propose(sequence_of(list(range(20))), 8)
    assert not NgramDrafter().propose(sequence_of([1, 2]), 8)
    assert not NgramDrafter().propose(sequence_of([1]), 8)


def test_the_limit_and_the_end_of_the_text_cut_the_guess() -> None:
    drafter, sequence = NgramDrafter(), sequence_of([1, 2, 3, 4, 1, 2])
    assert list(drafter.propose(sequence, 2)) == [3, 4]
    assert list(drafter.propose(sequence, 9)) == [3, 4, 1, 2]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_reading_token_by_token_guesses_as_reading_at_once(text: list[int]) -> None:
    growing, slow = NgramDrafter(), sequence_of(text[:1])
    for token_id in text[1:]:
        growing.propose(slow, 4)
        slow.token_ids.append(token_id)
    guess = list(growing.propose(slow, 4))
    assert guess == list(NgramDrafter().propose(sequence_of(text), 4))
    assert guess == by_hand(text, 4)


def by_hand(text: list[int], limit: int) -> list[int]:
    for length in LENGTHS:
        for end in range(len(text) - 1, length - 1, -1):
            if len(text) > length and text[end - length : end] == text[-length:]:
                return text[end : end + limit]
    return []


def test_a_sequence_that_ended_is_forgotten() -> None:
    drafter = NgramDrafter()
    drafter.propose(sequence_of([1, 2, 3, 1, 2]), 2)
    drafter.forget(1)
    drafter.forget(1)
    assert not drafter.propose(sequence_of([4, 5, 6, 4, 7]), 2), "the same id is another text now"
