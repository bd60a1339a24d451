"""The cache on disk: whole entries or none, damage is repaired, a missing directory is no error."""

import os
from pathlib import Path

import numpy as np
import pytest

from twostroke.text.tokenizer_cache import CacheEntry, cached_entry


class Builder:
    """Counts how often it had to build."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> CacheEntry:
        self.count += 1
        return CacheEntry(
            np.arange(15, dtype=np.int32).reshape(-1, 3), {"words": ["é", "\ud83d", "x"], "n": self.count}
        )


def test_the_second_time_is_read_not_built(tmp_path: Path) -> None:
    build = Builder()
    first = cached_entry(tmp_path / "deep" / "er", fingerprint="a", build=build)
    second = cached_entry(tmp_path / "deep" / "er", fingerprint="a", build=build)
    assert build.count == 1
    assert second.facts == first.facts
    assert np.array_equal(second.rules, first.rules)
    assert second.rules.shape == (5, 3)


def test_another_fingerprint_is_another_entry(tmp_path: Path) -> None:
    build = Builder()
    for fingerprint in ("a", "b", "a"):
        cached_entry(tmp_path, fingerprint=fingerprint, build=build)
    assert build.count == 2


def test_another_version_of_the_library_is_another_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = Builder()
    cached_entry(tmp_path, fingerprint="a", build=build)
    monkeypatch.setattr("tokenizers.__version__", "0.0.1")
    cached_entry(tmp_path, fingerprint="a", build=build)
    assert build.count == 2


@pytest.mark.parametrize("cut", [0, 1, 19, 20, 51, 60, 100, -1])
def test_a_cut_entry_is_built_anew(tmp_path: Path, cut: int) -> None:
    build = Builder()
    cached_entry(tmp_path, fingerprint="a", build=build)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:cut])
    assert cached_entry(tmp_path, fingerprint="a", build=build).facts["n"] == 2
    assert cached_entry(tmp_path, fingerprint="a", build=build).facts["n"] == 2
    assert list(tmp_path.iterdir()) == [file]


def test_any_changed_byte_is_noticed(tmp_path: Path) -> None:
    build = Builder()
    cached_entry(tmp_path, fingerprint="a", build=build)
    (file,) = tmp_path.iterdir()
    for position in range(0, file.stat().st_size, 7):
        content = bytearray(file.read_bytes())
        content[position] ^= 0x40
        file.write_bytes(content)
        before = build.count
        cached_entry(tmp_path, fingerprint="a", build=build)
        assert build.count == before + 1, position


def test_no_directory_means_no_cache() -> None:
    build = Builder()
    for _ in range(2):
        cached_entry(None, fingerprint="a", build=build)
    assert build.count == 2


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    build = Builder()
    (tmp_path / "file").write_text("in the way")
    entry = cached_entry(tmp_path / "file" / "cache", fingerprint="a", build=build)
    assert entry.facts["n"] == 1


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*paths: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    cached_entry(tmp_path, fingerprint="a", build=Builder())
    assert list(tmp_path.iterdir()) == []
