"""The generator finds what a server on schedule does, by definition never less."""

import pytest

from tests.traffic.traffic_builders import FAST, make_outcome
from twostroke.traffic.load import Load
from twostroke.traffic.mock_server import MockSchedule
from twostroke.traffic.self_test import ITL_S, TTFT_S, SelfTest, mock_process
from twostroke.traffic.summary import Objective, summarise


def test_a_mock_process_ends_with_its_block() -> None:
    with mock_process(ttft_s=FAST.ttft_s, itl_s=FAST.itl_s) as address:
        assert address.startswith("http://127.0.0.1:")


def test_cost_is_told_per_token_and_medians_beside_the_schedule() -> None:
    outcomes = [make_outcome((1.06, 1.08), sent_s=1.0)]
    summary = summarise(outcomes, num_planned=1, objective=Objective())
    test = SelfTest(Load(summary=summary, outcomes=outcomes, settings={}, about=()), cpu_s=0.5)
    assert test.cpu_s_per_token == 0.25
    assert test.medians_s["TTFT"] == pytest.approx((TTFT_S, 0.06))
    assert test.medians_s["TPOT"] == pytest.approx((ITL_S, 0.02))


def test_the_schedule_is_that_of_the_mock() -> None:
    assert (MockSchedule().ttft_s, MockSchedule().itl_s) == (TTFT_S, ITL_S)
