"""`twostroke delete` removes what was fetched and nothing else."""

from pathlib import Path

import pytest

from twostroke.cli import app
from twostroke.model.packaged_model import PACKAGED_MODELS

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TWOSTROKE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_fetched_model_is_deleted(capsys: Capture, home: Path) -> None:
    model = PACKAGED_MODELS[0]
    path = home / "models" / model.file_name
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(model.file_bytes)  # of the right size, without bytes
    assert app.main(["delete", model.name]) == 0
    assert capsys.readouterr().out == f"deleted {model.name}, 98.4 MB\n"
    assert not path.exists()


def test_what_is_not_here_lists_what_is(capsys: Capture) -> None:
    assert app.main(["delete", "smollm2:135m"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "'smollm2:135m' is not here to be deleted: fetched are none" in said.err
