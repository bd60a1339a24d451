"""Small JSON files: what is no object, no list, too large or not there is told with the file and the fix."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twostroke.errors import ModelFileError
from twostroke.model import json_file
from twostroke.model.json_file import read_json_list, read_json_object, read_optional_json

READERS = [read_json_object, read_json_list]


def written(folder: Path, data: bytes) -> Path:
    path = folder / "config.json"
    path.write_bytes(data)
    return path


def problem(read: Callable[[Path], Any], path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        read(path)
    assert caught.value.file == str(path)
    return caught.value.problem


def test_objects_and_lists_come_as_they_are(tmp_path: Path) -> None:
    assert read_json_object(written(tmp_path, b'{"a": [1, null], "\\u00e9": "\xc3\xa9"}')) == {"a": [1, None], "é": "é"}
    assert read_json_list(written(tmp_path, b' \n[{"type": "x"}, 2]\n')) == [{"type": "x"}, 2]


@pytest.mark.parametrize(
    ("data", "kind"), [(b"[]", "list"), (b"1", "int"), (b"1.5", "float"), (b'"a"', "str"), (b"null", "NoneType")]
)
def test_another_value_is_told_with_its_kind(tmp_path: Path, data: bytes, kind: str) -> None:
    path = written(tmp_path, data)
    assert problem(read_json_object, path) == f"it holds a JSON {kind}, an object is needed"
    if kind != "list":
        assert problem(read_json_list, path) == f"it holds a JSON {kind}, a list is needed"


def test_an_object_is_no_list(tmp_path: Path) -> None:
    assert problem(read_json_list, written(tmp_path, b"{}")) == "it holds a JSON dict, a list is needed"


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"a": }', b"{'a': 1}", b'{"a": 1}x', b"\xff\xfe{", b'{"a": "\xff"}', b"{1: 2}"]
)
def test_what_is_not_json_is_said_so(tmp_path: Path, read: Callable[[Path], Any], data: bytes) -> None:
    assert problem(read, written(tmp_path, data)).startswith("it is not JSON: ")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "it is a Git LFS pointer"),
        (b"<!DOCTYPE html><html>", "it is an HTML page"),
        (b"PK\x03\x04rest", "it is a ZIP archive"),
        (b"GGUF\x03\x00", "it is a GGUF file"),
    ],
)
def test_what_people_mistake_for_it_is_named(tmp_path: Path, data: bytes, words: str) -> None:
    assert problem(read_json_object, written(tmp_path, data)).startswith(words)


def test_nesting_beyond_the_interpreter_is_no_crash(tmp_path: Path) -> None:
    assert problem(read_json_list, written(tmp_path, b"[" * 200_000)).startswith("it is not JSON: ")


def test_a_file_at_the_limit_is_read_and_one_byte_more_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "MAX_JSON_BYTES", 10)
    assert read_json_object(written(tmp_path, b'{"a": 123}')) == {"a": 123}
    assert problem(read_json_object, written(tmp_path, b'{"a": 1234}')) == (
        "it has more than 10 bytes, the limit for JSON"
    )


@pytest.mark.parametrize("read", READERS)
def test_a_file_that_cannot_be_read_is_told_with_the_systems_reason(
    tmp_path: Path, read: Callable[[Path], Any]
) -> None:
    assert problem(read, tmp_path / "none.json") == "it cannot be read: No such file or directory"
    assert problem(read, tmp_path) == "it cannot be read: Is a directory"


def test_an_optional_file_may_be_absent_and_not_damaged(tmp_path: Path) -> None:
    assert read_optional_json(tmp_path / "config.json") == {}
    assert read_optional_json(written(tmp_path, b'{"a": 1}')) == {"a": 1}
    assert problem(read_optional_json, written(tmp_path, b"[]")) == "it holds a JSON list, an object is needed"
