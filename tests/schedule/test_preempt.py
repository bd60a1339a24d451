"""Who gives way."""

from tests.builders_schedule import make_sequence
from twostroke.core.sequence import Sequence
from twostroke.schedule.preempt import outranked, victims


def running(sequence_id: int, *, computed: int = 0, preempted: int = 0, priority: int = 0) -> Sequence:
    sequence = make_sequence(sequence_id, prompt=20, priority=priority)
    sequence.num_computed = computed
    sequence.num_preemptions = preempted
    return sequence


def order(*sequences: Sequence, max_preemptions: int | None = 2) -> list[int]:
    found = [each.sequence_id for each in victims(sequences, max_preemptions=max_preemptions)]
    again = [each.sequence_id for each in victims(reversed(sequences), max_preemptions=max_preemptions)]
    assert found == again, "the order of the view must not matter"
    return found


def test_the_one_with_least_to_recompute_goes_first() -> None:
    assert order(running(1, computed=9), running(2, computed=3), running(3, computed=5)) == [2, 3, 1]


def test_a_less_urgent_class_goes_before_any_saving() -> None:
    assert order(running(1, computed=3), running(2, computed=9, priority=1)) == [2, 1]


def test_of_equals_the_youngest_goes_first() -> None:
    assert order(running(1), running(3), running(2)) == [3, 2, 1]


def test_a_pinned_sequence_never_goes_unless_pins_are_off() -> None:
    pinned, free = running(1, preempted=2), running(2, computed=9)
    assert order(pinned, free) == [2]
    assert order(pinned, free, max_preemptions=None) == [1, 2]
    assert order(pinned) == []


def test_only_what_is_less_urgent_and_behind_in_the_queue_is_outranked() -> None:
    head = make_sequence(9, arrival_s=40.0, priority=1)
    aged = running(1, priority=2)  # arrived at 1 s: ahead of the head, which came 39 s later
    young = make_sequence(39, arrival_s=39.0, priority=2)
    equal = make_sequence(3, arrival_s=41.0, priority=1)
    found = outranked([aged, young, equal], by=head, max_preemptions=2, ageing_s=30.0)
    assert [each.sequence_id for each in found] == [39]
