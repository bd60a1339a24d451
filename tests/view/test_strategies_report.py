"""Answers one below the other: every line from made-up numbers that fit in the head."""

from tests.view.builders import make_report, make_result
from twostroke.measure.strategies import Outcome
from twostroke.presets import preset
from twostroke.view.strategies_report import strategies_json, strategies_text

SCORED = Outcome(make_result(), make_report(), -4.5, 1.25)
EMPTY = Outcome(make_result(text="", token_ids=()), make_report(), None, None)


def test_each_answer_stands_under_its_name_its_scores_and_its_time() -> None:
    assert strategies_text([(preset("chat"), SCORED), (preset("exact"), EMPTY)]) == (
        "== chat: temperature 0.7, top_p 0.9\n"
        "   3 tokens, stop; log-probability -4.50, -1.50 per token; entropy 1.25 nats\n"
        "   prefill 40.0 ms, decode 500.0 ms, sample 0.00 ms, stall 40.0 ms\n"
        "Blue.\n"
        "\n"
        "== exact: temperature 0\n"
        "   0 tokens, stop\n"
        "   prefill 40.0 ms, decode 500.0 ms, sample 0.00 ms, stall 40.0 ms\n"
    )


def test_the_array_has_what_the_text_shows() -> None:
    first, second = strategies_json([(preset("chat"), SCORED), (preset("exact"), EMPTY)])
    assert first == {
        "strategy": "chat",
        "settings": "temperature 0.7, top_p 0.9",
        "text": "Blue.",
        "token_ids": [5, 6, 7],
        "finish_reason": "stop",
        "logprob": -4.5,
        "entropy": 1.25,
        "ledger": {"tokenize": 0.002, "prefill": 0.04, "first_sample": 0.001, "decode": 0.5, "overhead": 0.00001},
        "stall_s": 0.04,
    }
    assert (second["logprob"], second["entropy"]) == (None, None)
