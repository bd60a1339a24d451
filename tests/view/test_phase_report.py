"""The report under an answer: every fact of both phases, never wider than a plain terminal."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from tests.view.builders import EMPTY_USE, make_report, make_result
from twostroke.core.event import KVUsage, Timing, Usage
from twostroke.core.ledger import Ledger, Part, Stall, StallKind
from twostroke.core.report import PhaseReport
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
