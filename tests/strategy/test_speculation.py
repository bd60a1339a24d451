"""How many guesses are verified: many where they are right and cheap, next to none where they are wrong or dear."""

from collections.abc import Sequence as Seq

import pytest

from tests.builders_schedule import make_sequence, make_step_cost
from twostroke.core.phase import Phase
from twostroke.core.sequence import Sequence
from twostroke.core.step import RowPlan
from twostroke.core.step_cost import StepCost
from twostroke.strategy.speculation import MAX_DRAFT, PURSE_SHARE, SpeculationControl

CHEAP = make_step_cost(decode_s=0.010, token_s=0.0005)  # a verified token is a twentieth of a step
DEAR = make_step_cost(decode_s=0.0001, token_s=0.010)  # as many tokens, as much time: nothing to win


class Oracle:
    """Always has a guess; who asks decides whether it was right."""

    def propose(self, sequence: Sequence, limit: int) -> Seq[int]:
        return [7] * limit

    def forget(self, sequence_id: int) -> None:
        pass


class Drive:
    """Decode steps without an engine: `odds_right` of every `period` guesses are right, in turn."""

    def __init__(self, cost: StepCost, *, num_sequences: int = 1, right: int = 1, of: int = 1) -> None:
        self.cost = cost
        self.control = SpeculationControl(Oracle())
        self.sequences = [make_sequence(n, prompt=100, max_tokens=10_000) for n in range(1, num_sequences + 1)]
        for sequence in self.sequences:
            sequence.num_computed = 100
            sequence.token_ids.append(7)
        self._right, self._of, self._asked = right, of, 0
        self.num_drafted = 0
        self.num_tokens = 0
        prompt = [RowPlan(each.sequence_id, 0, 100, Phase.PREFILL, True) for each in self.sequences]
        self.control.learn(prompt, {each.sequence_id: 1 for each in self.sequences}, cost=cost, wall_s=1.0)

    def step(self) -> float:
        """Predicted seconds of the step."""
        drafts = self.control.draft(self.sequences, self.cost)
        rows, grown = [], {}
        for each in self.sequences:
            guess = drafts.get(each.sequence_id, ())
            rows.append(RowPlan(each.sequence_id, each.num_computed, 1 + len(guess), Phase.DECODE, True, False, guess))
            accepted = 0
            while accepted < len(guess) and self._is_right():
                accepted += 1
            grown[each.sequence_id] = 1 + accepted
            each.token_ids += [7] * (1 + accepted)
            each.num_computed += 1 + accepted
            self.num_drafted += len(guess)
        self.num_tokens += sum(grown.values())
        self.control.learn(rows, grown, cost=self.cost, wall_s=self.cost.seconds(rows))
        return self.cost.seconds(rows)

    def _is_right(self) -> bool:
        self._asked += 1
        return self._asked % self._of < self._right

    def run(self, num_steps: int) -> float:
        return sum(self.step() for _ in range(num_steps))


def plain_time(cost: StepCost, *, num_tokens: int) -> float:
    return num_tokens * cost.seconds([RowPlan(1, 100, 1, Phase.DECODE, True)])


def test_right_guesses_make_a_text_nearly_as_much_faster_as_they_are_long() -> None:
    drive = Drive(CHEAP, right=1, of=1)
    took_s = drive.run(200)
    assert plain_time(CHEAP, num_tokens=drive.num_tokens) / took_s > 0.6 * (1 + MAX_DRAFT)


def test_wrong_guesses_cost_at_most_two_percent_of_the_work() -> None:
    drive = Drive(CHEAP, right=0, of=1)
    took_s = drive.run(400)
    assert drive.num_tokens == 400
    assert took_s <= 1.02 * plain_time(CHEAP, num_tokens=400)
    assert drive.control.lost_s <= 0.02 * drive.control.total_s
    assert drive.num_drafted > 0, "whether drafts pay is never found out by never trying"


def test_a_text_that_turns_bad_stops_paying_soon() -> None:
    """Savings of a long good spell are not spent on a long bad one."""
    drive = Drive(CHEAP, right=1, of=1)
    drive.run(300)
    drive._right = 0
    before_s, tokens = drive.control.total_s, drive.num_tokens
    took_s = drive.run(400)
    assert took_s <= 1.02 * plain_time(CHEAP, num_tokens=drive.num_tokens - tokens) + 0.06 * before_s
    drafted = drive.num_drafted
    drive.run(200)
    assert drive.num_drafted - drafted <= 200 / 16 + 1


def test_a_text_that_turns_good_is_noticed() -> None:
    drive = Drive(CHEAP, right=0, of=1)
    drive.run(300)
    drive._right = 1
    drive.run(400)
    tokens = drive.num_tokens
    drive.run(100)
    assert drive.num_tokens - tokens > 300


def test_nothing_is_drafted_where_a_verified_token_costs_as_much_as_a_step() -> None:
    drive = Drive(DEAR, right=1, of=1)
    took_s = drive.run(300)
    assert took_s <= 1.02 * plain_time(DEAR, num_tokens=drive.num_tokens)


def test_a_full_batch_leaves_no_room_for_guesses() -> None:
    """Eight sequences make the step compute-bound: each further token costs what it brings."""
    cost = make_step_cost(decode_s=0.002, token_s=0.010)
    drive = Drive(cost, num_sequences=8, right=1, of=2)
    drive.run(200)
    assert drive.control.lost_s <= 0.02 * drive.control.total_s


@pytest.mark.parametrize(("right", "of"), [(1, 2), (2, 3), (9, 10)])
def test_guesses_that_are_right_now_and_then_never_slow_a_text_down(right: int, of: int) -> None:
    drive = Drive(CHEAP, right=right, of=of)
    took_s = drive.run(400)
    assert took_s <= 1.01 * plain_time(CHEAP, num_tokens=drive.num_tokens)


def test_what_drafts_brought_is_told_once_and_then_forgotten() -> None:
    drive = Drive(CHEAP, right=1, of=1)
    drive.run(100)
    told = drive.control.forget(1)
    assert told is not None
    assert told.drafted == drive.num_drafted
    assert told.accepted == told.drafted
    assert told.gain is not None
    assert 4 < told.gain < 1 + MAX_DRAFT
    assert drive.control.forget(1) is None


def test_the_purse_starts_with_a_share_of_the_prompt() -> None:
    drive = Drive(CHEAP)
    assert drive.control._purse_s == pytest.approx(PURSE_SHARE * drive.control.total_s)
    assert drive.control.total_s == pytest.approx(CHEAP.seconds([RowPlan(1, 0, 100, Phase.PREFILL, True)]))
