"""What a text stream can show: whether it is a terminal, how wide, with or without colour.

The command line asks; nothing here decides what is said. Escape codes go to terminals only.
"""

import os
import sys
from dataclasses import dataclass
from typing import TextIO

from twostroke.config import Config

UNKNOWN_WIDTH = 80  # of a terminal that does not tell

# Control characters could move the cursor or rename the window; line ends and tabs are text.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


@dataclass(frozen=True, slots=True)
class Terminal:
    """One output stream and its abilities."""

    stream: TextIO
    is_terminal: bool
    has_color: bool
    columns: int | None  # the user's COLUMNS

    @classmethod
    def of(cls, stream: TextIO, config: Config) -> "Terminal":
        """Look at a stream once. A dumb terminal counts as a file: no line is ever drawn over."""
        is_terminal = stream.isatty() and not config.is_dumb_terminal
        return cls(stream, is_terminal, is_terminal and config.has_color, config.columns)

    def width(self) -> int:
        """Columns at this moment, so that a resize is followed; COLUMNS can only make it narrower."""
        try:
            measured = os.get_terminal_size(self.stream.fileno()).columns
        except (OSError, ValueError):  # no terminal; or a stream in memory, which has no descriptor
            measured = 0
        if measured > 0:
            return min(measured, self.columns or measured)
        return self.columns or UNKNOWN_WIDTH

    def write(self, text: str) -> None:
        """Show text now. On a terminal its control characters are spelt out, never obeyed."""
        self.stream.write(text.translate(_CONTROLS) if self.is_terminal else text)
        self.stream.flush()

    def write_aside(self, text: str) -> None:
        """Show text beside the answer that goes on in its line: dim where there is colour."""
        shown = text.translate(_CONTROLS) if self.is_terminal else text
        self.stream.write(f"\x1b[2m{shown}\x1b[0m" if self.has_color else shown)
        self.stream.flush()

    def write_lines(self, lines: list[str]) -> None:
        """Show lines beside the answer: dim where there is colour."""
        for line in lines:
            shown = line.translate(_CONTROLS) if self.is_terminal else line
            self.stream.write(f"\x1b[2m{shown}\x1b[0m\n" if self.has_color else f"{shown}\n")
        self.stream.flush()


def speak_utf8() -> None:
    """Make both output streams UTF-8 whatever the locale says; one that came closed swallows what it is told."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the life of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # absent when a caller replaced the stream
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace")
