"""A regular file mapped read-only, and what tells it from another version of itself.

Called by the readers; never reads more than the first bytes, never writes.
"""

import mmap
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError, ModelNotFoundError


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A version of a file by what its system keeps: any write moves `changed_ns`, and no program can set it back.

    What escapes: writes through a shared mapping to pages that are dirty already, and file systems that keep
    no change time, where `modified_ns` alone is left.
    """

    path: Path
    num_bytes: int
    modified_ns: int
    changed_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path, status: os.stat_result) -> "FileStamp":
        return cls(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)

    def is_current(self) -> bool:
        """Whether the path still leads to this version."""
        try:
            return FileStamp.of(self.path, self.path.stat()) == self
        except OSError:
            return False


class MappedFile:
    """A file of `size` bytes at `path`, readable through `data` (memory) and `array` (NumPy), both read-only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # asked first: opening a pipe would wait for a writer
                raise ModelFileError(path, "it is not a regular file")
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                self.size = status.st_size
                self.stamp = FileStamp.of(path.absolute(), status)
                empty = self.size == 0  # an empty file cannot be mapped
                self.data = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise ModelNotFoundError(f"{path}: there is no such file") from None
        except OSError as error:
            raise ModelFileError(path, f"it cannot be read: {error.strerror}") from error
        self.array: npt.NDArray[np.uint8] = np.frombuffer(self.data, dtype=np.uint8)

    def head(self, num_bytes: int) -> bytes:
        """The first bytes; fewer where the file is shorter."""
        return bytes(self.data[:num_bytes])
