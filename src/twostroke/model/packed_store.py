"""Packed matrices kept on disk, so that a model is packed once: one file per model and version of the layout.

A file is found by the stamps of the model's own files, mapped and checked, replaced in one rename and thrown
out, the longest unused first, where all together pass a limit. What cannot be used is packed anew, what cannot
be kept gives one warning: nothing here ends a load. Called by the loader and by `models`.

    <home>/packed/<key>.packed     .packed-<random> while it is written, locked by its writer
"""

import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from twostroke import _native
from twostroke.model.mapped_file import FileStamp
from twostroke.model.packed_file import HUGE_PAGE, PackedHead, map_arena, read_head, write_packed
from twostroke.model.source import ModelSource
from twostroke.program.packed import LAYOUT_VERSION, PackedMatrix

_LOG = logging.getLogger("twostroke")

SMALLEST_BYTES = 2**24  # packing less takes a few milliseconds
_SUFFIX = ".packed"
_PARTIAL = ".packed-"


@dataclass(frozen=True, slots=True)
class PackedEntry:
    """One file of the store. `sources` is empty where it cannot be read, `is_usable` where a model would take it."""

    path: Path
    num_bytes: int
    sources: tuple[FileStamp, ...]
    is_usable: bool


class PackedStore:
    """The folder of packed matrices; at most `limit_bytes` of them are kept, none of less than `smallest_bytes`."""

    def __init__(self, folder: Path, *, version: str, limit_bytes: int, smallest_bytes: int = SMALLEST_BYTES) -> None:
        """`version` names what the bytes depend on beside model and layout."""
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.smallest_bytes = smallest_bytes
        self._version = f"layout {LAYOUT_VERSION}, {version}"

    def copy_of(self, source: ModelSource) -> "PackedCopy":
        """The place of one model's matrices, whether they are there or not."""
        return PackedCopy(self, key=f"{source.fingerprint}, {self._version}", sources=source.files)

    def entries(self) -> list[PackedEntry]:
        """All files, the last used first."""
        return [self._entry(path) for path, _ in reversed(self._by_use())]

    def prune(self) -> list[PackedEntry]:
        """Delete what no model would take any more, and what killed processes left. Returns what was there."""
        self._remove_abandoned()
        unusable = [entry for entry in self.entries() if not entry.is_usable]
        return [entry for entry in unusable if _removed(entry.path)]

    def make_room(self, num_bytes: int) -> None:
        """Throw out the longest unused until so many bytes more stay within the limit."""
        self._remove_abandoned()
        files = self._by_use()
        total = sum(status.st_size for _, status in files)
        for path, status in files:
            if total + num_bytes <= self.limit_bytes:
                return
            if _removed(path):
                total -= status.st_size

    def _by_use(self) -> list[tuple[Path, os.stat_result]]:
        """Files with their facts, the longest unused first: a use sets the time of change."""
        found: list[tuple[Path, os.stat_result]] = []
        with suppress(OSError):
            for path in self.folder.glob(f"*{_SUFFIX}"):
                with suppress(OSError):
                    found.append((path, path.stat()))
        return sorted(found, key=lambda file: (file[1].st_mtime_ns, file[0]))

    def _entry(self, path: Path) -> PackedEntry:
        with suppress(OSError), path.open("rb") as file:
            num_bytes, head = os.fstat(file.fileno()).st_size, read_head(file)
            if head is None:
                return PackedEntry(path, num_bytes, (), False)
            is_ours = head.key.endswith(self._version) and path.name == file_name(head.key)
            return PackedEntry(
                path, num_bytes, head.sources, is_ours and all(source.is_current() for source in head.sources)
            )
        return PackedEntry(path, 0, (), False)

    def _remove_abandoned(self) -> None:
        """Delete what killed processes left: a writer that lives holds its file's lock, an empty file may be new."""
        for path in self.folder.glob(f"{_PARTIAL}*"):
            with suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(file.fileno()).st_size > 0:
                    path.unlink()


@dataclass(frozen=True, slots=True)
class PackedCopy:
    """One model's matrices in a store. Implements `program.packed.KeptMatrices`."""

    store: PackedStore
    key: str
    sources: tuple[FileStamp, ...]

    @property
    def path(self) -> Path:
        return self.store.folder / file_name(self.key)

    def find(self, matrices: Sequence[PackedMatrix], *, pool: _native.Pool) -> _native.WeightArena | None:
        """The arena mapped from its file; None where it has to be packed. A damaged file is deleted."""
        try:
            with self.path.open("rb") as file:
                arena = self._mapped(file, tuple(matrices), pool=pool)
                if arena is not None and is_fast(arena):
                    with suppress(OSError):
                        os.utime(file.fileno())
                    return arena
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            _LOG.warning("%s cannot be read, the weights are packed anew: %s", self.path, error.strerror)
            return None
        if arena is not None:
            _LOG.info("%s is not in huge pages of the system's cache now, the weights are packed anew", self.path)
        else:
            _LOG.warning("%s is damaged, the weights are packed anew", self.path)
            _removed(self.path)
        return None

    def _mapped(
        self, file: BinaryIO, matrices: tuple[PackedMatrix, ...], *, pool: _native.Pool
    ) -> _native.WeightArena | None:
        head = read_head(file)
        if head is None or (head.key, head.matrices) != (self.key, matrices):
            return None
        return map_arena(file, head, pool=pool)

    def keep(self, arena: _native.WeightArena, matrices: Sequence[PackedMatrix], *, pool: _native.Pool) -> None:
        """Write the arena for the next time, unless it is too small to pay, too large, or the model has changed.

        A file that is there is intact, if slow to read now: it stays.
        """
        store, num_bytes = self.store, arena.num_bytes
        if num_bytes < store.smallest_bytes or store.limit_bytes == 0 or self.path.exists():
            return
        if num_bytes > store.limit_bytes:
            self._warn(f"they have {_gb(num_bytes)}, TWOSTROKE_PACKED_GB allows {_gb(store.limit_bytes)}")
            return
        head = PackedHead(self.key, self.sources, tuple(matrices), arena.checksums(pool))
        try:
            store.folder.mkdir(parents=True, exist_ok=True)
            store.make_room(num_bytes)
            free = shutil.disk_usage(store.folder).free
            if 2 * num_bytes > free:
                self._warn(f"they have {_gb(num_bytes)}, more than half of the {_gb(free)} that are free")
                return
            with _new_file(self.path) as file:
                write_packed(file, head, arena.data)
                if not all(source.is_current() for source in self.sources):
                    raise _SourceChanged
        except _SourceChanged:
            self._warn("the model's file was changed while it was loaded")
        except OSError as error:
            self._warn(error.strerror or str(error))

    def _warn(self, why: str) -> None:
        _LOG.warning(
            "packed weights are not kept in %s, the next start packs again: %s; TWOSTROKE_PACKED_GB=0 keeps none",
            self.store.folder,
            why,
        )


class _SourceChanged(Exception):
    """What was packed may be half of the old file and half of the new."""


def is_fast(arena: _native.WeightArena) -> bool:
    """Whether the system's cache holds a mapped file in huge pages: from small ones decode is two fifths slower.

    Half is enough, as pages of one read lie together anyway; the end fills no huge page.
    """
    return arena.huge_bytes >= arena.num_bytes // 2 - HUGE_PAGE


def file_name(key: str) -> str:
    """A file's name, by what it must be found for."""
    return hashlib.sha256(key.encode()).hexdigest()[:40] + _SUFFIX


@contextmanager
def _new_file(path: Path) -> Iterator[FileIO]:
    """A file that takes the path's place at the end, or vanishes. Others see that its writer lives."""
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=_PARTIAL)
    try:
        with suppress(OSError):  # a file system without locks: nobody can take it for abandoned there
            fcntl.flock(handle, fcntl.LOCK_EX)
        with os.fdopen(handle, "wb", buffering=0) as file:
            yield file
            os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise


def _removed(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB"
