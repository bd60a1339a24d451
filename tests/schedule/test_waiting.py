"""The queue stays in order and loses nobody."""

import pytest
from hypothesis import given, strategies as st

from tests.builders_schedule import make_sequence
from twostroke.schedule.policy import queue_key
from twostroke.schedule.waiting import WaitingQueue


def test_a_preempted_sequence_comes_back_ahead_of_all_that_came_after_it() -> None:
    """Known bug Q4: with classes, it went behind fresh ones of its own class and was recomputed again and again."""
    queue = WaitingQueue(ageing_s=30.0)
    first, second, third = (make_sequence(number) for number in range(3))
    queue.push(second)
    queue.push(third)
    queue.push(first)
    assert queue.first is first
    assert queue.sequences == [first, second, third]


def test_taking_out_one_that_is_not_there_raises() -> None:
    queue = WaitingQueue(ageing_s=30.0)
    queue.push(make_sequence(1))
    with pytest.raises(AssertionError, match="2 not here"):
        queue.remove(make_sequence(2))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), max_size=30))
def test_any_walk_keeps_the_queue_sorted(walk: list[tuple[int, int, bool]]) -> None:
    queue, model = WaitingQueue(ageing_s=2.0), []
    for number, (arrival, priority, leaves) in enumerate(walk):
        sequence = make_sequence(number, arrival_s=float(arrival), priority=priority)
        queue.push(sequence)
        model.append(sequence)
        if leaves:
            gone = model.pop(arrival % len(model))
            queue.remove(gone)
        expected = sorted(model, key=lambda each: queue_key(each, ageing_s=2.0))
        assert [each.sequence_id for each in queue.sequences] == [each.sequence_id for each in expected]
        assert len(queue) == len(model)
