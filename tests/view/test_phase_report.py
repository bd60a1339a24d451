"""The report under an answer: every fact of both phases, never wider than a plain terminal."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from tests.view.builders import EMPTY_USE, make_report, make_result
from twostroke.core.event import KVUsage, Speculation, Timing, Usage
from twostroke.core.ledger import Ledger, Part, Stall, StallKind
from twostroke.core.report import Bound, PhaseReport, PhaseUse
from twostroke.core.sequence import FinishReason
from twostroke.view.phase_report import WIDTH, phase_report_lines


def line_of(name: str, lines: list[str]) -> str:
    return next(line for line in lines if line.startswith(name))


def test_the_whole_report() -> None:
    assert phase_report_lines(make_result(), make_report()) == [
        "measured   tokens       time    tok/s       TPOT  bound by   of peak",
        "prefill         4    40.0 ms    100.0          -  compute       61 %",
        "decode          2   500.0 ms      4.0   250.0 ms  bandwidth     88 %",
        "TTFT     43.0 ms = tokenize 2.00 ms + prefill 40.0 ms + first_sample 1.00 ms",
        "E2E      583.0 ms = tokenize 2.00 ms + prefill 40.0 ms + first_sample 1.00 ms +",
        "         decode 500.0 ms + stall prefill_of_other (request-7) 30.0 ms +",
        "         stall decode_of_others 10.0 ms + 1 smaller part 0.01 ms",
        "KV       22 tokens, 2.5 MB in 2 blocks, 31 % of their slots unused",
        "end      stop; 20 prompt tokens (16 cached), 3 answer tokens",
    ]


def test_peaks_not_measured_yet_are_absent_not_zero() -> None:
    lines = phase_report_lines(make_result(), make_report(is_probed=False))
    assert line_of("prefill", lines).split()[-2:] == ["-", "-"]
    assert line_of("decode", lines).split()[-2:] == ["-", "-"]


def test_a_request_cancelled_in_prefill_has_no_ttft_line() -> None:
    result = make_result(
        text="",
        token_ids=(),
        finish_reason=FinishReason.CANCELLED,
        usage=Usage(20, 0, 0),
        timing=Timing(ttft_s=None, tpot_s=None, e2e_s=0.01, first_text_s=None),
        ttft_ledger=None,
    )
    lines = phase_report_lines(result, PhaseReport(EMPTY_USE, EMPTY_USE))
    assert not any(line.startswith("TTFT") for line in lines)
    assert line_of("decode", lines).split() == ["decode", "0", "0.00", "ms", "-", "-", "-", "-"]
    assert line_of("end", lines) == "end      cancelled; 20 prompt tokens (0 cached), 0 answer tokens"


def test_parts_keep_the_order_a_request_meets_them() -> None:
    parts = {part: 0.001 * (i + 1) for i, part in enumerate(Part)}
    text = " ".join(phase_report_lines(make_result(ledger=Ledger(parts, ())), make_report()))
    positions = [text.rindex(f" {part.value} ") for part in Part if part not in (Part.TOKENIZE, Part.PREFILL)]
    assert positions == sorted(positions)


def test_one_token_and_one_block_are_singular() -> None:
    lines = phase_report_lines(make_result(kv=KVUsage(1, 500, 1, 0.9375), usage=Usage(1, 0, 1)), make_report())
    assert line_of("KV", lines) == "KV       1 token, 500 B in 1 block, 94 % of their slots unused"
    assert line_of("end", lines) == "end      stop; 1 prompt token (0 cached), 1 answer token"


def test_the_seed_of_a_drawn_answer_is_the_last_line() -> None:
    lines = phase_report_lines(make_result(seed=2**53 - 1), make_report(), with_seed=True)
    assert lines[-1] == "seed     9007199254740991"
    assert lines[:-1] == phase_report_lines(make_result(), make_report())


@pytest.mark.parametrize(
    ("stop_reason", "shown"),
    [(7, "token 7"), ("a\nb", "'a\\nb'"), ("x" * 99, "'xxxxxxxxxxxx..."), ("\U0001f600", "'\\U0001f600'")],
)
def test_the_stop_that_ended_an_answer_is_named_on_its_line(stop_reason: str | int, shown: str) -> None:
    lines = phase_report_lines(make_result(stop_reason=stop_reason), make_report())
    assert line_of("end", lines).startswith(f"end      stop at {shown}; ")


TIMES = st.floats(min_value=0.0, max_value=1e5)


@given(
    parts=st.dictionaries(st.sampled_from(list(Part)), TIMES),
    stalls=st.lists(
        st.tuples(st.sampled_from(list(StallKind)), TIMES, st.none() | st.just("request-123456")), max_size=12
    ),
    e2e_s=TIMES,
)
def test_no_line_is_wider_than_a_plain_terminal(
    parts: dict[Part, float], stalls: list[tuple[StallKind, float, str | None]], e2e_s: float
) -> None:
    ledger = Ledger(parts, tuple(Stall(kind, time_s, by) for kind, time_s, by in stalls))
    timing = Timing(ttft_s=e2e_s, tpot_s=e2e_s, e2e_s=e2e_s, first_text_s=None)
    lines = phase_report_lines(make_result(ledger=ledger, ttft_ledger=ledger, timing=timing), make_report())
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize("tokens", [0, 1, 131072, 10**7])
def test_columns_stay_aligned_for_big_numbers(tokens: int) -> None:
    report = make_report()
    report = replace(report, prefill=replace(report.prefill, tokens=tokens, time_s=3600.0, tokens_per_s=99999.0))
    head, prefill = phase_report_lines(make_result(), report)[:2]
    assert len(prefill) == len(head)


# Where one line could say more than it does


def ledger_of(*times_s: float, stalls: tuple[Stall, ...] = ()) -> Ledger:
    return Ledger(dict(zip(Part, times_s, strict=False)), stalls)


def e2e_of(ledger: Ledger) -> str:
    """The E2E account as one line, total and = left out."""
    lines = phase_report_lines(make_result(ledger=ledger, ttft_ledger=None), make_report())
    start = next(index for index, line in enumerate(lines) if line.startswith("E2E"))
    folded = " ".join(line.strip() for line in lines[start:] if not line.startswith(("KV", "end")))
    return folded.partition(" = ")[2]


@pytest.mark.parametrize(
    ("ledger", "said"),
    [
        (ledger_of(0.00005), "parse 0.05 ms"),
        (ledger_of(0.0000499), "1 smaller part 0.05 ms"),
        (ledger_of(0.00004, 0.00003), "2 smaller parts 0.07 ms"),
        (ledger_of(0.0), "1 smaller part 0.00 ms"),
        (ledger_of(-0.0001), "parse -0.10 ms"),
        (ledger_of(0.00003, -0.00001, 1.0), "template 1.00 s + 2 smaller parts 0.02 ms"),
        (ledger_of(stalls=(Stall(StallKind.SCHEDULER, 0.00004, "r9"),)), "1 smaller part 0.04 ms"),
        (
            ledger_of(0.02, stalls=(Stall(StallKind.PREEMPTION, 0.01, "r9"), Stall(StallKind.PREEMPTION, 0.03, None))),
            "parse 20.0 ms + stall preemption (r9) 10.0 ms + stall preemption 30.0 ms",
        ),
    ],
)
def test_what_would_read_as_nothing_is_summed_and_what_takes_away_is_shown(ledger: Ledger, said: str) -> None:
    assert e2e_of(ledger) == said


@pytest.mark.parametrize("kind", list(StallKind))
@pytest.mark.parametrize("by", ["request-7", None])
def test_every_stall_tells_its_kind_and_who_is_to_blame(kind: StallKind, by: str | None) -> None:
    blame = "" if by is None else f" ({by})"
    assert e2e_of(ledger_of(stalls=(Stall(kind, 0.5, by),))) == f"stall {kind.value}{blame} 500.0 ms"


def test_a_name_with_hyphens_is_not_broken_at_them() -> None:
    stalls = tuple(Stall(StallKind.SCHEDULER, 0.5, f"one-two-{'x' * number}-four") for number in range(2, 20))
    lines = phase_report_lines(make_result(ledger=ledger_of(stalls=stalls), ttft_ledger=None), make_report())
    for stall in stalls:
        assert sum(f"stall scheduler ({stall.request_id}) 500.0 ms" in line for line in lines) == 1


def test_ttft_is_told_of_the_first_token_not_of_the_first_text() -> None:
    timing = Timing(ttft_s=0.25, tpot_s=None, e2e_s=3.0, first_text_s=0.75)
    lines = phase_report_lines(make_result(timing=timing), make_report())
    assert line_of("TTFT", lines).startswith("TTFT     250.0 ms = ")
    assert line_of("E2E", lines).startswith("E2E      3.00 s = ")


@pytest.mark.parametrize("tokens_per_s", [None, 4.0])
@pytest.mark.parametrize("bound_by", [None, *Bound])
@pytest.mark.parametrize("utilisation", [None, 0.0, 1.5])
@pytest.mark.parametrize("tpot_s", [None, 0.25])
def test_every_value_that_is_missing_is_a_dash_in_its_own_column(
    tokens_per_s: float | None, bound_by: Bound | None, utilisation: float | None, tpot_s: float | None
) -> None:
    use = PhaseUse(2, 0.5, tokens_per_s, bound_by, utilisation, tpot_s)
    cells = [
        "4.0" if tokens_per_s is not None else "-",
        "250.0 ms" if tpot_s is not None else "-",
        bound_by.value if bound_by is not None else "-",
        {None: "-", 0.0: "0 %", 1.5: "150 %"}[utilisation],
    ]
    head, prefill, decode = phase_report_lines(make_result(), PhaseReport(EMPTY_USE, use))[:3]
    ends = [head.index(name) + len(name) for name in ("tok/s", "TPOT")]
    start = head.index("bound by")
    assert [decode[: ends[0]].split()[-1], decode[ends[0] : ends[1]].strip()] == cells[:2]
    assert [decode[start : start + 10].strip(), decode[start + 10 :].strip()] == cells[2:]
    assert prefill.split()[-4:] == ["-"] * 4


@pytest.mark.parametrize("reason", list(FinishReason))
def test_every_end_is_told_by_its_name(reason: FinishReason) -> None:
    lines = phase_report_lines(make_result(finish_reason=reason), make_report())
    assert lines[-1] == f"end      {reason.value}; 20 prompt tokens (16 cached), 3 answer tokens"


@pytest.mark.parametrize(
    ("speculation", "line"),
    [
        (Speculation(40, 34, 1.75), "drafts   34 of 40 tokens kept; decode 1.75x as fast as without"),
        (Speculation(3, 0, None), "drafts   0 of 3 tokens kept"),
        (Speculation(0, 0, None), "drafts   none"),
    ],
)
def test_drafts_have_a_line_where_they_were_asked_for(speculation: Speculation, line: str) -> None:
    assert line in phase_report_lines(make_result(speculation=speculation), make_report())
    assert not any(shown.startswith("drafts") for shown in phase_report_lines(make_result(), make_report()))
