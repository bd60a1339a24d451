"""Which threads a dyno measures with, how it sweeps them, and when what it kept no longer holds."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.measure.dyno_builders import KEY, LIMITS, TRUTH, LawfulReader, make_dyno
from twostroke.core.clock import Clock, VirtualClock
from twostroke.core.cost_file import CostKey
from twostroke.load import LoadedModel
from twostroke.measure import dyno as dyno_module
from twostroke.measure.dyno import Dyno, PhaseTimes, drift_of, measure_dyno
from twostroke.measure.dyno_shapes import decode_shape, prefill_shape
from twostroke.phase_threads import PhaseThreads


@dataclass
class Opened:
    """A model that knows how many threads it has and whether somebody closed it."""

    threads: int
    cost_key: CostKey
    is_closed: bool = False

    def __post_init__(self) -> None:
        self.reader = SimpleNamespace(threads=PhaseThreads(self.threads, self.threads))

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Loader:
    """Opens models in virtual time."""

    clock: VirtualClock
    stated: int | None = None
    load_s: float = 0.1
    opened: list[Opened] = field(default_factory=list)

    def __call__(self, threads: int | None) -> LoadedModel:
        self.clock.advance(self.load_s)
        model = Opened(threads or self.stated or 4, replace(KEY, threads=self.stated))
        self.opened.append(model)
        return cast(LoadedModel, model)


@pytest.fixture
def profiled(monkeypatch: pytest.MonkeyPatch) -> "Profiled":
    """What was measured in full: threads, and the phases of the sweep before it."""
    seen: Profiled = []

    def profile(model: LoadedModel, phases: tuple[PhaseTimes, ...], **_: Any) -> Dyno:
        assert model.threads == model.reader.threads.most
        seen.append((model.reader.threads, phases))
        return make_dyno()

    monkeypatch.setattr(dyno_module, "profile", profile)
    monkeypatch.setattr(dyno_module, "reference_of", lambda model: None)
    monkeypatch.setattr(dyno_module, "usable_cores", lambda: 4)
    return seen


def phases_by(law: Callable[[int], tuple[float, float]]) -> Callable[[LoadedModel, Clock], PhaseTimes]:
    return lambda model, clock: PhaseTimes(model.threads, *law(model.threads))


Profiled = list[tuple[PhaseThreads, tuple[PhaseTimes, ...]]]


def test_all_counts_are_swept_and_the_best_measured(monkeypatch: pytest.MonkeyPatch, profiled: Profiled) -> None:
    monkeypatch.setattr(dyno_module, "phase_times", phases_by(lambda n: (4.0 / n, 8.0 / n)))
    load = Loader(VirtualClock())
    measure_dyno(load, home=Path(), clock=load.clock)
    ((threads, phases),) = profiled
    assert threads == (4, 4)
    assert [each.threads for each in phases] == [1, 2, 4]
    assert len(load.opened) == 3, "the first model is measured again, not loaded again"
    assert all(model.is_closed for model in load.opened)


def test_fewer_threads_are_taken_where_more_are_slower(monkeypatch: pytest.MonkeyPatch, profiled: Profiled) -> None:
    slow = phases_by(lambda n: (3.0 if n < 4 else 9.0, 8.0 / n if n < 4 else 5.0))
    monkeypatch.setattr(dyno_module, "phase_times", slow)
    load = Loader(VirtualClock())
    measure_dyno(load, home=Path(), clock=load.clock)
    assert [threads for threads, _ in profiled] == [(2, 2)]
    assert [model.threads for model in load.opened] == [4, 2, 1, 2]
    assert all(model.is_closed for model in load.opened)


def test_one_phase_may_take_fewer_threads_than_the_other(monkeypatch: pytest.MonkeyPatch, profiled: Profiled) -> None:
    monkeypatch.setattr(dyno_module, "phase_times", phases_by(lambda n: (3.0 if n < 4 else 9.0, 8.0 / n)))
    load = Loader(VirtualClock())
    measure_dyno(load, home=Path(), clock=load.clock)
    assert [threads for threads, _ in profiled] == [PhaseThreads(prefill=4, decode=2)]
    assert [model.threads for model in load.opened] == [4, 2, 1], "the first has all the threads that are needed"


def test_stated_threads_are_not_second_guessed(monkeypatch: pytest.MonkeyPatch, profiled: Profiled) -> None:
    monkeypatch.setattr(dyno_module, "phase_times", phases_by(lambda n: (1.0, 1.0)))
    load = Loader(VirtualClock(), stated=3)
    measure_dyno(load, home=Path(), clock=load.clock)
    ((threads, phases),) = profiled
    assert (threads, len(phases), len(load.opened)) == ((3, 3), 1, 1)


def test_a_model_that_loads_slowly_is_loaded_once(monkeypatch: pytest.MonkeyPatch, profiled: Profiled) -> None:
    monkeypatch.setattr(dyno_module, "phase_times", phases_by(lambda n: (1.0, 1.0)))
    load = Loader(VirtualClock(), load_s=5.0)
    measure_dyno(load, home=Path(), clock=load.clock)
    assert len(load.opened) == 1
    assert profiled[0][0] == (4, 4)


def test_a_failure_leaves_no_model_open(monkeypatch: pytest.MonkeyPatch, profiled: Profiled) -> None:
    def fail(model: LoadedModel, clock: Clock) -> PhaseTimes:
        raise RuntimeError("the machine stopped")

    monkeypatch.setattr(dyno_module, "phase_times", fail)
    load = Loader(VirtualClock())
    with pytest.raises(RuntimeError, match="stopped"):
        measure_dyno(load, home=Path(), clock=load.clock)
    assert all(model.is_closed for model in load.opened)


@pytest.mark.parametrize(
    ("now", "drift"), [((3e-3, 0.1), 1.0), ((6e-3, 0.11), 2.0), ((3.1e-3, 0.04), 0.4), ((6e-3, 0.04), 0.4)]
)
def test_the_phase_that_drifted_farther_is_told(
    monkeypatch: pytest.MonkeyPatch, now: tuple[float, float], drift: float
) -> None:
    monkeypatch.setattr(dyno_module, "phase_times", phases_by(lambda n: now))
    model = cast(LoadedModel, Opened(2, KEY))
    assert drift_of(make_dyno(), model, clock=VirtualClock()) == pytest.approx(drift)


def test_phases_are_timed_on_a_reader_of_known_law(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    reader = LawfulReader(clock)

    @dataclass
    class Vocabulary:
        vocab_size: int = 50

    @dataclass
    class Model:
        reader: LawfulReader
        threads: int = 2
        program: Vocabulary = field(default_factory=Vocabulary)

    monkeypatch.setattr(dyno_module, "limits_of", lambda model: LIMITS)
    times = dyno_module.phase_times(cast(LoadedModel, Model(reader)), clock)
    decode, prefill = decode_shape(LIMITS), prefill_shape(LIMITS)
    assert times.decode_s == pytest.approx(TRUTH.seconds(decode))
    assert times.prefill_s == pytest.approx(TRUTH.seconds(prefill))
