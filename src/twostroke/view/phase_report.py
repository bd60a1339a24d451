"""The phase report under an answer, as lines of text: both phases, where the time went, what the cache held.

Reads a Result and its PhaseReport; computes nothing but sums for people. No line is wider than 79 columns.
"""

import textwrap

from twostroke.core.event import Speculation
from twostroke.core.ledger import Ledger
from twostroke.core.report import PhaseReport, PhaseUse, Result
from twostroke.view import quantity
from twostroke.view.drafts import drafts_text

WIDTH = 79
SMALL_S = 0.00005  # parts that would read 0.0x ms are summed up
MAX_STOP = 16  # characters of a stop string that the last line repeats
COLUMNS = "{:<9}{:>8}{:>11}{:>9}{:>11}  {:<10}{:>8}"


def phase_report_lines(result: Result, report: PhaseReport, *, with_seed: bool = False) -> list[str]:
    """Every number is measured on this machine; `of peak` is None (-) until the peaks are known.

    with_seed: the answer was drawn, and its seed draws it again.
    """
    lines = [
        COLUMNS.format("measured", "tokens", "time", "tok/s", "TPOT", "bound by", "of peak"),
        _phase_line("prefill", report.prefill),
        _phase_line("decode", report.decode),
    ]
    if result.ttft_ledger is not None:
        lines += ledger_lines("TTFT", result.timing.ttft_s, result.ttft_ledger)
    lines += ledger_lines("E2E", result.timing.e2e_s, result.ledger)
    if result.speculation is not None:
        lines += _drafts_lines(result.speculation)
    lines.append(_kv_line(result))
    lines.append(_end_line(result))
    if with_seed:
        lines.append(f"{'seed':<9}{result.seed}")
    return lines


def _phase_line(name: str, use: PhaseUse) -> str:
    bound_by = quantity.ABSENT if use.bound_by is None else use.bound_by.value
    cells = (use.tokens, quantity.duration(use.time_s), quantity.rate(use.tokens_per_s), quantity.duration(use.tpot_s))
    return COLUMNS.format(name, *cells, bound_by, quantity.share(use.utilisation))


def ledger_lines(name: str, total_s: float | None, ledger: Ledger) -> list[str]:
    """`name` total = part + part + ..., in the order a request meets them; stalls last."""
    parts = [(part.value, time_s) for part, time_s in ledger.parts.items()]
    for stall in ledger.stalls:
        by = f" ({stall.request_id})" if stall.request_id else ""
        parts.append((f"stall {stall.kind.value}{by}", stall.time_s))
    shown = [f"{part} {quantity.duration(time_s)}" for part, time_s in parts if abs(time_s) >= SMALL_S]
    rest = [time_s for _, time_s in parts if abs(time_s) < SMALL_S]
    if rest:
        shown.append(f"{quantity.count(len(rest), 'smaller part')} {quantity.duration(sum(rest))}")
    head = f"{name:<9}{quantity.duration(total_s)} = "
    # A part and its number stay together: the spaces inside one are glued while the line is folded.
    glued = " + ".join(text.replace(" ", "\N{NO-BREAK SPACE}") for text in shown)
    folded = textwrap.wrap(head + glued, WIDTH, subsequent_indent=" " * 9, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in folded]


def _drafts_lines(speculation: Speculation) -> list[str]:
    return textwrap.wrap(f"{'drafts':<9}{drafts_text(speculation)}", WIDTH, subsequent_indent=" " * 9)


def _kv_line(result: Result) -> str:
    kv = result.kv
    held = f"{quantity.count(kv.tokens, 'token')}, {quantity.size(kv.bytes)} in {quantity.count(kv.blocks, 'block')}"
    return f"{'KV':<9}{held}, {quantity.share(kv.waste_ratio)} of their slots unused"


def _end_line(result: Result) -> str:
    usage = result.usage
    prompt = quantity.count(usage.prompt_tokens, "prompt token")
    answer = quantity.count(usage.completion_tokens, "answer token")
    at = "" if result.stop_reason is None else f" at {_shown(result.stop_reason)}"
    return f"{'end':<9}{result.finish_reason.value}{at}; {prompt} ({usage.cached_tokens} cached), {answer}"


def _shown(stop_reason: str | int) -> str:
    """The stop string or pattern, cut so that its line is no wider than others; or the id of a token."""
    if isinstance(stop_reason, int):
        return f"token {stop_reason}"
    shown = ascii(stop_reason)
    return shown if len(shown) <= MAX_STOP else f"{shown[: MAX_STOP - 3]}..."
