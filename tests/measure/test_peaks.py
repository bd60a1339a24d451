"""Peaks on a scripted probe and a clock of its own: what is measured once, kept, and measured again."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from twostroke import _native
from twostroke.core.clock import VirtualClock
from twostroke.core.peaks import Peaks
from twostroke.measure.peaks import MAX_READ_BYTES, MIN_READ_BYTES, NUM_PROBES, ensure_peaks, known_peaks, measure_rates

OPS_PER_S = {"int8": 800e9, "bf16": 400e9, "fp32": 100e9}
BYTES_PER_S = 20e9


def is_measured(peaks: Peaks) -> bool:
    """Whether these are the rates of the scripted probe."""
    rates = [peaks.int8_ops_per_s, peaks.bf16_ops_per_s, peaks.fp32_ops_per_s, peaks.read_bytes_per_s]
    return rates == pytest.approx([*OPS_PER_S.values(), BYTES_PER_S])


class ScriptedProbe:
    """Work of known rates on a virtual clock; every second run is disturbed and takes three times as long.

    On a busy machine all of it is slower by `slowness`.
    """

    def __init__(self, clock: VirtualClock, num_bytes: int = 64 << 20, *, slowness: float = 1.0) -> None:
        self.clock = clock
        self.slowness = slowness
        self.num_bytes = num_bytes
        self.num_runs = 0

    def compute(self, unit: str, rounds: int, /) -> int:
        return self._work(rounds * 1000, OPS_PER_S[unit])

    def read(self) -> int:
        return self._work(self.num_bytes, BYTES_PER_S)

    def _work(self, amount: int, per_s: float) -> int:
        self.num_runs += 1
        self.clock.advance(amount / per_s * self.slowness * (3 if self.num_runs % 2 else 1))
        return amount


class Machine:
    """Probes it handed out, and the clock they move."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = VirtualClock()
        self.slowness = 1.0
        self.asked: list[tuple[str, int, int]] = []

    def new_probe(self, isa: str, threads: int, num_bytes: int) -> ScriptedProbe:
        self.asked.append((isa, threads, num_bytes))
        return ScriptedProbe(self.clock, num_bytes, slowness=self.slowness)

    def peaks(
        self,
        *,
        isa: str = "portable",
        threads: int = 2,
        weight_bytes: int = 100 << 20,
        are_beaten: Callable[[Peaks], bool] = lambda peaks: False,
    ) -> Peaks:
        return ensure_peaks(
            home=self.home,
            isa=isa,
            threads=threads,
            weight_bytes=weight_bytes,
            are_beaten=are_beaten,
            clock=self.clock,
            new_probe=self.new_probe,
        )

    def file_of(self, rate: str) -> Path:
        """The only one that keeps it."""
        (only,) = [path for path in (self.home / "peaks").iterdir() if rate in json.loads(path.read_text())["rates"]]
        return only


def test_the_best_run_counts_and_the_whole_takes_half_a_second() -> None:
    clock = VirtualClock()
    rates = measure_rates(ScriptedProbe(clock), clock=clock)
    assert is_measured(Peaks(threads=2, isa="portable", **rates))
    assert clock.now() < 0.5


def test_what_disturbs_a_probe_for_a_third_of_its_time_leaves_the_peaks() -> None:
    class Disturbed(ScriptedProbe):
        def _work(self, amount: int, per_s: float) -> int:
            self.slowness = 2.0 if self.clock.now() < 0.15 else 1.0
            return super()._work(amount, per_s)

    clock = VirtualClock()
    rates = measure_rates(Disturbed(clock), clock=clock)
    assert clock.now() > 0.3
    assert is_measured(Peaks(threads=2, isa="portable", **rates))


def test_a_slow_machine_gets_two_runs_of_everything() -> None:
    clock = VirtualClock()
    probe = ScriptedProbe(clock, num_bytes=200 << 30)
    measure_rates(probe, clock=clock)
    reads = 2
    assert probe.num_runs > 3 * 2 + reads - 1


def test_what_was_measured_is_kept(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    first = machine.peaks()
    assert is_measured(first)
    assert (first.isa, first.threads) == ("portable", 2)
    for _ in range(NUM_PROBES + 2):
        assert is_measured(machine.peaks())
    assert len(machine.asked) == NUM_PROBES
    assert not list(tmp_path.rglob("*.part"))


def test_the_best_of_the_first_runs_counts(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for machine.slowness, is_best in [(5.0, False), (1.0, True), (2.0, True), (5.0, True)]:
        assert is_measured(machine.peaks()) is is_best
    assert len(machine.asked) == NUM_PROBES


def test_peaks_that_a_phase_went_beyond_are_measured_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.slowness = 4.0
    for _ in range(NUM_PROBES):
        machine.peaks()
    machine.slowness = 1.0
    assert not is_measured(machine.peaks())
    assert is_measured(machine.peaks(are_beaten=lambda peaks: peaks.fp32_ops_per_s < 50e9))
    assert is_measured(machine.peaks(are_beaten=lambda peaks: peaks.fp32_ops_per_s < 50e9))
    assert len(machine.asked) == NUM_PROBES + 1


def test_arithmetic_is_the_same_for_every_model_and_reads_are_of_each_size(tmp_path: Path) -> None:
    """A first probe for a new model on a busy machine takes nothing from what is known of the units."""
    machine = Machine(tmp_path)
    machine.peaks(weight_bytes=100 << 20)
    machine.slowness = 2.0
    second = machine.peaks(weight_bytes=200 << 20)
    assert second.int8_ops_per_s == pytest.approx(OPS_PER_S["int8"])
    assert second.read_bytes_per_s == pytest.approx(BYTES_PER_S / 2)
    machine.slowness = 1.0
    assert is_measured(machine.peaks(weight_bytes=200 << 20))


def test_a_probe_for_one_model_mends_the_arithmetic_of_another(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.slowness = 2.0
    for _ in range(NUM_PROBES):
        machine.peaks(weight_bytes=100 << 20)
    machine.slowness = 1.0
    machine.peaks(weight_bytes=200 << 20)
    assert machine.peaks(weight_bytes=100 << 20).int8_ops_per_s == pytest.approx(OPS_PER_S["int8"])
    assert len(machine.asked) == NUM_PROBES + 1


def test_what_is_known_is_told_without_a_probe(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.peaks(weight_bytes=100 << 20)
    known = known_peaks(home=tmp_path, isa="portable", threads=2, weight_bytes=100 << 20)
    assert known is not None
    assert is_measured(known)
    assert known_peaks(home=tmp_path, isa="portable", threads=2, weight_bytes=200 << 20) is None


def test_one_call_makes_one_probe_of_half_a_second(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.peaks(are_beaten=lambda peaks: True)
    assert len(machine.asked) == 1
    assert machine.clock.now() < 0.5


@pytest.mark.parametrize("changes", [{"isa": "avx512"}, {"threads": 1}, {"weight_bytes": 200 << 20}])
def test_other_settings_are_measured_on_their_own(tmp_path: Path, changes: dict[str, object]) -> None:
    machine = Machine(tmp_path)
    machine.peaks()
    machine.peaks(**changes)  # type: ignore[arg-type]
    assert len(machine.asked) == 2


@pytest.mark.parametrize(
    ("weight_bytes", "read_bytes"),
    [
        (0, MIN_READ_BYTES),
        (MIN_READ_BYTES + 5, MIN_READ_BYTES),
        ((100 << 20) + 77, 100 << 20),
        (1 << 40, MAX_READ_BYTES),
    ],
)
def test_the_buffer_is_as_large_as_the_weights_within_limits(
    tmp_path: Path, weight_bytes: int, read_bytes: int
) -> None:
    machine = Machine(tmp_path)
    machine.peaks(weight_bytes=weight_bytes)
    assert machine.asked == [("portable", 2, read_bytes)]


DAMAGED = [
    b"",
    b"{",
    b"[1, 2]",
    b"null",
    b"\xff\xfe",
    b'{"threads": 2}',
    b'{"rates": 3, "num_probes": 3}',
    b'{"rates": {"int8_ops_per_s": 1}, "num_probes": 3}',
    b'{"rates": {"read_bytes_per_s": 1}, "num_probes": "3"}',
    b'{"rates": {"read_bytes_per_s": 1}, "num_probes": 0}',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_measured_again_and_replaced(tmp_path: Path, content: bytes) -> None:
    machine = Machine(tmp_path)
    machine.peaks()
    file, other = machine.file_of("read_bytes_per_s"), machine.file_of("int8_ops_per_s")
    file.write_bytes(content)
    assert is_measured(machine.peaks())
    assert len(machine.asked) == 2
    assert [json.loads(each.read_text())["num_probes"] for each in (file, other)] == [1, 2]


@pytest.mark.parametrize("rate", [0, -1.0, "fast", None, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["read_bytes_per_s", "fp32_ops_per_s"])
def test_a_rate_that_is_none_is_measured_again(tmp_path: Path, name: str, rate: object) -> None:
    machine = Machine(tmp_path)
    machine.peaks()
    file = machine.file_of(name)
    fields = json.loads(file.read_text())
    fields["rates"][name] = rate
    file.write_text(json.dumps(fields))
    assert is_measured(machine.peaks())
    assert len(machine.asked) == 2


def test_a_home_that_cannot_be_written_costs_a_warning_and_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "peaks").write_text("a file where the folder should be")
    machine = Machine(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert is_measured(machine.peaks())
    assert "cannot be kept" in caplog.text


@pytest.mark.parametrize("isa", _native.usable_isas())
def test_the_real_probe_finds_rates_of_this_century(tmp_path: Path, isa: str) -> None:
    peaks = ensure_peaks(home=tmp_path, isa=isa, threads=1, weight_bytes=1 << 20)
    assert 1e8 < peaks.fp32_ops_per_s < 1e13
    assert 1e8 < peaks.int8_ops_per_s < 1e14
    assert 1e8 < peaks.read_bytes_per_s < 1e13
