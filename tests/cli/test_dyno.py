"""`twostroke dyno`: measured once, kept, measured again on wish, on drift and where the file is damaged."""

import dataclasses
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.builders_llm import write_puppet
from tests.measure.dyno_builders import make_dyno
from twostroke.cli import app
from twostroke.config import resolve
from twostroke.core.clock import Clock, WallClock
from twostroke.core.peaks import Peaks
from twostroke.load import LoadedModel, load_model
from twostroke.measure.dyno import Dyno, PhaseTimes
from twostroke.model.defaults import ModelDefaults

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TWOSTROKE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TWOSTROKE_THREADS", "1")
    return str(write_puppet(tmp_path / "puppet.gguf"))


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The dyno gives known numbers at once; says how often it measured."""
    made: list[str] = []

    def measure(load: Callable[[int | None], LoadedModel], *, home: Path, clock: Clock) -> Dyno:
        with closing(load(None)) as opened:
            made.append(opened.cost_key.precision)
            dyno = make_dyno()
            return Dyno(**{name: getattr(dyno, name) for name in Dyno.__slots__} | {"key": opened.cost_key})

    monkeypatch.setattr("twostroke.measure.dyno.measure_dyno", measure)
    monkeypatch.setattr("twostroke.measure.dyno.drift_of", lambda dyno, model, *, clock: 1.0)
    return made


def load(model: str, *, kv: str | None = None) -> LoadedModel:
    return load_model(
        Path(model),
        config=resolve(),
        clock=WallClock(),
        threads=None,
        context=None,
        kv=kv,
        defaults=ModelDefaults(),
    )


def test_the_whole_dyno_runs_on_a_small_model_and_the_next_load_starts_from_it(
    capsys: Capture, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twostroke.measure.dyno_steps.MAX_ROUNDS", 3)
    monkeypatch.setattr("twostroke.measure.dyno.REFERENCE_BYTES", 1 << 20)
    monkeypatch.setattr("twostroke.measure.dyno_machine.SIZES", (1 << 20,))
    assert app.main(["dyno", "-m", model, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["model"] == model
    assert report["is_kept"] is False
    assert report["threads"] == {"prefill": 1, "decode": 1}
    assert len(report["steps"]) >= 10
    assert all(step["seconds"] > 0 for step in report["steps"])
    assert [each["threads"] for each in report["phases"]] == [1]
    assert report["peaks"]["int8_ops_per_s"] > 0
    kept = [json.loads(file.read_text()) for file in (Path(model).parent / "home" / "peaks").iterdir()]
    assert [each["num_probes"] for each in kept] == [2, 2], "apart from each other"
    with closing(load(model)) as opened:
        assert opened.fit.is_measured
    with closing(load(model, kv="f32")) as other:
        assert not other.fit.is_measured


def test_a_dyno_is_kept_until_somebody_forces_it(capsys: Capture, model: str, measurements: list[str]) -> None:
    for arguments, expected in (([], 1), ([], 1), (["--force"], 2), (["--kv", "f16"], 3), ([], 3)):
        assert app.main(["dyno", "-m", model, *arguments]) == 0
        assert len(measurements) == expected
    assert capsys.readouterr().out.splitlines()[-1].startswith("kept from an earlier run")


def test_the_peaks_of_a_kept_dyno_are_the_best_known_by_now(
    capsys: Capture, model: str, measurements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the probe that it was measured with may have been disturbed."""
    app.main(["dyno", "-m", model])
    better = Peaks(1, "portable", 9e12, 8e12, 7e12, 6e12)
    monkeypatch.setattr("twostroke.measure.dyno.ensure_peaks", lambda **settings: better)
    capsys.readouterr()
    assert app.main(["dyno", "-m", model, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["is_kept"], report["peaks"]) == (True, dataclasses.asdict(better))


def test_a_machine_that_changed_is_measured_again(
    capsys: Capture, model: str, measurements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app.main(["dyno", "-m", model])
    monkeypatch.setattr("twostroke.measure.dyno.drift_of", lambda dyno, model, *, clock: 1.8)
    assert app.main(["dyno", "-m", model]) == 0
    assert len(measurements) == 2
    assert "steps take 1.80 times as long" in capsys.readouterr().err


def test_a_damaged_file_is_measured_again_with_a_warning(
    model: str, measurements: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    app.main(["dyno", "-m", model])
    (file,) = (resolve().home / "dyno").iterdir()
    file.write_text("{}")
    assert app.main(["dyno", "-m", model]) == 0
    assert len(measurements) == 2
    assert "holds no dyno" in caplog.text
    assert json.loads(file.read_text())["threads"] == {"prefill": 2, "decode": 2}


def test_the_drift_of_a_machine_that_stayed_is_near_1(model: str) -> None:
    from twostroke.measure.dyno import drift_of, phase_times

    with closing(load(model)) as opened:
        now = phase_times(opened, WallClock())
        earlier = make_dyno()
        fields = {name: getattr(earlier, name) for name in Dyno.__slots__}
        then = PhaseTimes(1, decode_s=now.decode_s / 1000, prefill_s=now.prefill_s)
        drift = drift_of(Dyno(**fields | {"phases": (then,)}), opened, clock=WallClock())
    assert drift > 10, "the phase that drifted farther is told"
