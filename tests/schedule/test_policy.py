"""Orders: who is first in the queue, who prefills first."""

import random

from hypothesis import given, strategies as st

from tests.builders_schedule import make_sequence
from twostroke.core.sequence import Sequence
from twostroke.schedule.policy import prefill_order, queue_key

AGEING_S = 30.0


def key(sequence: Sequence) -> tuple[float, int]:
    return queue_key(sequence, ageing_s=AGEING_S)


def ids(sequences: list[Sequence]) -> list[int]:
    return [sequence.sequence_id for sequence in sequences]


def test_within_a_class_the_first_to_come_is_first() -> None:
    early, late = make_sequence(5, arrival_s=1.0), make_sequence(2, arrival_s=2.0)
    assert key(early) < key(late)


def test_of_two_that_came_together_the_lower_id_is_first() -> None:
    assert key(make_sequence(1, arrival_s=1.0)) < key(make_sequence(2, arrival_s=1.0))


def test_an_urgent_request_passes_one_that_came_before_it() -> None:
    patient, urgent = make_sequence(1, arrival_s=0.0, priority=1), make_sequence(2, arrival_s=29.0)
    assert key(urgent) < key(patient)


def test_nobody_passes_a_request_that_has_waited_its_class_times_the_ageing() -> None:
    patient = make_sequence(1, arrival_s=0.0, priority=5)
    assert key(make_sequence(2, arrival_s=149.0)) < key(patient)
    assert key(patient) < key(make_sequence(3, arrival_s=151.0))


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 3)), min_size=1, max_size=10), st.randoms())
def test_a_less_urgent_arrival_never_changes_the_order_of_more_urgent_ones(
    arrivals: list[tuple[int, int]], rng: random.Random
) -> None:
    sequences = [make_sequence(i, arrival_s=float(at), priority=p) for i, (at, p) in enumerate(arrivals)]
    lowest = max(priority for _, priority in arrivals)
    added = make_sequence(99, arrival_s=float(rng.randrange(100)), priority=lowest + 1)
    order = [each for each in sorted([*sequences, added], key=key) if each is not added]
    assert ids(order) == ids(sorted(sequences, key=key))


def test_the_shortest_rest_prefills_first() -> None:
    long, short = make_sequence(1, prompt=40, arrival_s=0.0), make_sequence(2, prompt=4, arrival_s=0.0)
    assert ids(prefill_order([long, short], now_s=0.0, ageing_tokens_per_s=1.0)) == [2, 1]
    long.num_computed = 38
    assert ids(prefill_order([long, short], now_s=0.0, ageing_tokens_per_s=1.0)) == [1, 2]


def test_a_long_prompt_is_passed_by_nobody_new_once_it_has_aged() -> None:
    long = make_sequence(1, prompt=40, arrival_s=0.0)
    for second, order in [(30.0, [2, 1]), (37.0, [1, 2])]:
        newcomer = make_sequence(2, prompt=4, arrival_s=second)
        assert ids(prefill_order([newcomer, long], now_s=second, ageing_tokens_per_s=1.0)) == order


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), max_size=8), st.randoms())
def test_orders_change_nothing_and_do_not_depend_on_the_order_of_their_input(
    sequences: list[tuple[int, int]], rng: random.Random
) -> None:
    view = [make_sequence(i, prompt=n, arrival_s=float(at)) for i, (n, at) in enumerate(sequences)]
    shuffled = rng.sample(view, len(view))
    before = [repr(each) for each in view]
    expected = prefill_order(view, now_s=10.0, ageing_tokens_per_s=3.0)
    assert ids(prefill_order(shuffled, now_s=10.0, ageing_tokens_per_s=3.0)) == ids(expected)
    assert [repr(each) for each in view] == before
