"""A load as people read it, and as a program does."""

import json

import pytest

from tests.traffic.traffic_builders import make_outcome
from twostroke.traffic.load import Load
from twostroke.traffic.outcome import Outcome
from twostroke.traffic.self_test import SelfTest
from twostroke.traffic.summary import Objective, summarise
from twostroke.view.traffic_report import self_test_json, self_test_lines, traffic_json, traffic_lines

FAILED = Outcome(
    place=1, wanted_prompt=8, wanted_output=3, sent_s=1.0, end_s=1.2, error="http 429", problem="queue\nfull"
)
OUTCOMES = [make_outcome((1.5, 1.6, 1.9), due_s=0.998), FAILED]
SUMMARY = summarise(OUTCOMES, num_planned=3, objective=Objective(ttft_s=0.6), asked_rate_per_s=2.0)


def lines() -> list[str]:
    return traffic_lines(SUMMARY, about=["a server"], objective="TTFT 600 ms")


def line(start: str) -> str:
    (found,) = [each for each in lines() if each.startswith(start)]
    return " ".join(found.split())


def test_the_table_has_mean_percentiles_and_samples() -> None:
    assert lines()[0] == "a server"
    assert line("client's view") == "client's view mean p50 p90 p95 p99 most samples"
    assert line("TTFT") == "TTFT" + " 500.0 ms" * 6 + " 1"
    assert line("TPOT") == "TPOT" + " 200.0 ms" * 6 + " 1"
    assert line("late by ourselves").startswith("late by ourselves 2.00 ms")


def test_errors_are_told_by_kind_with_an_example_on_one_line() -> None:
    assert line("error") == "error http 429: 1 of 2; queue full"
    assert line("answered") == "answered 1 of 2 sent, 3 planned"


def test_rates_goodput_chunks_and_lengths_have_a_line_each() -> None:
    assert line("output").startswith("output 3.3 tok/s, prompts 8.7 tok/s, 1.09 requests/s answered in 920.0 ms")
    assert line("goodput") == "goodput 1.09 requests/s, 50 % of those sent, within TTFT 600 ms"
    assert line("arrivals") == "arrivals asked 2/s, due -/s, achieved -/s"
    assert line("chunks") == "chunks 3 with text, 1.000 tokens each; 3 without text, 0 comments"
    assert line("lengths").startswith("lengths all as asked; 0 of 8")


def test_lengths_that_are_not_as_asked_are_counted() -> None:
    summary = summarise([make_outcome(wanted_output=4)], num_planned=1, objective=Objective())
    told = traffic_lines(summary, about=[], objective=None)
    assert any("0 prompts and 1 answers are not as long as asked; 0 of" in each for each in told)


def test_other_words_stand_below_with_their_reason() -> None:
    assert any(each.startswith("  guidellm TPOT") and "prefill is inside" in each for each in lines())
    assert all(len(each) <= 100 for each in lines()[-12:])


def test_a_server_without_usage_is_said_to_be_one() -> None:
    uncounted = make_outcome(output_tokens=None)
    told = traffic_lines(summarise([uncounted], num_planned=1, objective=Objective()), about=[], objective=None)
    assert any("the server tells no usage" in each for each in told)
    assert not any(each.startswith(("goodput", "arrivals", "late")) for each in told)


def test_nothing_measured_is_a_dash() -> None:
    told = traffic_lines(summarise([FAILED], num_planned=1, objective=Objective()), about=[], objective=None)
    assert any(each.split() == ["TTFT", "-"] for each in told)


def test_json_has_seconds_and_every_request() -> None:
    shown = json.loads(json.dumps(traffic_json(SUMMARY, OUTCOMES, settings={"seed": 0}, start_s=1.0), allow_nan=False))
    assert shown["ttft_s"]["p50"] == pytest.approx(0.5)
    assert (shown["settings"], shown["num_sent"], shown["late_s"]["count"]) == ({"seed": 0}, 2, 1)
    assert shown["errors"] == [{"kind": "http 429", "count": 1, "example": "queue\nfull"}]
    first, second = shown["requests"]
    assert first["ttft_s"] == pytest.approx(0.5)
    assert (first["sent_s"], first["output_tokens"], first["error"]) == (0.0, 3, None)
    assert (second["ttft_s"], second["error"]) == (None, "http 429")
    assert {each["tool"] for each in shown["others"]} >= {"vllm bench serve", "llama-bench"}


def test_a_self_test_tells_both_times_and_the_cost() -> None:
    outcomes = [make_outcome((1.06, 1.08), sent_s=1.0)]
    summary = summarise(outcomes, num_planned=1, objective=Objective())
    test = SelfTest(Load(summary=summary, outcomes=outcomes, settings={}, about=()), cpu_s=0.001)
    assert self_test_lines(test)[1:] == [
        "TTFT  scheduled 50.0 ms, found 60.0 ms: +20.00 %",
        "TPOT  scheduled 10.0 ms, found 20.0 ms: +100.00 %",
        "own work  500 us of one core a token: 2000 tok/s keep one core busy",
    ]
    assert self_test_json(test)["medians_s"]["TTFT"]["scheduled"] == 0.05
