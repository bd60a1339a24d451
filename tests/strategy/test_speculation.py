"""How many guesses are verified: many where they are right and cheap, next to none where they are wrong or dear."""

from collections.abc import Mapping, Sequence as Seq

import pytest

from tests.builders_schedule import make_sequence, make_step_cost
from twostroke.core.event import NoDraft
from twostroke.core.phase import Phase
from twostroke.core.sequence import Sequence
from twostroke.core.step import RowPlan
from twostroke.core.step_cost import StepCost
from twostroke.strategy.draft_purse import LOOKUP_SHARE, MODEL_SHARE
from twostroke.strategy.speculation import CONTROL_EVERY, CREDIT_STEPS, MAX_DRAFT, SpeculationControl

CHEAP = make_step_cost(decode_s=0.010, token_s=0.0005)  # a verified token is a twentieth of a step
DEAR = make_step_cost(decode_s=0.0001, token_s=0.010)  # as many tokens, as much time: nothing to win


class Oracle:
    """Always has a guess; who asks decides whether it was right."""

    def propose(self, sequence: Sequence, limit: int) -> Seq[int]:
        return [7] * limit

    def forget(self, sequence_id: int) -> None:
        pass


class Silent(Oracle):
    """Never has a guess."""

    def propose(self, sequence: Sequence, limit: int) -> Seq[int]:
        return []


class Unasked(Oracle):
    """Nobody may ask it."""

    def propose(self, sequence: Sequence, limit: int) -> Seq[int]:
        raise AssertionError("the purse is empty")


class Model:
    """A draft model that guesses at once, at a price; it has read all but what it was not asked for."""

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self.total_s = 0.0
        self.num_asked = 0
        self.reason: NoDraft | None = None
        self.num_read: dict[int, int] = {}

    def cost(self) -> StepCost:
        return self._cost

    def why_not(self, sequence: Sequence) -> NoDraft | None:
        return self.reason

    def num_unread(self, sequence: Sequence) -> int:
        return sequence.num_tokens - min(self.num_read.get(sequence.sequence_id, 0), sequence.num_tokens - 1)

    def propose(self, wishes: Seq[tuple[Sequence, int]]) -> Mapping[int, tuple[int, ...]]:
        self.num_asked += 1
        active = [(each, limit) for each, limit in wishes]
        for number in range(max(limit for _, limit in wishes)):
            rows = []
            for each, limit in active:
                if limit > number:
                    unread = self.num_unread(each) if number == 0 else 1
                    rows.append(
                        RowPlan(each.sequence_id, each.num_tokens + number - unread, unread, Phase.DECODE, True)
                    )
            self.total_s += self._cost.seconds(rows)
        self.num_read |= {each.sequence_id: each.num_tokens for each, _ in wishes}
        return {each.sequence_id: (7,) * limit for each, limit in wishes}

    def held_bytes(self, sequence_id: int) -> int:
        return 96

    def forget(self, sequence_id: int) -> None:
        self.num_read.pop(sequence_id, None)


class Drive:
    """Decode steps without an engine: `right` of every `of` guesses are right, in turn; each look takes `look_s`."""

    def __init__(
        self,
        cost: StepCost,
        *,
        num_sequences: int = 1,
        right: int = 1,
        of: int = 1,
        model: Model | None = None,
        look_s: float = 0.0,
    ) -> None:
        self.cost = cost
        self.model = model
        self.control = SpeculationControl(Oracle()) if model is None else SpeculationControl(model=model)
        self.sequences = [make_sequence(n, prompt=100, max_tokens=10_000) for n in range(1, num_sequences + 1)]
        for sequence in self.sequences:
            sequence.num_computed = 100
            sequence.token_ids.append(7)
        self._right, self._of, self._asked = right, of, 0
        self.look_s = look_s
        self.num_looks = 0
        self.num_drafted = 0
        self.num_tokens = 0
        prompt = [RowPlan(each.sequence_id, 0, 100, Phase.PREFILL, True) for each in self.sequences]
        grown = {each.sequence_id: 1 for each in self.sequences}
        self.control.learn(prompt, grown, cost=cost, wall_s=1.0, draft_s=0.0)

    def step(self) -> float:
        """Predicted seconds of the step."""
        before_s = 0.0 if self.model is None else self.model.total_s
        has_nothing = self.control.has_nothing(len(self.sequences))
        drafts = {} if has_nothing else self.control.draft(self.sequences, self.cost)
        draft_s = 0.0 if self.model is None else self.model.total_s - before_s
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
        if not has_nothing:
            draft_s += self.look_s
            self.num_looks += 1
        wall_s = self.cost.seconds(rows) + draft_s
        self.control.learn(rows, grown if drafts else {}, cost=self.cost, wall_s=wall_s, draft_s=draft_s)
        return wall_s

    def _is_right(self) -> bool:
        self._asked += 1
        return self._asked % self._of < self._right

    def run(self, num_steps: int) -> float:
        return sum(self.step() for _ in range(num_steps))


def plain_time(cost: StepCost, *, num_tokens: int, num_sequences: int = 1) -> float:
    rows = [RowPlan(n, 100, 1, Phase.DECODE, True) for n in range(num_sequences)]
    return num_tokens / num_sequences * cost.seconds(rows)


def test_right_guesses_make_a_text_nearly_as_much_faster_as_they_are_long() -> None:
    drive = Drive(CHEAP, right=1, of=1)
    took_s = drive.run(200)
    assert plain_time(CHEAP, num_tokens=drive.num_tokens) / took_s > 0.6 * (1 + MAX_DRAFT)


def test_wrong_guesses_cost_at_most_two_percent_of_the_work() -> None:
    drive = Drive(CHEAP, right=0, of=1)
    took_s = drive.run(400)
    assert drive.num_tokens == 400
    assert took_s <= 1.02 * plain_time(CHEAP, num_tokens=400)
    assert drive.control.refused_share <= 0.02
    assert drive.num_drafted > 0, "whether drafts pay is never found out by never trying"


@pytest.mark.parametrize("num_sequences", [1, 8])
@pytest.mark.parametrize("look_s", [0.00005, 0.0005, 0.002])
def test_looking_is_paid_from_the_same_purse(look_s: float, num_sequences: int) -> None:
    """And the purse saves for the look and a token behind it: where looks are dear, wrong guesses are still found out.

    A credit of one step is lent once for all the life of an engine.
    """
    drive = Drive(CHEAP, right=0, num_sequences=num_sequences, look_s=look_s)
    plain_s = plain_time(CHEAP, num_tokens=num_sequences, num_sequences=num_sequences)
    took_s = drive.run(2000)
    assert took_s <= (1.006 * 2000 + 1) * plain_s + look_s
    assert drive.num_drafted >= 5
    assert drive.num_looks <= 20 + 0.006 * 2000 * plain_s / look_s


def test_beside_a_model_that_cannot_pay_looks_are_paid_no_less() -> None:
    model = Model(AS_LARGE)
    drive = Drive(CHEAP, right=0, num_sequences=8, look_s=0.0005)
    drive.control = SpeculationControl(Oracle(), model)
    plain_s = plain_time(CHEAP, num_tokens=8, num_sequences=8)
    took_s = drive.run(2000)
    assert took_s <= (1.006 * 2000 + 1) * plain_s
    assert model.num_asked == 0
    assert drive.num_drafted >= 5


def test_who_comes_while_the_purse_is_empty_is_not_looked_at_and_hears_why() -> None:
    drive = Drive(CHEAP, right=0, num_sequences=2, look_s=0.0005)
    drive.run(200)
    while drive.control._poor_until <= drive.control._step + 3:
        drive.step()
    drive.control.lookup = Unasked()
    drive.control.forget(2)
    for sequences in (drive.sequences[:1], drive.sequences):  # in the place of one that ended, and beside both
        late = make_sequence(3 + len(sequences), prompt=100, max_tokens=10_000)
        late.num_computed = 100
        late.token_ids.append(7)
        drive.sequences = [*sequences, late]
        drive.step()
        told = drive.control.forget(late.sequence_id)
        assert told is not None
        assert told.stop is not None
        assert (told.stop.reason, told.drafted) == (NoDraft.SHARE, 0)


def test_a_purse_that_was_emptied_drafts_again_though_every_waking_costs_a_look() -> None:
    """Saved for a token alone, it would be emptied by each look before it."""
    drive = Drive(CHEAP, right=0, num_sequences=8, look_s=0.0005)
    drive.run(300)
    for each in drive.sequences:
        drive.control.forget(each.sequence_id)
    (alone,) = drive.sequences[:] = [make_sequence(99, prompt=100, max_tokens=10_000)]
    alone.num_computed = 100
    alone.token_ids.append(7)
    drive._right, num_drafted = 1, drive.num_drafted
    drive.run(80)
    assert drive.num_drafted > num_drafted


def test_what_is_lent_pays_for_a_try_in_the_second_step() -> None:
    drive = Drive(CHEAP, right=1)
    drive.control._lookup_purse.balance_s = 0.0
    drive.run(2)
    assert drive.num_drafted > 0


def test_a_pause_in_the_middle_of_a_look_is_soon_forgiven() -> None:
    drive = Drive(CHEAP, right=1, look_s=10.0)
    drive.run(2)
    drive.look_s, num_drafted = 0.0, drive.num_drafted
    drive.run(150)
    assert drive.num_drafted > num_drafted


@pytest.mark.parametrize("right", [0, 1])
def test_the_time_of_a_models_guesses_is_not_paid_by_looks(right: int) -> None:
    """Those into the text that were done beside them are a small part of it."""
    drive = Drive(CHEAP, model=(model := Model(SMALL)), right=right)
    drive.control.lookup = Silent()
    for _ in range(200):
        purse_s, num_asked = drive.control._lookup_purse.balance_s, model.num_asked
        drive.step()
        if model.num_asked > num_asked:
            assert drive.control._lookup_purse.balance_s >= purse_s
    assert model.num_asked > 1


def test_a_model_that_could_never_pay_is_priced_once_in_64_steps() -> None:
    class Priced(Model):
        num_priced = 0

        def cost(self) -> StepCost:
            self.num_priced += 1
            return super().cost()

    Drive(CHEAP, model=(model := Priced(AS_LARGE))).run(640)
    assert 9 <= model.num_priced <= 12


def test_dear_looks_do_not_keep_a_text_that_repeats_itself_from_being_fast() -> None:
    drive = Drive(CHEAP, right=1, look_s=0.0005)
    took_s = drive.run(200)
    assert plain_time(CHEAP, num_tokens=drive.num_tokens) / took_s > 0.5 * (1 + MAX_DRAFT)


@pytest.mark.parametrize(("num_paid", "num_drafted"), [(0.9, 0), (1.5, 1), (2.5, 2)])
def test_a_guess_is_cut_to_what_the_purse_can_pay_for(num_paid: float, num_drafted: int) -> None:
    """Two tokens are wished for at first, each of them wrong once in three times."""
    drive = Drive(CHEAP, right=0)
    drive.step()  # the control
    purse = drive.control._lookup_purse
    purse.credit_s, purse.balance_s = 1e-9, num_paid * 0.0005 / 3  # what is lent once was lent
    drive.step()
    assert drive.num_drafted == num_drafted


def test_a_text_that_turns_bad_stops_paying_soon() -> None:
    """Savings of a long good spell are not spent on a long bad one."""
    drive = Drive(CHEAP, right=1, of=1)
    drive.run(300)
    drive._right = 0
    before_s, tokens = drive.control._lookup_purse.total_s, drive.num_tokens
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
    assert drive.control.refused_share <= 0.02


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
    purse = Drive(CHEAP).control._lookup_purse
    assert purse.balance_s == pytest.approx(LOOKUP_SHARE * purse.total_s)
    assert purse.total_s == pytest.approx(CHEAP.seconds([RowPlan(1, 0, 100, Phase.PREFILL, True)]))


SMALL = make_step_cost(decode_s=0.001, token_s=0.00005)  # a tenth of CHEAP
AS_LARGE = make_step_cost(decode_s=0.0105, token_s=0.0005)


def test_a_small_model_that_is_right_makes_decoding_faster() -> None:
    drive = Drive(CHEAP, model=Model(SMALL))
    drive.run(200)  # until the purse has paid for reading the prompt
    tokens, took_s = drive.num_tokens, drive.run(300)
    assert plain_time(CHEAP, num_tokens=drive.num_tokens - tokens) / took_s > 2.5
    told = drive.control.forget(1)
    assert told is not None
    assert told.gain is not None
    assert told.gain > 1.5
    assert told.kv_bytes == 96


def test_a_model_as_large_as_the_other_is_never_asked_and_costs_nothing() -> None:
    model = Model(AS_LARGE)
    drive = Drive(CHEAP, model=model)
    took_s = drive.run(400)
    assert model.num_asked == 0
    assert took_s == pytest.approx(plain_time(CHEAP, num_tokens=400))
    told = drive.control.forget(1)
    assert told is not None
    assert told.stop is not None
    assert told.stop.reason is NoDraft.COST
    assert told.stop.verify_share == pytest.approx(0.0005 / 0.0105)
    assert told.stop.draft_share == pytest.approx(0.011 / 0.0105)


@pytest.mark.parametrize("num_sequences", [1, 8])
def test_a_small_model_that_is_wrong_costs_at_most_two_percent_of_the_work(num_sequences: int) -> None:
    """Once its credit is spent: that is lent once for all the life of an engine."""
    model = Model(SMALL)
    drive = Drive(CHEAP, model=model, right=0, num_sequences=num_sequences)
    credit_s = CREDIT_STEPS * plain_time(CHEAP, num_tokens=num_sequences, num_sequences=num_sequences)
    for _ in range(4):
        tokens, asked, took_s = drive.num_tokens, model.num_asked, drive.run(500)
        assert model.num_asked > asked, "whether drafts pay is never found out by never trying"
        plain_s = plain_time(CHEAP, num_tokens=drive.num_tokens - tokens, num_sequences=num_sequences)
        assert took_s - credit_s <= 1.02 * plain_s
        credit_s = 0.0
    assert drive.control.refused_share <= 0.03
    told = drive.control.forget(1)
    assert told is not None
    assert told.stop is not None
    assert told.stop.reason in (NoDraft.COST, NoDraft.SHARE)


def test_a_round_is_shared_by_the_sequences_that_guess() -> None:
    """Eight together make a round worth its time; for one of them alone it would cost as much and bring an eighth."""

    class Picky(Model):
        def why_not(self, sequence: Sequence) -> NoDraft | None:
            return NoDraft.CONTEXT if sequence.sequence_id > 1 else None

    Drive(CHEAP, model=(together := Model(SMALL)), num_sequences=8).run(100)
    Drive(CHEAP, model=(alone := Picky(make_step_cost(decode_s=0.002, token_s=0.00005))), num_sequences=8).run(100)
    assert together.num_asked > 50
    assert alone.num_asked == 0


def test_reading_a_long_prompt_waits_until_the_purse_can_pay_for_it() -> None:
    model = Model(make_step_cost(decode_s=0.001, token_s=0.00002))
    drive = Drive(CHEAP, model=model)
    for each in drive.sequences:
        each.token_ids = [7] * 9000
        each.num_computed = 8999
    for _ in range(2000):
        if model.num_asked:
            break
        drive.step()
    credit_s = CREDIT_STEPS * 0.0105
    assert drive.control._model_purse.total_s * MODEL_SHARE + credit_s >= 9000 * 0.00002
    assert 200 < drive.num_tokens < 2000


def test_a_model_that_cannot_is_not_asked_and_the_reason_is_told() -> None:
    model = Model(SMALL)
    model.reason = NoDraft.CONTEXT
    drive = Drive(CHEAP, model=model)
    drive.run(50)
    assert model.num_asked == 0
    told = drive.control.forget(1)
    assert told is not None
    assert told.stop is not None
    assert told.stop.reason is NoDraft.CONTEXT


def test_guesses_from_the_text_go_before_the_models() -> None:
    model = Model(SMALL)
    drive = Drive(CHEAP)
    drive.control = SpeculationControl(Oracle(), model)
    drive.run(200)
    num_drafted, num_asked = drive.num_drafted, model.num_asked
    drive.run(200)
    assert drive.num_drafted > num_drafted
    assert model.num_asked == num_asked


def test_why_drafting_stopped_is_told_with_its_numbers() -> None:
    drive = Drive(make_step_cost(decode_s=0.004, token_s=0.006), right=0)
    drive.run(100)
    told = drive.control.forget(1)
    assert told is not None
    assert told.stop is not None
    assert told.stop.reason is NoDraft.COST
    assert told.stop.verify_share == pytest.approx(0.6)
    assert told.stop.acceptance < 0.6
    assert told.stop.num_sequences == 1
    right = Drive(CHEAP, right=1)
    right.run(100)
    told = right.control.forget(1)
    assert told is not None
    assert told.stop is None


def test_one_step_in_so_many_is_plain_where_drafts_pay() -> None:
    drive = Drive(CHEAP, right=1)
    plain = 0
    for _ in range(330):
        before = drive.num_drafted
        drive.step()
        plain += drive.num_drafted == before
    assert 330 / CONTROL_EVERY - 1 <= plain <= 330 / CONTROL_EVERY + 3
