"""Errors of stdout are known from those of files."""

import errno
import io
import os
import sys
from pathlib import Path

import pytest

from twostroke.cli import app
from twostroke.cli.exit_code import ExitCode
from twostroke.cli.stdout import is_of_stdout, name_its_errors


@pytest.mark.parametrize("is_buffered", [True, False])
def test_its_errors_name_it_and_what_was_written_before_stays_in_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_buffered: bool
) -> None:
    path = tmp_path / "out"
    raw = io.FileIO(path, "w")
    stream = io.TextIOWrapper(
        io.BufferedWriter(raw) if is_buffered else raw, encoding="utf-8", write_through=not is_buffered
    )
    monkeypatch.setattr(sys, "stdout", stream)
    stream.write("é1 ")
    name_its_errors()
    named = sys.stdout
    assert named is not stream
    name_its_errors()
    assert sys.stdout is named  # once is enough
    named.write("é2")
    named.flush()
    assert path.read_text(encoding="utf-8") == "é1 é2"
    reading, writing = os.pipe()
    os.dup2(writing, raw.fileno())
    os.close(reading)
    os.close(writing)
    with pytest.raises(BrokenPipeError) as broken:
        named.write("x" * 100_000)  # beyond every buffer
    assert is_of_stdout(broken.value)
    raw.close()


def test_a_file_of_that_name_is_a_file() -> None:
    assert not is_of_stdout(OSError(errno.ENOSPC, "No space left on device", os.fspath(Path("<stdout>"))))


def test_a_stream_that_a_caller_put_in_its_place_stays(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    name_its_errors()
    assert sys.stdout is before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_below_something_else_is_not_blamed_on_it_nor_told_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail() -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("twostroke.cli.models.resolve", fail)
    assert app.main(["models"]) is ExitCode.FAILED
    assert capsys.readouterr() == ("", f"twostroke: [Errno {number}] {os.strerror(number)}\n")
