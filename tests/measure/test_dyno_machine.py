"""What surrounds the steps: reads by size and threads, the disk, overheads of a step, the choice of threads."""

from pathlib import Path

import pytest

from tests.measure.dyno_builders import SteadyProbe
from twostroke.core.clock import VirtualClock, WallClock
from twostroke.measure.dyno import PhaseTimes, best_threads, has_drifted
from twostroke.measure.dyno_machine import SIZES, disk_rate, read_rates, thread_counts
from twostroke.measure.dyno_overhead import sampling_seconds, step_overhead
from twostroke.phase_threads import PhaseThreads
from twostroke.sample.sampler import Sampler


@pytest.mark.parametrize(
    ("most", "counts"), [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (8, (1, 2, 4, 8)), (12, (1, 2, 4, 8, 12))]
)
def test_thread_counts_double_up_to_all(most: int, counts: tuple[int, ...]) -> None:
    assert thread_counts(most) == counts


def test_reads_are_measured_for_every_size_and_number_of_threads() -> None:
    clock = VirtualClock()
    asked = []

    def new_probe(isa: str, threads: int, num_bytes: int) -> SteadyProbe:
        asked.append((isa, threads, num_bytes))
        return SteadyProbe(clock, read_bytes_per_s=threads * 20e9)

    rates = read_rates(isa="avx2", threads=2, clock=clock, new_probe=new_probe)
    assert asked == [("avx2", threads, size) for threads in (1, 2) for size in SIZES]
    assert {(rate.threads, round(rate.bytes_per_s / 1e9)) for rate in rates} == {(1, 20), (2, 40)}


def test_the_disk_is_read_or_unknown(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(5 << 20))
    rate = disk_rate(path, clock=WallClock())
    assert rate is None or rate > 0
    assert disk_rate(tmp_path / "none", clock=WallClock()) is None


def test_a_step_and_a_row_cost_something_and_a_token_too() -> None:
    base_s, row_s = step_overhead(clock=WallClock(), max_rows=8)
    assert base_s >= 0
    assert row_s >= 0
    assert base_s + row_s > 0
    assert step_overhead(clock=WallClock(), max_rows=1)[1] == 0.0
    assert sampling_seconds(Sampler(100), clock=WallClock()) > 0


def test_each_phase_gets_the_threads_with_which_it_is_fastest() -> None:
    assert best_threads((PhaseTimes(1, 4.0, 20.0), PhaseTimes(2, 3.0, 10.0))) == (2, 2)
    assert best_threads((PhaseTimes(1, 3.0, 10.0), PhaseTimes(2, 3.0, 10.0))) == (2, 2)
    reads_stand_in_line = (PhaseTimes(4, 3.0, 10.0), PhaseTimes(8, 9.0, 9.0))
    assert best_threads(reads_stand_in_line) == PhaseThreads(prefill=8, decode=4)
    units_are_shared = (PhaseTimes(4, 3.0, 10.0), PhaseTimes(8, 2.5, 11.0))
    assert best_threads(units_are_shared) == PhaseThreads(prefill=4, decode=8)
    assert best_threads(units_are_shared).most == 8


def test_drift_is_a_phase_that_left_the_bound_on_either_side() -> None:
    assert [has_drifted(drift) for drift in (0.5, 0.7, 1.0, 1.4, 1.6)] == [True, False, False, False, True]
