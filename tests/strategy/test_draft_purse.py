"""What may be lost to guesses: a share of the work, a part of what was saved, and a credit given once."""

import pytest

from tests.strategy.test_speculation import CHEAP, Model, Oracle
from twostroke.strategy.draft_purse import KEPT_SAVINGS_SHARE, LOOKUP_SHARE, MODEL_SHARE, MOST_DEBT, Purse
from twostroke.strategy.speculation import SpeculationControl


def test_work_earns_its_share_and_guesses_spend_it() -> None:
    purse = Purse(0.01)
    for _ in range(100):
        purse.earn(1.0)
    assert purse.balance_s == pytest.approx(1.0)
    purse.settle(spent_s=0.8, saved_s=0.2, refused_share=0.75)
    assert (purse.balance_s, purse.lost_s) == pytest.approx((0.4, 0.6))


def test_looking_is_paid_and_is_no_refused_guess() -> None:
    purse = Purse(0.01)
    purse.lend(1.0)
    purse.pay(0.3)
    assert (purse.balance_s, purse.lost_s) == pytest.approx((0.7, 0.0))


def test_no_look_takes_a_purse_deeper_than_half_of_what_was_lent() -> None:
    """A process that was stopped for a minute in the middle of one."""
    purse = Purse(0.01)
    purse.lend(1.0)
    purse.pay(60.0)
    assert purse.balance_s == pytest.approx(-MOST_DEBT)
    purse.pay(1.0)
    assert purse.balance_s == pytest.approx(-MOST_DEBT)
    purse.settle(spent_s=1.0, saved_s=0.0, refused_share=1.0)
    purse.pay(1.0)
    assert purse.balance_s == pytest.approx(-MOST_DEBT - 1.0), "what was deeper before stays"


def test_luck_is_kept_up_to_a_share_of_all_work() -> None:
    purse = Purse(0.01)
    purse.earn(100.0)
    purse.settle(spent_s=0.0, saved_s=1000.0, refused_share=0.0)
    assert purse.balance_s == pytest.approx(KEPT_SAVINGS_SHARE * 100.0)
    purse.settle(spent_s=20.0, saved_s=0.0, refused_share=1.0)
    assert purse.balance_s < 0, "a long bad spell is not paid by earlier luck"


def test_credit_is_given_once_and_may_be_kept() -> None:
    purse = Purse(0.01)
    purse.lend(3.0)
    purse.lend(3.0)
    purse.earn(1.0)
    assert purse.balance_s == pytest.approx(3.0)  # the share of one second is beyond what may be kept


def test_both_kinds_of_guess_together_stay_far_below_two_percent() -> None:
    both = SpeculationControl(Oracle(), Model(CHEAP))
    assert (both._lookup_purse.share, both._model_purse.share) == (LOOKUP_SHARE, MODEL_SHARE)
    assert LOOKUP_SHARE + MODEL_SHARE <= 0.01


def test_saving_takes_as_many_steps_as_what_is_missing_takes_to_earn() -> None:
    purse = Purse(0.01)
    assert purse.num_steps_to(0.1, step_s=1.0, most=100) == 10
    assert purse.num_steps_to(0.101, step_s=1.0, most=100) == 11
    assert purse.num_steps_to(5.0, step_s=1.0, most=100) == 100
    assert purse.num_steps_to(5.0, step_s=0.0, most=100) == 100
