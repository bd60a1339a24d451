"""The dyno as text: machine, phases, law and every step with how far it is off."""

from dataclasses import replace

from tests.measure.dyno_builders import START, make_dyno, timings_of
from tests.measure.test_dyno_fit import stepped
from twostroke.measure.dyno_fit import fit_cost
from twostroke.view.dyno_report import dyno_lines


def test_the_head_of_the_report() -> None:
    lines = dyno_lines(make_dyno())
    assert lines[:9] == [
        "CPU, avx512, 2 threads, kv bf16",
        "peaks   int8 940, bf16 470, fp32 235 billion operations/s; disk -",
        "reads   1 thread, GB/s by size: 1.05 MB 90.0, 268 MB 20.0",
        "reads   2 threads, GB/s by size: 268 MB 40.0",
        "",
        "threads  decode step  prefill chunk",
        "      1      4.00 ms       200.0 ms",
        "      2      3.00 ms       100.0 ms <- prefill and decode",
        "",
    ]


def test_the_law_is_told_as_rates_of_this_machine() -> None:
    lines = dyno_lines(make_dyno())
    (linear,) = [line for line in lines if line.startswith("  linear")]
    assert "weights 2.00 ms (33.0 GB/s)" in linear
    assert "a token 0.45 ms (471 billion/s, 50 % of int8 peak)" in linear
    assert any(line.startswith("step    a law; median error 0.0%") for line in lines)


def test_every_timed_step_is_shown_with_its_error() -> None:
    dyno = make_dyno()
    lines = dyno_lines(dyno)
    assert lines[-len(dyno.timings) - 1].split()[-3:] == ["measured", "predicted", "off"]
    assert lines[-1].startswith("1 x 4 at 2048, no logits")


def test_a_refused_law_shows_the_tables() -> None:
    timings = tuple(stepped(timing) for timing in timings_of(make_dyno().cost))
    dyno = replace(make_dyno(), timings=timings, fit=fit_cost(timings, start=START))
    text = "\n".join(dyno_lines(dyno))
    assert "tables of measured times (the law was off by more than 15 %)" in text
    assert "  linear     1: " in text


def test_unknown_disk_and_known_disk() -> None:
    assert "disk 789 MB/s" in dyno_lines(replace(make_dyno(), disk_bytes_per_s=789e6))[1]
