"""The JSON object has exactly the promised keys, in seconds and bytes, null where there is no value."""

import json

import pytest

from tests.view.builders import EMPTY_USE, make_report, make_result
from twostroke.core.event import Timing
from twostroke.core.ledger import Ledger, Part
from twostroke.core.report import PhaseReport
from twostroke.core.sequence import FinishReason
from twostroke.core.step import TokenLogprob
from twostroke.view.json_report import json_report


def test_the_whole_object() -> None:
    assert json_report(make_result(), make_report()) == {
        "text": "Blue.",
        "token_ids": [5, 6, 7],
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 20, "cached_tokens": 16, "completion_tokens": 3},
        "phases": {
            "prefill": {"tokens": 4, "time_s": 0.04, "tokens_per_s": 100.0, "bound_by": "compute", "utilisation": 0.61},
            "decode": {
                "tokens": 2,
                "time_s": 0.5,
                "tokens_per_s": 4.0,
                "bound_by": "bandwidth",
                "utilisation": 0.88,
                "tpot_s": 0.25,
            },
        },
        "kv": {"tokens": 22, "bytes": 2_500_000, "blocks": 2, "waste_ratio": 0.3125},
        "ttft_s": 0.043,
        "e2e_s": 0.58301,
        "ledger": {
            "tokenize": 0.002,
            "prefill": 0.04,
            "first_sample": 0.001,
            "decode": 0.5,
            "overhead": 0.00001,
            "stall": [
                {"kind": "prefill_of_other", "time_s": 0.03, "request_id": "request-7"},
                {"kind": "decode_of_others", "time_s": 0.01, "request_id": None},
            ],
        },
    }


def test_ledger_parts_and_stalls_sum_to_e2e() -> None:
    shown = json_report(make_result(), make_report())
    ledger = dict(shown["ledger"])
    stalls = ledger.pop("stall")
    total_s = sum(ledger.values()) + sum(stall["time_s"] for stall in stalls)
    assert total_s == pytest.approx(shown["e2e_s"], abs=1e-9)


def test_absent_values_are_null() -> None:
    timing = Timing(ttft_s=None, tpot_s=None, e2e_s=0.01, first_text_s=None)
    result = make_result(
        finish_reason=FinishReason.CANCELLED, token_ids=(), timing=timing, ttft_ledger=None, ledger=Ledger({}, ())
    )
    shown = json.loads(json.dumps(json_report(result, PhaseReport(EMPTY_USE, EMPTY_USE))))
    assert shown["ttft_s"] is None
    assert shown["phases"]["decode"]["tpot_s"] is None
    assert shown["phases"]["prefill"]["tokens_per_s"] is None
    assert shown["phases"]["prefill"]["bound_by"] is None
    assert shown["ledger"] == {"stall": []}


def test_keys_are_plain_strings() -> None:
    shown = json_report(make_result(ledger=Ledger({part: 1.0 for part in Part}, ())), make_report())
    assert all(type(key) is str for key in shown["ledger"])
    assert type(shown["finish_reason"]) is str


def test_log_probabilities_come_only_when_asked_for() -> None:
    result = make_result(
        token_ids=(5, 6), logprobs=(-0.5, -1.0), top_logprobs=((TokenLogprob(5, -0.5), TokenLogprob(9, -2.0)), ())
    )
    assert "logprobs" not in json_report(result, make_report())
    assert json_report(result, make_report(), with_logprobs=True)["logprobs"] == [
        {"token_id": 5, "logprob": -0.5, "top": [{"token_id": 5, "logprob": -0.5}, {"token_id": 9, "logprob": -2.0}]},
        {"token_id": 6, "logprob": -1.0, "top": []},
    ]


def test_sampled_tokens_alone_have_empty_alternatives() -> None:
    result = make_result(token_ids=(5,), logprobs=(-0.5,), top_logprobs=())
    assert json_report(result, make_report(), with_logprobs=True)["logprobs"] == [
        {"token_id": 5, "logprob": -0.5, "top": []}
    ]
