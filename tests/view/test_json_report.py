"""The JSON object has exactly the promised keys, in seconds and bytes, null where there is no value."""

import json

import pytest

from tests.view.builders import EMPTY_USE, make_report, make_result
from twostroke.core.event import Beam, Speculation, Timing
from twostroke.core.ledger import Ledger, Part, Stall, StallKind
from twostroke.core.report import Bound, PhaseReport, PhaseUse
from twostroke.core.sequence import FinishReason
from twostroke.core.step import TokenLogprob
from twostroke.view.drafts import drafts_json
from twostroke.view.json_report import json_report


def test_a_seed_is_told_where_the_answer_was_drawn() -> None:
    plain = json_report(make_result(), make_report())
    assert json_report(make_result(), make_report(), with_seed=True) == {**plain, "seed": 11}


def test_the_whole_object() -> None:
    assert json_report(make_result(), make_report()) == {
        "text": "Blue.",
        "token_ids": [5, 6, 7],
        "finish_reason": "stop",
        "stop_reason": None,
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


@pytest.mark.parametrize("part", list(Part))
def test_every_part_is_a_key_of_its_own_with_its_seconds(part: Part) -> None:
    shown = json_report(make_result(ledger=Ledger({part: 0.25}, ())), make_report())
    assert shown["ledger"] == {part.value: 0.25, "stall": []}


def test_no_part_can_be_taken_for_the_stalls() -> None:
    assert "stall" not in {part.value for part in Part}


@pytest.mark.parametrize("kind", list(StallKind))
@pytest.mark.parametrize("request_id", ["r7", None])
def test_every_stall_tells_kind_time_and_who(kind: StallKind, request_id: str | None) -> None:
    shown = json_report(make_result(ledger=Ledger({}, (Stall(kind, 0.5, request_id),))), make_report())
    assert shown["ledger"]["stall"] == [{"kind": kind.value, "time_s": 0.5, "request_id": request_id}]
    assert type(shown["ledger"]["stall"][0]["kind"]) is str


@pytest.mark.parametrize("reason", list(FinishReason))
def test_every_end_has_its_word(reason: FinishReason) -> None:
    shown = json_report(make_result(finish_reason=reason), make_report())["finish_reason"]
    assert (shown, type(shown)) == (reason.value, str)


@pytest.mark.parametrize("bound_by", list(Bound))
def test_nought_is_nought_and_never_null(bound_by: Bound) -> None:
    use = PhaseUse(0, 0.0, tokens_per_s=0.0, bound_by=bound_by, utilisation=0.0, tpot_s=0.0)
    timing = Timing(ttft_s=0.0, tpot_s=None, e2e_s=0.0, first_text_s=None)
    shown = json_report(make_result(timing=timing, ledger=Ledger({Part.QUEUE: 0.0}, ())), PhaseReport(use, use))
    facts = {"tokens": 0, "time_s": 0.0, "tokens_per_s": 0.0, "bound_by": bound_by.value, "utilisation": 0.0}
    assert shown["phases"] == {"prefill": facts, "decode": {**facts, "tpot_s": 0.0}}
    assert (shown["ttft_s"], shown["e2e_s"], shown["ledger"]) == (0.0, 0.0, {"queue": 0.0, "stall": []})


def test_tokens_without_their_log_probability_are_no_report() -> None:
    result = make_result(token_ids=(5, 6), logprobs=(-0.5,), top_logprobs=((), ()))
    with pytest.raises(ValueError, match="shorter"):
        json_report(result, make_report(), with_logprobs=True)


def test_an_answer_without_a_token_has_an_empty_list_of_them() -> None:
    result = make_result(token_ids=(), logprobs=(), top_logprobs=())
    assert json_report(result, make_report(), with_logprobs=True)["logprobs"] == []


def test_the_answers_of_a_search_stand_beside_the_best_one() -> None:
    beams = (Beam("Blue.", (5, 6, 7), -0.25, FinishReason.STOP), Beam("Red", (8,), -1.5, FinishReason.LENGTH))
    assert json_report(make_result(beams=beams), make_report())["beams"] == [
        {"text": "Blue.", "token_ids": [5, 6, 7], "score": -0.25, "finish_reason": "stop", "stop_reason": None},
        {"text": "Red", "token_ids": [8], "score": -1.5, "finish_reason": "length", "stop_reason": None},
    ]
    assert "beams" not in json_report(make_result(), make_report())


def test_what_drafts_brought_is_told_where_they_were_asked_for() -> None:
    shown = json_report(make_result(speculation=Speculation(40, 34, 1.75)), make_report())
    assert shown["speculation"] == drafts_json(Speculation(40, 34, 1.75))
    assert "speculation" not in json_report(make_result(), make_report())
