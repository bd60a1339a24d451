"""`twostroke pull` refuses what it does not know and what nobody accepted; it fetches nothing here."""

from pathlib import Path

import pytest

from twostroke.cli import app

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def empty_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TWOSTROKE_HOME", str(tmp_path / "home"))


def test_an_unknown_name_lists_the_known(capsys: Capture) -> None:
    assert app.main(["pull", "smollm:135m"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "did you mean smollm2:135m?" in said.err


def test_terms_nobody_accepted_name_the_flag(capsys: Capture) -> None:
    assert app.main(["pull", "gemma3:270m"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "twostroke pull gemma3:270m --accept-terms" in said.err
    assert said.err.count("\n") == 1


def test_first_use_asks_for_the_same_terms(capsys: Capture) -> None:
    assert app.main(["run", "-m", "gemma3:270m", "hi"]) == 2
    assert "--accept-terms" in capsys.readouterr().err
