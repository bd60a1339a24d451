"""Models by name for other programs: fetched and deleted, and never a path."""

from pathlib import Path

import pytest

from twostroke.errors import ModelNotFoundError, TermsError
from twostroke.model.shelf import Shelf


@pytest.mark.parametrize("name", ["", ".", "../x", "/etc/passwd", "a\0b", "hf:../x", "hf:a/../../b", "x" * 5000])
def test_a_path_is_no_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_text("stays")
    shelf = Shelf(tmp_path / "home")
    with pytest.raises(ModelNotFoundError):
        shelf.pull(name, on_progress=lambda done, total: None)
    with pytest.raises(ModelNotFoundError):
        shelf.delete(name)
    assert (tmp_path / "x").read_text() == "stays"


def test_terms_are_never_accepted_for_a_stranger(tmp_path: Path) -> None:
    with pytest.raises(TermsError, match="--accept-terms"):
        Shelf(tmp_path / "home").pull("gemma3:270m", on_progress=lambda done, total: None)


def test_an_empty_home_has_fetched_nothing(tmp_path: Path) -> None:
    assert Shelf(tmp_path / "home").fetched() == []
