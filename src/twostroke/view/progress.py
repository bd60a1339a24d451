"""How far a download is: one line drawn over itself on a terminal, one line per 10 % elsewhere.

The line is cut to the width of the moment and never fills the last column, so that no terminal
breaks it. No escape codes: a carriage return and padding are enough.
"""

from types import TracebackType
from typing import Self

from rich.cells import set_cell_size

from twostroke.view import quantity
from twostroke.view.terminal import Terminal

STEP_PERCENT = 10  # between two lines of a log


class Progress:
    """Call with (done, total) bytes as they arrive; total None while unknown. A context manager that ends the line."""

    def __init__(self, title: str, *, terminal: Terminal) -> None:
        self._title = title
        self._terminal = terminal
        self._shown = ""  # the line on the screen
        self._next_percent = 0  # of a log

    def __call__(self, done: int, total: int | None) -> None:
        if self._terminal.is_terminal:
            self._draw(self._line(done, total))
        elif total:
            self._log(done, total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        self.end_line()

    def end_line(self) -> None:
        """Leave the drawn line, so that something else can be said."""
        if self._shown:
            self._terminal.stream.write("\n")
            self._terminal.stream.flush()
            self._shown = ""

    def _line(self, done: int, total: int | None) -> str:
        """The numbers first: they are what is left when the line is cut."""
        if not total:
            return f"{quantity.size(done)}  {self._title}"
        return f"{done * 100 // total:3d} %  {quantity.size(done)} of {quantity.size(total)}  {self._title}"

    def _draw(self, line: str) -> None:
        shown = set_cell_size(line, max(1, self._terminal.width() - 1))
        if shown != self._shown:
            self._terminal.stream.write("\r" + shown)
            self._terminal.stream.flush()
            self._shown = shown

    def _log(self, done: int, total: int) -> None:
        percent = done * 100 // total
        if percent >= self._next_percent:
            self._terminal.stream.write(self._line(done, total).lstrip() + "\n")
            self._terminal.stream.flush()
            self._next_percent = percent - percent % STEP_PERCENT + STEP_PERCENT
