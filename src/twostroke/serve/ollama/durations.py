"""Ollama's counts and durations of an answer, in whole nanoseconds, from its ledger.

    arrival                    first step          first token                    end
    | load | parse ... queue   | prompt_eval       | eval                         |
    |<------------------------------- total ------------------------------------->|

Time lost to other requests lies in the phase it was lost in, as a client sees it; the ledger tells it apart.
"""

from twostroke.core.event import FinishEvent
from twostroke.core.ledger import Ledger, Part

# Nothing is computed yet.
BEFORE = (Part.PARSE, Part.LOAD, Part.TEMPLATE, Part.TOKENIZE, Part.GRAMMAR_COMPILE, Part.QUEUE)


def durations(finish: FinishEvent, ledger: Ledger) -> dict[str, int]:
    """The last fields of a reply. An answer without a first token has spent its whole time on the prompt."""
    total_s = finish.timing.e2e_s
    first_s = total_s if finish.timing.ttft_s is None else finish.timing.ttft_s
    load_s = ledger.parts.get(Part.LOAD, 0.0)
    before_s = min(first_s, sum(ledger.parts.get(part, 0.0) for part in BEFORE))
    return {
        "total_duration": _ns(total_s),
        "load_duration": _ns(load_s),
        "prompt_eval_count": finish.usage.prompt_tokens,
        "prompt_eval_duration": _ns(first_s - before_s),
        "eval_count": finish.usage.completion_tokens,
        "eval_duration": _ns(total_s - first_s),
    }


def _ns(time_s: float) -> int:
    return round(time_s * 1e9)
