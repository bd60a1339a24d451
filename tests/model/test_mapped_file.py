"""A mapped file: its bytes, read-only, and a stamp that every change of it breaks."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from twostroke.errors import ModelFileError, ModelNotFoundError
from twostroke.model.mapped_file import FileStamp, MappedFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "weights.bin"
    path.write_bytes(bytes(range(100)))
    return path


def test_bytes_are_seen_as_memory_and_as_an_array(path: Path) -> None:
    file = MappedFile(path)
    assert (file.size, bytes(file.data), file.array.tolist()) == (100, bytes(range(100)), list(range(100)))
    assert (file.head(3), file.head(0), file.head(1000)) == (b"\x00\x01\x02", b"", bytes(range(100)))


def test_nobody_writes_through_it(path: Path) -> None:
    file = MappedFile(path)
    with pytest.raises(ValueError, match="read-only"):
        file.array[0] = 1
    with pytest.raises(TypeError):
        file.data[0] = 1  # type: ignore[index]


def test_an_empty_file_has_no_bytes(path: Path) -> None:
    path.write_bytes(b"")
    file = MappedFile(path)
    assert (file.size, bytes(file.data), file.array.tolist(), file.head(4)) == (0, b"", [], b"")
    assert file.stamp.is_current()


def test_what_is_deleted_is_still_seen_but_no_longer_current(path: Path) -> None:
    file = MappedFile(path)
    path.unlink()
    assert bytes(file.data) == bytes(range(100))
    assert not file.stamp.is_current()


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"none\.bin: there is no such file"):
        MappedFile(tmp_path / "none.bin")


def test_a_folder_and_a_pipe_are_no_files_and_nobody_waits_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(ModelFileError, match="it is not a regular file"):
            MappedFile(path)


def test_a_part_of_the_path_that_is_a_file_is_the_systems_reason(path: Path) -> None:
    with pytest.raises(ModelFileError, match="it cannot be read: Not a directory"):
        MappedFile(path / "inside")


def test_a_stamp_knows_the_file_by_its_whole_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    stamp = MappedFile(Path(path.name)).stamp
    assert stamp == MappedFile(path).stamp
    monkeypatch.chdir("/")
    assert stamp.is_current()


def _write_the_same(path: Path) -> None:
    status = path.stat()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _replace_by_a_copy(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)


def _replace_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


CHANGES: dict[str, Callable[[Path], object]] = {
    "other bytes": lambda path: path.write_bytes(bytes(100)),
    "more bytes": lambda path: path.write_bytes(bytes(101)),
    "the same bytes, their time set back": _write_the_same,
    "a copy with the same time": _replace_by_a_copy,
    "a time set back": lambda path: os.utime(path, ns=(0, 0)),
    "gone": lambda path: path.unlink(),
    "a folder": _replace_by_a_folder,
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_makes_a_stamp_old(path: Path, change: str) -> None:
    before = FileStamp.of(path, path.stat())
    old_ns = before.changed_ns
    assert before.is_current()
    while os.stat_result(os.stat(path.parent)).st_ctime_ns == old_ns:  # a clock that ticks slowly
        os.utime(path.parent)
    CHANGES[change](path)
    assert not before.is_current()


def test_reading_and_linking_elsewhere_leave_the_bytes_one_version(path: Path) -> None:
    before = FileStamp.of(path, path.stat())
    path.read_bytes()
    (path.parent / "link").symlink_to(path)
    assert before.is_current()
    assert FileStamp.of(path.parent / "link", (path.parent / "link").stat()) != before, "another path, another name"
