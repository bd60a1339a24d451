"""Promises against blocks, on tiny numbers: what is set aside, who fits beside it, who would have to give way."""

import pytest

from tests.builders_schedule import make_cache, make_sequence
from twostroke.cache.cache import KVCache
from twostroke.core.sequence import Sequence
from twostroke.errors import CapacityError, PromptError
from twostroke.schedule.admission import MEMORY_RAN_OUT, Admission
from twostroke.schedule.config import SchedulerConfig


class Desk:
    """An admission with its cache; sequences are opened as the scheduler would open them."""

    def __init__(self, *, num_blocks: int = 10, **config: object) -> None:
        self.cache: KVCache = make_cache(num_blocks=num_blocks, block_size=4)
        self.admission = Admission(self.cache, SchedulerConfig(**config))  # type: ignore[arg-type]

    def waiting(self, sequence_id: int, **options: object) -> Sequence:
        sequence = make_sequence(sequence_id, **options)  # type: ignore[arg-type]
        self.cache.open(sequence_id)
        return sequence

    def running(self, sequence_id: int, **options: object) -> Sequence:
        """Started, its whole prompt reserved."""
        sequence = self.waiting(sequence_id, **options)
        self.admission.promise(sequence)
        assert self.cache.try_reserve(sequence_id, end=sequence.num_tokens) is not None
        return sequence


def test_what_fits_alone_passes_and_the_first_token_more_does_not() -> None:
    desk = Desk(num_blocks=3)
    desk.admission.check_fit(make_sequence(1, prompt=8, max_tokens=5))  # the last token is never computed: 12 slots
    with pytest.raises(
        CapacityError, match="8 tokens \\+ max_tokens 6 needs 4 KV blocks of 4 tokens, KV group 0 has 3"
    ):
        desk.admission.check_fit(make_sequence(1, prompt=8, max_tokens=6))


def test_the_context_is_checked_before_the_memory() -> None:
    desk = Desk(num_blocks=1, context_length=16)
    with pytest.raises(CapacityError, match="12 tokens \\+ max_tokens 5 = 17, the context holds 16: max_tokens of 4"):
        desk.admission.check_fit(make_sequence(1, prompt=12, max_tokens=5))
    with pytest.raises(CapacityError, match="shorten the prompt or use a larger context"):
        desk.admission.check_fit(make_sequence(1, prompt=16, max_tokens=5))


def test_a_prompt_without_a_token_never_fits() -> None:
    with pytest.raises(PromptError, match="0 tokens"):
        Desk().admission.check_fit(make_sequence(1, prompt=0))


def test_promised_blocks_are_not_room_for_another_until_released() -> None:
    desk = Desk(num_blocks=10)
    started = desk.running(1, prompt=8, max_tokens=33)  # 2 blocks held, half of 32 more tokens promised: 4 blocks
    big, small = desk.waiting(2, prompt=20, max_tokens=1), desk.waiting(3, prompt=16, max_tokens=1)
    assert not desk.admission.has_room(big)
    assert desk.admission.has_room(small)
    desk.admission.release(started)
    assert desk.admission.has_room(big)


def test_what_others_would_give_counts_held_and_promised() -> None:
    desk = Desk(num_blocks=10)
    desk.running(1, prompt=8, max_tokens=33)
    whole = desk.waiting(2, prompt=40, max_tokens=1)
    assert not desk.admission.has_room(whole)
    assert desk.admission.has_room(whole, giving=[1])


def test_asking_changes_nothing() -> None:
    desk = Desk(num_blocks=10)
    rival = desk.running(1, prompt=8, max_tokens=33, priority=1)
    head = desk.waiting(2, prompt=40, max_tokens=1)
    before = desk.cache.counts()
    answers = [desk.admission.displaced_by(head, running=[rival], waiting=[head]) for _ in range(2)]
    assert answers == [[rival], [rival]]
    assert desk.cache.counts() == before


@pytest.mark.parametrize(("ratio_moves", "fits"), [([], True), ([MEMORY_RAN_OUT] * 20, False)])
def test_admission_keeps_room_for_as_much_as_answers_turn_out_to_take(ratio_moves: list[float], fits: bool) -> None:
    desk = Desk(num_blocks=6)
    for fraction in ratio_moves:
        desk.admission.learn_length(fraction)
    desk.running(1, prompt=8, max_tokens=17)  # 16 more tokens: 2 blocks promised at one half, 4 at one
    assert desk.admission.has_room(desk.waiting(2, prompt=8, max_tokens=1)) is fits


def test_short_answers_lower_the_estimate_and_long_ones_raise_it_up_to_all() -> None:
    desk = Desk()
    for _ in range(200):
        desk.admission.learn_length(0.0)
    assert desk.admission._output_ratio == 0.0
    for _ in range(200):
        desk.admission.learn_length(MEMORY_RAN_OUT)
    assert desk.admission._output_ratio == 1.0


def test_a_pinned_sequence_is_admitted_for_all_it_can_ever_need() -> None:
    desk = Desk(num_blocks=6, max_preemptions=1)
    pinned = desk.waiting(1, prompt=8, max_tokens=17)
    pinned.num_preemptions = 1
    desk.running(2, prompt=4, max_tokens=1)
    assert not desk.admission.has_room(pinned), "6 blocks wanted, 5 there"


def test_nobody_is_displaced_where_there_is_room() -> None:
    desk = Desk()
    rival = desk.running(1, prompt=4, max_tokens=1, priority=1)
    head = desk.waiting(2, prompt=4, max_tokens=1)
    assert desk.admission.displaced_by(head, running=[rival], waiting=[head]) == []


def test_a_row_is_given_up_by_the_least_urgent_alone() -> None:
    desk = Desk(max_rows=2)
    rivals = [desk.running(1, prompt=4, max_tokens=1, priority=1), desk.running(2, prompt=4, max_tokens=1, priority=2)]
    head = desk.waiting(3, prompt=4, max_tokens=1)
    assert desk.admission.displaced_by(head, running=rivals, waiting=[head]) == [rivals[1]]


def test_equals_and_pinned_ones_never_give_way() -> None:
    desk = Desk(max_rows=1, max_preemptions=1)
    equal = desk.running(1, prompt=4)
    head = desk.waiting(2, prompt=4)
    assert desk.admission.displaced_by(head, running=[equal], waiting=[head]) is None
    desk = Desk(max_rows=1, max_preemptions=1)
    pinned = desk.running(1, prompt=4, priority=1)
    pinned.num_preemptions = 1
    head = desk.waiting(2, prompt=4)
    assert desk.admission.displaced_by(head, running=[pinned], waiting=[head]) is None


def test_what_the_queue_holds_is_taken_before_anybody_is_displaced() -> None:
    desk = Desk(num_blocks=10)
    runner = desk.running(1, prompt=8, max_tokens=1, priority=1)
    holder = desk.waiting(2, prompt=32, priority=1)
    assert desk.cache.try_reserve(2, end=32) is not None
    head = desk.waiting(3, prompt=12, max_tokens=1)
    assert not desk.admission.has_room(head)
    assert desk.admission.displaced_by(head, running=[runner], waiting=[head, holder]) == []
