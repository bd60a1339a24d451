"""A load's summary as a table for people and as one JSON object. Computes nothing."""

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from twostroke.traffic.outcome import Outcome
from twostroke.traffic.self_test import STREAMS, TOKENS, SelfTest
from twostroke.traffic.summary import PERCENTS, Spread, Summary
from twostroke.view import quantity

LABEL = 22
WIDTH = 100


def traffic_lines(summary: Summary, *, about: Sequence[str], objective: str | None) -> list[str]:
    """`about` says what was sent where; `objective` names what goodput is about."""
    heads = ("mean", *(f"p{percent}" for percent in PERCENTS), "most", "samples")
    return [
        *about,
        "",
        _cells("client's view", heads),
        _spread("TTFT", summary.ttft),
        _spread("TPOT", summary.tpot),
        _spread("ITL", summary.itl),
        _spread("E2E", summary.e2e),
        *([] if summary.late is None else [_spread("late by ourselves", summary.late)]),
        "",
        *_rates(summary, objective),
        *_counts(summary),
        "",
        "the same answers in other tools' words",
        *_others(summary),
    ]


def _cells(label: str, cells: Sequence[str]) -> str:
    return f"{label:<{LABEL}}" + "".join(f"{cell:>11}" for cell in cells)


def _spread(label: str, spread: Spread | None) -> str:
    if spread is None:
        return _cells(label, (quantity.ABSENT,))
    times = (spread.mean, *spread.percentiles, spread.highest)
    return _cells(label, (*map(quantity.duration, times), str(spread.count)))


def _rates(summary: Summary, objective: str | None) -> list[str]:
    tokens = f"{quantity.rate(summary.output_per_s)} tok/s, prompts {quantity.rate(summary.prompt_per_s)} tok/s"
    answered = f"{_per_s(summary.requests_per_s)} requests/s answered in {quantity.duration(summary.duration_s)}"
    lines = [f"{'output':<{LABEL}}{tokens}, {answered}"]
    if summary.num_good is not None:
        share = quantity.share(summary.num_good / summary.num_sent if summary.num_sent else None)
        lines.append(
            f"{'goodput':<{LABEL}}{_per_s(summary.goodput_per_s)} requests/s, {share} of those sent, within {objective}"
        )
    if summary.late is not None:
        asked = "" if summary.asked_rate_per_s is None else f"asked {_per_s(summary.asked_rate_per_s)}/s, "
        lines.append(
            f"{'arrivals':<{LABEL}}{asked}due {_per_s(summary.due_rate_per_s)}/s, "
            f"achieved {_per_s(summary.sent_rate_per_s)}/s"
        )
    return lines


def _per_s(value: float | None) -> str:
    return quantity.ABSENT if value is None else f"{value:.3g}"


def _counts(summary: Summary) -> list[str]:
    lines = [f"{'answered':<{LABEL}}{summary.num_answered} of {summary.num_sent} sent, {summary.num_planned} planned"]
    for kind, count, example in summary.errors:
        lines.append(f"{'error':<{LABEL}}{kind}: {count} of {summary.num_sent}; {' '.join(example.split())[:160]}")
    per_chunk = summary.output_tokens / summary.num_text_chunks if summary.num_text_chunks else None
    each = quantity.ABSENT if per_chunk is None else f"{per_chunk:.3f}"
    lines.append(
        f"{'chunks':<{LABEL}}{summary.num_text_chunks} with text, {each} tokens each; "
        f"{summary.num_empty_chunks} without text, {summary.num_comments} comments"
    )
    if not summary.has_usage:
        lines.append(f"{'tokens':<{LABEL}}the server tells no usage: a chunk with text is taken for a token")
    others = summary.num_other_prompts, summary.num_other_outputs
    said = f"{others[0]} prompts and {others[1]} answers are not as long as asked" if any(others) else "all as asked"
    cached = f"{summary.cached_tokens} of {summary.prompt_tokens} prompt tokens were cached"
    lines.append(f"{'lengths':<{LABEL}}{said}; {cached}")
    return lines


def _others(summary: Summary) -> list[str]:
    lines = []
    for each in summary.others:
        shown = quantity.ABSENT if each.spread is None else quantity.duration(each.spread.percentiles[0])
        head = f"  {each.tool + ' ' + each.name:<{LABEL}}{shown:>9}  "
        lines += textwrap.wrap(head + each.why, WIDTH, subsequent_indent=" " * len(head), drop_whitespace=True)
    return lines


def traffic_json(
    summary: Summary, outcomes: Sequence[Outcome], *, settings: Mapping[str, Any], start_s: float
) -> dict[str, Any]:
    """Seconds and tokens; null where there is no value. `requests` has every request sent, in order of sending."""
    plain = {
        field.name: getattr(summary, field.name)
        for field in dataclasses.fields(summary)
        if field.name not in ("ttft", "tpot", "itl", "e2e", "late", "errors", "others")
    }
    return {
        "settings": dict(settings),
        **plain,
        **{
            name: getattr(summary, name) for name in ("requests_per_s", "output_per_s", "prompt_per_s", "goodput_per_s")
        },
        **{f"{name}_s": _json_spread(getattr(summary, name)) for name in ("ttft", "tpot", "itl", "e2e", "late")},
        "errors": [{"kind": kind, "count": count, "example": example} for kind, count, example in summary.errors],
        "others": [
            {"tool": each.tool, "name": each.name, "time_s": _json_spread(each.spread), "why": each.why}
            for each in summary.others
        ],
        "requests": [_json_outcome(outcome, start_s) for outcome in outcomes],
    }


def self_test_lines(test: SelfTest) -> list[str]:
    """What the generator found of a server that answers on schedule, and its own cost."""
    lines = [f"{STREAMS} streams of {TOKENS} tokens from a server that answers on schedule, medians"]
    for name, (scheduled_s, found_s) in test.medians_s.items():
        off = f"{(found_s / scheduled_s - 1) * 100:+.2f} %"
        lines.append(f"{name}  scheduled {quantity.duration(scheduled_s)}, found {quantity.duration(found_s)}: {off}")
    cost_s = test.cpu_s_per_token
    lines.append(f"own work  {cost_s * 1e6:.0f} us of one core a token: {1 / cost_s:.0f} tok/s keep one core busy")
    return lines


def self_test_json(test: SelfTest) -> dict[str, Any]:
    """The same in seconds."""
    return {
        "streams": STREAMS,
        "medians_s": {name: {"scheduled": told, "found": found} for name, (told, found) in test.medians_s.items()},
        "cpu_s_per_token": test.cpu_s_per_token,
        "output_per_s": test.load.summary.output_per_s,
    }


def _json_spread(spread: Spread | None) -> dict[str, Any] | None:
    if spread is None:
        return None
    percentiles = {f"p{percent}": value for percent, value in zip(PERCENTS, spread.percentiles, strict=True)}
    return {"count": spread.count, "mean": spread.mean, **percentiles, "highest": spread.highest}


def _json_outcome(one: Outcome, start_s: float) -> dict[str, Any]:
    return {
        "place": one.place,
        "sent_s": one.sent_s - start_s,
        "due_s": None if one.due_s is None else one.due_s - start_s,
        "late_s": one.late_s,
        "ttft_s": one.ttft_s,
        "tpot_s": one.tpot_s,
        "e2e_s": one.e2e_s,
        "prompt_tokens": one.prompt_tokens,
        "output_tokens": one.num_tokens,
        "cached_tokens": one.cached_tokens,
        "chunks": len(one.text_times),
        "empty_chunks": one.num_empty,
        "finish_reason": one.finish_reason,
        "error": one.error,
        "problem": one.problem,
    }
