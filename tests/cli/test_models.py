"""`twostroke models` lists every name once, with what it would cost or costs."""

from pathlib import Path

import pytest

from twostroke.cli import app
from twostroke.cli.models import aligned, cells
from twostroke.model.catalog import DEFAULT_MODEL, CatalogEntry

Capture = pytest.CaptureFixture[str]


def entry(**changes: object) -> CatalogEntry:
    facts = {"name": "m", "path": None, "num_bytes": 90_000_000, "license": "Apache-2.0", "description": "small"}
    return CatalogEntry(**{**facts, **changes})  # type: ignore[arg-type]


def test_a_fresh_machine_has_the_default_to_fetch(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TWOSTROKE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    assert app.main(["models"]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0].split() == ["name", "size", "state", "license", "description"]
    default = next(line for line in lines if line.startswith(DEFAULT_MODEL))
    assert "to fetch" in default
    assert "Apache-2.0" in default
    assert said.err == ""
    assert not (tmp_path / "home").exists()  # listing writes nothing


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("m", "90 MB", "to fetch", "Apache-2.0", "small")),
        ({"path": Path("m.gguf")}, ("m", "90 MB", "here", "Apache-2.0", "small")),
        (
            {"license": None, "num_bytes": None, "description": "in the Ollama store"},
            ("m", "-", "here", "-", "in the Ollama store"),
        ),
    ],
)
def test_state_and_absent_values(changes: dict[str, object], expected: tuple[str, ...]) -> None:
    assert cells(entry(**changes)) == expected


def test_columns_align_under_wide_characters() -> None:
    assert aligned([("name", "x"), ("漢字漢", "y"), ("a", "z")]) == ["name    x", "漢字漢  y", "a       z"]
