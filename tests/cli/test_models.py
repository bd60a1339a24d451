"""`twostroke models` lists every name once, with what it would cost or costs."""

from pathlib import Path

import pytest

from tests.builders_gguf import write_llama
from tests.builders_llm import open_llm
from twostroke.cli import app
from twostroke.cli.models import aligned, cells, packed_cells, pruned_line
from twostroke.model.catalog import DEFAULT_MODEL, CatalogEntry
from twostroke.model.mapped_file import FileStamp
from twostroke.model.packed_store import PackedEntry

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


def packed(*, is_usable: bool = True, source: str | None = "/m/a.gguf") -> PackedEntry:
    sources = () if source is None else (FileStamp(Path(source), 1, 2, 3, 4), FileStamp(Path("/m/b.gguf"), 1, 2, 3, 4))
    return PackedEntry(Path("/home/packed/abc.packed"), 98_500_000, sources, is_usable)


def test_packed_weights_show_what_they_were_made_of() -> None:
    assert packed_cells(packed()) == ("/m/a.gguf", "98.5 MB", "in use")
    assert packed_cells(packed(is_usable=False)) == ("/m/a.gguf", "98.5 MB", "outdated")
    assert packed_cells(packed(source=None, is_usable=False)) == ("abc.packed", "98.5 MB", "outdated")


def test_pruning_says_what_it_deleted() -> None:
    assert pruned_line([]) == "all packed weights are in use, nothing was deleted"
    assert pruned_line([packed()]) == "deleted 1 file, 98.5 MB"
    assert pruned_line([packed(), packed()]) == "deleted 2 files, 197 MB"


def test_prune_deletes_the_packed_weights_of_a_model_that_is_gone(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TWOSTROKE_HOME", str(tmp_path))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    model = write_llama(tmp_path / "llama.gguf", tensor_type="F32", layers=12)
    with open_llm(model):
        pass
    assert app.main(["models"]) == 0
    heading, line = capsys.readouterr().out.splitlines()[-2:]
    assert heading.split() == ["packed", "weights", "of", "size", "state"]
    assert line.split() == [str(model), line.split()[1], "MB", "in", "use"]
    model.unlink()
    assert app.main(["models", "--prune"]) == 0
    assert capsys.readouterr().out.startswith("deleted 1 file, ")
    assert app.main(["models", "--prune"]) == 0
    assert "nothing was deleted" in capsys.readouterr().out
    assert list((tmp_path / "packed").iterdir()) == []
