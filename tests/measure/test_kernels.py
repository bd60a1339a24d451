"""Kernels alone: every type on every ISA, amounts of work counted right, input that does not fit refused."""

import numpy as np
import pytest

from twostroke import _native
from twostroke.core.clock import WallClock
from twostroke.measure import kernels
from twostroke.measure.kernels import COLUMNS, KernelSpeed, Stream, measure_kernels
from twostroke.program.quant import TENSOR_TYPES, Arithmetic
from twostroke.view.kernel_table import heading, line_of


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("BUDGET_S", 0.0), ("PROMPT", 7), ("PRODUCT_ROWS", 32), ("PROBE_ROUNDS", 100)):
        monkeypatch.setattr(kernels, name, value)


@pytest.mark.usefixtures("quick")
def test_every_type_is_measured_on_every_isa() -> None:
    isas = _native.usable_isas()
    speeds = list(measure_kernels(isas, threads=2, clock=WallClock(), stream_bytes=1 << 16))
    assert [(isa, speed.tensor_type) for isa, speed in speeds] == [(isa, name) for name in TENSOR_TYPES for isa in isas]
    for _, speed in speeds:
        assert speed.unit is TENSOR_TYPES[speed.tensor_type].arithmetic
        assert min(speed.macs_per_s, speed.macs_per_cycle, speed.loop_macs_per_cycle) > 0
        assert [each.threads for each in speed.streams] == [1, 2]
        assert all(each.bytes_per_s > 0 < each.read_bytes_per_s for each in speed.streams)


@pytest.mark.usefixtures("quick")
def test_one_thread_is_measured_once() -> None:
    _, speed = next(measure_kernels(["portable"], threads=1, clock=WallClock(), stream_bytes=1 << 16))
    assert [each.threads for each in speed.streams] == [1]


@pytest.mark.parametrize(("rows", "tokens", "threads"), [(32, 1, 1), (33, 5, 2), (7, 3, 3)])
def test_a_run_counts_the_multiply_adds_of_the_matrix(rows: int, tokens: int, threads: int) -> None:
    weight = kernels._weight("Q8_0", rows)
    probe = _native.LinearProbe("portable", threads, weight, kernels._input(tokens))
    assert probe.run() == probe.run() == rows * COLUMNS * tokens


def test_the_probe_keeps_what_it_runs_on() -> None:
    probe = _native.LinearProbe("portable", 1, kernels._weight("F32", 32), kernels._input(2))
    assert probe.run() == 32 * COLUMNS * 2


def test_input_of_another_width_and_unknown_isas_are_refused() -> None:
    weight = kernels._weight("Q8_0", 32)
    with pytest.raises(ValueError, match="one column per column"):
        _native.LinearProbe("portable", 1, weight, np.zeros((1, 64), np.float32))
    with pytest.raises(ValueError, match="no kernels for ISA 'abacus'"):
        _native.LinearProbe("abacus", 1, weight, kernels._input(1))


def test_cycles_are_counted_per_round() -> None:
    assert [_native.count_cycles(rounds) for rounds in (0, 1, 1000)] == [0, 16, 16_000]


def test_a_kernel_that_beats_the_plain_loop_is_told_as_it_is_and_the_heading_says_that_it_may() -> None:
    speed = KernelSpeed("Q4_0", Arithmetic.INT8, 120e9, 36.0, 30.0, (Stream(1, 31e9, 30e9),))
    line = line_of("avx2", speed)
    assert "36.0/cycle (120 %)" in line
    assert "31.0 GB/s (103 %)" in line
    assert "no upper bound" in heading(1)[0]


def test_a_line_shows_rates_and_shares() -> None:
    streams = (Stream(1, 30e9, 40e9), Stream(2, 60e9, 60e9))
    speed = KernelSpeed("Q4_0", Arithmetic.INT8, 181e9, 49.0, 64.0, streams)
    line = line_of("avx512", speed)
    assert " ".join(line.split()) == "Q4_0 avx512 181 G/s, 49.0/cycle (77 %) 30.0 GB/s (75 %) 60.0 GB/s (100 %)"
    assert len(line) == len(heading(2)[1])
    assert heading(1)[1].endswith("1 token, 1 thread")
