"""A standard output whose errors say that they are its own, told by their file name.

`main` puts it in place once per process. A disk may be full, or a pipe closed, below any file; only for stdout is there
something to tell of the answer.
"""

import io
import sys
from typing import Any

NAME = "<stdout>"


class _Stdout(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = NAME
            raise


def name_its_errors() -> None:
    """Put the named one in the place of the process's own; one that a caller replaced stays as it is."""
    stream = sys.stdout
    if type(stream) is not io.TextIOWrapper:
        return
    buffer: object = stream.buffer
    raw = getattr(buffer, "raw", buffer)  # itself where Python was told to buffer nothing
    if type(raw) is not io.FileIO:
        return
    stream.flush()
    named = _Stdout(raw.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        named if raw is buffer else io.BufferedWriter(named),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def is_of_stdout(error: OSError) -> bool:
    """Whether what is told there could not be written."""
    return error.filename is NAME
