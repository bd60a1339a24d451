"""Sums and percentiles of a load, goodput, errors by kind, and other tools' words for the same answers."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.traffic.traffic_builders import make_outcome
from twostroke.traffic.outcome import Outcome
from twostroke.traffic.summary import Objective, Summary, percentile, spread_of, summarise

ANY = Objective()


def failed(kind: str, problem: str = "") -> Outcome:
    return Outcome(place=9, wanted_prompt=8, wanted_output=3, sent_s=1.0, end_s=1.5, error=kind, problem=problem)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(0, 100))
def test_percentiles_are_those_of_numpy(samples: list[float], percent: float) -> None:
    assert percentile(sorted(samples), percent) == pytest.approx(float(np.percentile(samples, percent)), abs=1e-6)


def test_a_spread_leaves_out_what_does_not_exist() -> None:
    found = spread_of([3.0, None, 1.0])
    assert found is not None
    assert (found.count, found.mean, found.percentiles[0], found.highest) == (2, 2.0, 2.0, 3.0)
    assert spread_of([None]) is spread_of([]) is None


def test_rates_run_from_the_first_sent_to_the_last_end() -> None:
    outcomes = [make_outcome((2.0, 3.98), sent_s=0.0), make_outcome((2.0, 2.5, 3.0), sent_s=1.0)]
    summary = summarise(outcomes, num_planned=2, objective=ANY)
    assert summary.duration_s == pytest.approx(4.0)
    assert summary.requests_per_s == pytest.approx(0.5)
    assert (summary.output_tokens, summary.prompt_tokens) == (5, 16)
    assert summary.output_per_s == pytest.approx(5 / 4)
    assert (summary.num_text_chunks, summary.num_empty_chunks) == (5, 6)
    assert (summary.goodput_per_s, summary.num_good) == (None, None)


def test_failures_are_counted_by_kind_and_in_no_latency() -> None:
    outcomes = [make_outcome((1.5, 1.6)), failed("http 429", "queue full"), failed("http 429"), failed("timeout")]
    summary = summarise(outcomes, num_planned=5, objective=ANY)
    assert (summary.num_planned, summary.num_sent, summary.num_answered) == (5, 4, 1)
    assert summary.errors == (("http 429", 2, "queue full"), ("timeout", 1, ""))
    assert summary.ttft is not None
    assert summary.ttft.count == 1
    assert summary.output_tokens == 2


def test_goodput_counts_answers_that_met_both_objectives() -> None:
    outcomes = [
        make_outcome((1.1, 1.2), sent_s=1.0),  # TTFT 100 ms, TPOT 100 ms
        make_outcome((1.3, 1.4), sent_s=1.0),  # too late
        make_outcome((1.1, 1.5), sent_s=1.0),  # too slow
        make_outcome((1.1,), sent_s=1.0),  # one token: nothing to be slow with
        failed("timeout"),
    ]
    summary = summarise(outcomes, num_planned=5, objective=Objective(ttft_s=0.2, tpot_s=0.2))
    assert summary.num_good == 2
    assert summary.goodput_per_s == pytest.approx(2 / summary.duration_s)
    assert summarise(outcomes, num_planned=5, objective=Objective(ttft_s=0.2)).num_good == 3


def test_achieved_and_due_rates_are_told_apart() -> None:
    outcomes = [
        make_outcome((9.0,), sent_s=sent_s, due_s=due_s) for sent_s, due_s in ((0.0, 0.0), (2.5, 1.0), (4.0, 2.0))
    ]
    summary = summarise(outcomes, num_planned=3, objective=ANY, asked_rate_per_s=1.25)
    assert (summary.asked_rate_per_s, summary.due_rate_per_s, summary.sent_rate_per_s) == (1.25, 1.0, 0.5)
    assert summary.late is not None
    assert summary.late.highest == 2.0


def test_lengths_that_are_not_as_asked_are_counted() -> None:
    outcomes = [make_outcome(), make_outcome(wanted_prompt=9), make_outcome(wanted_output=4)]
    summary = summarise(outcomes, num_planned=3, objective=ANY)
    assert (summary.num_other_prompts, summary.num_other_outputs, summary.has_usage) == (1, 1, True)


def test_a_load_of_nothing_has_no_numbers() -> None:
    summary = summarise([], num_planned=0, objective=ANY)
    assert (summary.ttft, summary.requests_per_s, summary.sent_rate_per_s) == (None, None, None)


def words_of(summary: Summary) -> dict[tuple[str, str], float]:
    return {(each.tool, each.name): each.spread.percentiles[0] for each in summary.others if each.spread is not None}


def test_other_tools_words_follow_their_definitions() -> None:
    """Sent at 1, the role at 1.01, text at 1.5, 1.6 and 1.9, the end at 1.92; three tokens."""
    words = words_of(summarise([make_outcome((1.5, 1.6, 1.9))], num_planned=1, objective=ANY))
    assert words == {
        ("vllm bench serve", "TTFT"): pytest.approx(0.01),
        ("vllm bench serve", "TPOT"): pytest.approx(0.91 / 2),
        ("vllm bench serve", "ITL"): pytest.approx((0.1 + 0.3) / 2),  # gaps 0.49, 0.1, 0.3, 0.02
        ("aiperf, genai-perf", "ITL"): pytest.approx(0.2),
        ("aiperf", "ICL"): pytest.approx(0.2),
        ("guidellm", "TPOT"): pytest.approx(0.3),
        ("llmperf", "ITL"): pytest.approx(0.92 / 3),
    }


def test_llama_bench_has_no_number_but_a_reason() -> None:
    others = summarise([make_outcome()], num_planned=1, objective=ANY).others
    (one,) = [each for each in others if each.tool == "llama-bench"]
    assert one.spread is None
    assert "no server" in one.why


def test_every_other_word_says_why_it_differs() -> None:
    assert all(len(each.why) > 10 for each in summarise([], num_planned=0, objective=ANY).others)
