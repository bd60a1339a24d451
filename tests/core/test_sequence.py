"""The counters of an answer, its first moments, and the clock that tests turn by hand."""

import pytest

from tests.builders_schedule import make_sequence
from twostroke.core.clock import VirtualClock, WallClock
from twostroke.core.phase import Phase
from twostroke.core.sequence import FinishReason, SequenceStatus
from twostroke.core.step import RowPlan, StepPlan


def test_a_new_sequence_knows_its_prompt_and_has_computed_nothing() -> None:
    sequence = make_sequence(3, prompt=[5, 6, 7])
    assert (sequence.sequence_id, sequence.token_ids, sequence.status) == (3, [5, 6, 7], SequenceStatus.WAITING)
    assert (sequence.num_tokens, sequence.num_prompt_tokens, sequence.num_missing) == (3, 3, 3)
    assert (sequence.num_output_tokens, sequence.output_token_ids) == (0, [])
    assert (sequence.num_cached, sequence.num_preemptions, sequence.choice_index) == (0, 0, 0)
    assert not sequence.is_finished


def test_tokens_of_a_sequence_are_not_those_of_its_request() -> None:
    one, other = make_sequence(1, prompt=[5, 6]), make_sequence(1, prompt=[5, 6])
    one.token_ids.append(9)
    assert one.request.prompt_token_ids == (5, 6)
    assert other.token_ids == [5, 6]


def test_output_is_what_follows_the_prompt_and_missing_what_is_not_computed() -> None:
    sequence = make_sequence(3, prompt=[5, 6, 7])
    sequence.token_ids += [8, 9]
    sequence.num_computed = 4
    assert (sequence.num_tokens, sequence.num_prompt_tokens) == (5, 3)
    assert (sequence.num_output_tokens, sequence.output_token_ids) == (2, [8, 9])
    assert sequence.num_missing == 1


@pytest.mark.parametrize("status", SequenceStatus)
def test_only_the_last_status_is_the_end(status: SequenceStatus) -> None:
    sequence = make_sequence(0)
    sequence.status, sequence.finish_reason = status, FinishReason.STOP
    assert sequence.is_finished == (status is SequenceStatus.FINISHED)


def test_a_plan_counts_the_tokens_of_all_its_rows() -> None:
    rows = (RowPlan(1, 9, 1, Phase.DECODE, True), RowPlan(2, 0, 30, Phase.PREFILL, False))
    assert StepPlan(1, rows).num_tokens == 31
    assert StepPlan(1, ()).num_tokens == 0


def test_a_virtual_clock_moves_only_forward_and_only_when_told() -> None:
    clock = VirtualClock(2.0)
    assert (clock.now(), clock.now()) == (2.0, 2.0)
    clock.advance(0.5)
    clock.advance(0.0)
    assert clock.now() == 2.5
    with pytest.raises(AssertionError):
        clock.advance(-0.1)
    assert clock.now() == 2.5


def test_the_wall_clock_never_runs_back() -> None:
    clock = WallClock()
    times = [clock.now() for _ in range(100)]
    assert times == sorted(times)
