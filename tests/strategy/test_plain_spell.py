"""Plain steps in a row are counted without a look at them, and booked as if each had been priced."""

from collections.abc import Sequence as Seq

import pytest

from tests.strategy.test_speculation import CHEAP, DEAR, Drive, Oracle
from twostroke.core.phase import Phase
from twostroke.core.sequence import Sequence
from twostroke.core.step import RowPlan
from twostroke.strategy.plain_spell import PRICED_EVERY, PlainSpell
from twostroke.strategy.speculation import PROBE_EVERY

DECODES = [RowPlan(number, 10, 1, Phase.DECODE, True) for number in range(2)]


class CountingOracle(Oracle):
    """Counts how often it is asked."""

    num_looks = 0

    def propose(self, sequence: Sequence, limit: int) -> Seq[int]:
        self.num_looks += 1
        return super().propose(sequence, limit)


def test_steps_are_skipped_while_as_many_run() -> None:
    spell = PlainSpell()
    spell.sleep(3, num_sequences=2)
    assert [spell.skips(2), spell.skips(3), spell.skips(2)] == [True, False, True]
    assert [spell.counted(), spell.counted()] == [2, 0]
    assert [spell.skips(2), spell.skips(2)] == [True, False]


def test_only_steps_like_the_last_are_taken_and_for_a_while_only() -> None:
    spell = PlainSpell()
    assert not spell.takes(DECODES, wall_s=1.0)
    spell.begin(2, step_s=0.5)
    assert not spell.takes(DECODES[:1], wall_s=1.0)
    assert not spell.takes([*DECODES[:1], RowPlan(5, 0, 7, Phase.PREFILL, True)], wall_s=1.0)
    assert [spell.takes(DECODES, wall_s=1.0) for _ in range(PRICED_EVERY + 1)] == [True] * PRICED_EVERY + [False]
    assert (spell.num_steps, spell.wall_s) == (PRICED_EVERY, PRICED_EVERY * 1.0)


def test_a_purse_that_could_pay_for_no_token_is_not_looked_at_by_any_sequence() -> None:
    drive = Drive(CHEAP, right=0, num_sequences=8)
    drive.control.lookup = oracle = CountingOracle()
    drive.run(640)
    assert 8 <= oracle.num_looks <= 640 * 8 / 20
    assert drive.num_drafted >= 8, "each has its first try"


def test_where_nothing_pays_most_steps_need_no_look_and_all_are_booked() -> None:
    drive = Drive(DEAR, right=0, num_sequences=2)
    looks = 0
    for _ in range(320):
        looks += not drive.control._spell.num_left
        drive.step()
    assert looks <= 3 * 320 / PROBE_EVERY + 4
    assert drive.control.refused_share <= 0.02  # books what is open
    prompts = sum(DEAR.seconds([RowPlan(n, 0, 100, Phase.PREFILL, True) for n in range(2)]) for _ in range(1))
    expected = prompts + 320 * DEAR.seconds(DECODES)
    assert drive.control._lookup_purse.total_s == pytest.approx(expected, rel=0.02)


def test_a_sequence_that_comes_or_ends_is_looked_at_at_once() -> None:
    drive = Drive(CHEAP, right=0, num_sequences=2)
    drive.run(200)
    while not drive.control._spell.num_left:
        drive.step()
    assert not drive.control.has_nothing(3)
    assert drive.control.has_nothing(2)
    drive.control.forget(1)
    assert not drive.control.has_nothing(1)
    assert not drive.control.has_nothing(2)
