"""What drafts cost and how many pay: against the price of whole steps, and against a search over every count."""

import pytest
from hypothesis import given, strategies as st

from tests.builders_cost import make_cost
from tests.builders_schedule import make_sequence
from twostroke.core.phase import Phase
from twostroke.core.sequence import Sequence
from twostroke.core.step import RowPlan
from twostroke.core.step_cost import StepCost
from twostroke.strategy.draft_price import DraftedStep, best_count, expected_right, reading_seconds, round_seconds

COST = make_cost(base_s=0.5, row_s=0.25, weights_s=4.0, token_s=1.0, head_s=2.0, head_row_s=0.5, pair_s=0.125)
small_s = st.floats(0, 4).map(lambda value: round(value, 3))


def decoding(*num_computed: int) -> list[Sequence]:
    """Sequences that miss one token each."""
    found = [make_sequence(number, prompt=count + 1) for number, count in enumerate(num_computed)]
    for sequence, count in zip(found, num_computed, strict=True):
        sequence.num_computed = count
    return found


def whole_step_s(cost: StepCost, sequences: list[Sequence], drafted: list[int]) -> float:
    """The same step as the scheduler prices it: a row per sequence, logits for its token and for each draft."""
    return cost.seconds(
        RowPlan(each.sequence_id, each.num_computed, 1 + count, Phase.DECODE, True, draft_token_ids=(0,) * count)
        for each, count in zip(sequences, drafted, strict=True)
    )


def test_a_step_without_drafts_costs_its_rows() -> None:
    sequences = decoding(3, 7)
    step = DraftedStep.of(sequences, COST)
    assert (step.num_sequences, step.num_tokens) == (2, 2)
    assert step.seconds == pytest.approx(whole_step_s(COST, sequences, [0, 0]))
    assert step.seconds == pytest.approx(0.5 + 2 * 0.25 + (4 + 2) + (2 + 1) + 0.125 * (4 + 8))


def test_one_more_token_costs_its_arithmetic_and_its_logits() -> None:
    step = DraftedStep.of(decoding(3), COST)
    assert step.least_extra_s() == pytest.approx(1.0 + 0.5)
    (sequence,) = decoding(3)
    # two tokens at 3 and 4 see 4 and 5 keys where one saw 4
    assert step.extra_s(sequence, 1) == pytest.approx(1.5 + 0.125 * (4 + 5 - 4))


@given(
    starts=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    data=st.data(),
    parts=st.tuples(small_s, small_s, small_s, small_s, small_s, small_s),
)
def test_drafts_that_join_one_after_another_cost_what_the_whole_step_does(
    starts: list[int], data: st.DataObject, parts: tuple[float, ...]
) -> None:
    base_s, row_s, weights_s, token_s, head_row_s, pair_s = parts
    cost = make_cost(
        base_s=base_s, row_s=row_s, weights_s=weights_s, token_s=token_s, head_row_s=head_row_s, pair_s=pair_s
    )
    sequences = decoding(*starts)
    step, drafted = DraftedStep.of(sequences, cost), [0] * len(sequences)
    for place in data.draw(st.permutations(range(len(sequences)))):
        count = data.draw(st.integers(0, 6))
        extra_s, before_s = step.extra_s(sequences[place], count), step.seconds
        step.add(sequences[place], count)
        drafted[place] = count
        assert step.seconds == pytest.approx(before_s + extra_s)
        assert step.seconds == pytest.approx(whole_step_s(cost, sequences, drafted))
    assert step.num_tokens == len(sequences) + sum(drafted)


@pytest.mark.parametrize(
    ("odds", "num_drafted", "right"), [(0.0, 5, 0.0), (0.5, 1, 0.5), (0.5, 3, 0.875), (1.0, 4, 4.0), (0.9, 2, 1.71)]
)
def test_right_tokens_are_those_before_the_first_wrong_one(odds: float, num_drafted: int, right: float) -> None:
    assert expected_right(odds, num_drafted) == pytest.approx(right)
    assert expected_right(odds, num_drafted) == pytest.approx(sum(odds**place for place in range(1, num_drafted + 1)))


def test_a_count_is_the_one_that_gains_most() -> None:
    """Odds of a half, a token saves 8 s, each drafted one costs 1.5 s: 4 - 1.5, 6 - 3, 7 - 4.5, 7.5 - 6."""
    assert best_count(0.5, token_s=8.0, price=lambda count: 1.5 * count, most=8) == pytest.approx((2, 3.0))
    assert best_count(0.5, token_s=8.0, price=lambda count: 1.5 * count, most=1) == pytest.approx((1, 2.5))


def test_equal_gains_take_the_shorter_draft() -> None:
    """Of sure tokens each saves what it costs, but for the first, which is free."""
    count, gain_s = best_count(1.0, token_s=1.0, price=lambda count: count - 1.0, most=6)
    assert (count, gain_s) == pytest.approx((1, 1.0))


@pytest.mark.parametrize("most", [0, 1, 7])
def test_nothing_is_drafted_where_nothing_gains(most: int) -> None:
    assert best_count(0.3, token_s=1.0, price=lambda count: float(count), most=most) == (0, 0.0)
    assert best_count(0.0, token_s=9.0, price=lambda count: 0.0, most=most) == (0, 0.0), "a free draft that is wrong"


@given(
    odds=st.floats(0, 1),
    token_s=st.floats(0, 10),
    first_s=st.floats(0, 20),
    each_s=st.floats(0, 5),
    most=st.integers(0, 9),
)
def test_no_other_count_gains_more(odds: float, token_s: float, first_s: float, each_s: float, most: int) -> None:
    def price(count: int) -> float:
        return first_s + each_s * count

    count, gain_s = best_count(odds, token_s=token_s, price=price, most=most)
    gains = [expected_right(odds, each) * token_s - price(each) for each in range(1, most + 1)]
    ends = [gains[0], gains[-1]] if gains else []
    if max(ends, default=0.0) > 0:
        assert gain_s == pytest.approx(max(gains))
        assert count == 1 + min(place for place, gain in enumerate(gains) if gain == gain_s)
    else:
        assert (count, gain_s) == (0, 0.0)


def test_a_round_of_a_draft_model_is_shared_by_all_it_guesses_for() -> None:
    alone, four = (round_seconds(COST, start_pos=9, num_sequences=number) for number in (1, 4))
    assert alone == pytest.approx(0.5 + 0.25 + 0.125 * 10 + (4 + 1) + (2 + 0.5))
    assert four == pytest.approx((0.5 + 4 * (0.25 + 0.125 * 10) + (4 + 4) + (2 + 2)) / 4)


@pytest.mark.parametrize("num_unread", [0, 1])
def test_what_is_read_costs_nothing_more(num_unread: int) -> None:
    assert reading_seconds(COST, num_tokens=20, num_unread=num_unread) == 0.0


def test_unread_tokens_cost_one_step_more_than_the_newest_does() -> None:
    """Three tokens at 7, 8 and 9 instead of one at 9."""
    found = reading_seconds(COST, num_tokens=10, num_unread=3)
    assert found == pytest.approx(2 * 1.0 + 0.125 * (8 + 9))
