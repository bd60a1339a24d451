"""A regular file mapped read-only, and words for what a file that is no model really is.

Called by the readers. Never reads more than the first bytes, never writes.
"""

import mmap
import os
import stat
from pathlib import Path

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError, ModelNotFoundError

_HEADS = (
    (b"version https://git-lfs", "it is a Git LFS pointer, the weights were not downloaded: run `git lfs pull` there"),
    (b"<!doctype", "it is an HTML page, probably a failed download: fetch the file again"),
    (b"<html", "it is an HTML page, probably a failed download: fetch the file again"),
    (b"PK\x03\x04", "it is a ZIP archive (PyTorch or a Python wheel): use GGUF or safetensors"),
    (b"\x80\x02", "it is a Python pickle, which is not loaded because it can run code: use GGUF or safetensors"),
    (b"GGUF", "it is a GGUF file: give it the ending .gguf"),
    (b"{", "it is JSON"),
)


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
                self.modified_ns = status.st_mtime_ns
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


def explain_wrong_file(head: bytes) -> str | None:
    """What a file with these first bytes is, when it is something people mistake for a model; else None."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    for start, meaning in _HEADS:
        if text[: len(start)].lower() == start.lower():
            return meaning
    return None
