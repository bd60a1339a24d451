"""Ollama's durations: whole nanoseconds that add up, from the ledger."""

from dataclasses import replace

from tests.serve.serve_builders import make_finish
from twostroke.core.event import Timing, Usage
from twostroke.core.ledger import Ledger, Part
from twostroke.core.sequence import FinishReason
from twostroke.serve.ollama.durations import durations

USAGE = Usage(prompt_tokens=26, cached_tokens=10, completion_tokens=7)
FINISH = make_finish("r", reason=FinishReason.STOP, usage=USAGE)
LEDGER = Ledger(
    parts={Part.PARSE: 0.001, Part.TEMPLATE: 0.002, Part.TOKENIZE: 0.003, Part.QUEUE: 0.014, Part.PREFILL: 0.08},
    stalls=(),
)


def test_parts_add_up_to_the_total() -> None:
    finish = replace(FINISH, timing=Timing(ttft_s=0.1, tpot_s=0.1, e2e_s=0.35, first_text_s=0.1))
    assert durations(finish, LEDGER) == {
        "total_duration": 350_000_000,
        "load_duration": 0,
        "prompt_eval_count": 26,  # cached ones too
        "prompt_eval_duration": 80_000_000,
        "eval_count": 7,
        "eval_duration": 250_000_000,
    }


def test_an_answer_without_a_token_took_its_time_for_the_prompt() -> None:
    finish = replace(FINISH, timing=Timing(ttft_s=None, tpot_s=None, e2e_s=0.1, first_text_s=None))
    told = durations(finish, LEDGER)
    assert (told["prompt_eval_duration"], told["eval_duration"]) == (80_000_000, 0)


def test_the_wait_for_a_load_is_told_apart() -> None:
    loaded = Ledger(parts={**LEDGER.parts, Part.LOAD: 0.5}, stalls=())
    finish = replace(FINISH, timing=Timing(ttft_s=0.6, tpot_s=None, e2e_s=0.85, first_text_s=None))
    told = durations(finish, loaded)
    assert (told["load_duration"], told["prompt_eval_duration"]) == (500_000_000, 80_000_000)
    assert (told["total_duration"], told["eval_duration"]) == (850_000_000, 250_000_000)


def test_nothing_is_ever_below_zero() -> None:
    finish = replace(FINISH, timing=Timing(ttft_s=0.01, tpot_s=None, e2e_s=0.01, first_text_s=None))
    assert min(durations(finish, LEDGER).values()) == 0
