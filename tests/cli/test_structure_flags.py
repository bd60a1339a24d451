"""What an answer must look like, as flags: one of four, read before any model is loaded, held to by the answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from twostroke.cli.structure_flags import said_structure
from twostroke.errors import ConfigError, ParamsError
from twostroke.structure import MAX_CHOICES, Structure, StructureKind

SCHEMA = json.dumps({"type": "object", "properties": {"name": {"type": "string"}}})
LARK = 'start: "yes" | "no"'


def file_of(folder: Path, text: str) -> Path:
    path = folder / "form"
    path.write_text(text, encoding="utf-8")
    return path


def test_nothing_said_is_no_structure() -> None:
    assert said_structure() is None
    assert said_structure(choice=[]) is None


def test_each_flag_is_its_kind(tmp_path: Path) -> None:
    assert said_structure(regex="a+") == Structure(kind=StructureKind.REGEX, source="a+")
    assert said_structure(choice=["a", "b"]) == Structure(kind=StructureKind.CHOICE, choices=("a", "b"))
    schema = said_structure(json_schema=file_of(tmp_path, SCHEMA))
    assert schema == Structure(kind=StructureKind.JSON_SCHEMA, source=SCHEMA)
    assert said_structure(grammar=file_of(tmp_path, LARK)) == Structure(kind=StructureKind.LARK, source=LARK)


def test_two_forms_of_one_answer_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--json-schema and --regex are both given"):
        said_structure(json_schema=tmp_path / "none", regex="a")


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"choice": ["a"] * (MAX_CHOICES + 1)}, f"--choice has {MAX_CHOICES + 1} choices: the limit is {MAX_CHOICES}"),
        ({"regex": "a" * 70_000}, "--regex has 70000 bytes: the limit is 65536"),
    ],
)
def test_a_form_beyond_its_limits_names_the_flag(wish: dict[str, Any], said: str) -> None:
    with pytest.raises(ParamsError) as refusal:
        said_structure(**wish)
    assert str(refusal.value).startswith(said)


def test_an_empty_choice_is_told_in_plain_words() -> None:
    with pytest.raises(ConfigError, match="--choice is empty"):
        said_structure(choice=["a", ""])


def test_a_file_of_a_form_is_named_with_its_flag(tmp_path: Path) -> None:
    path = file_of(tmp_path, "x" * 70_000)
    for flag in ("json_schema", "grammar"):
        wish: dict[str, Any] = {flag: path}
        with pytest.raises(ParamsError) as refusal:
            said_structure(**wish)
        assert str(refusal.value).startswith(f"--{flag.replace('_', '-')} {path} has 70000 bytes")


@pytest.mark.parametrize("flag", ["json_schema", "grammar"])
def test_a_file_that_is_not_there_names_the_flag(tmp_path: Path, flag: str) -> None:
    wish: dict[str, Any] = {flag: tmp_path / "none"}
    with pytest.raises(ConfigError) as refusal:
        said_structure(**wish)
    assert str(refusal.value) == f"--{flag.replace('_', '-')} {tmp_path / 'none'}: No such file or directory"
