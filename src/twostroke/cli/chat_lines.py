"""What a person types: lines with a history on a terminal, plain lines from a pipe.

Several lines are one question between two lines of three quotes, or where a line ends with a backslash.
"""

import os
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from twostroke.errors import PromptError

QUOTES = '"""'
PROMPT, MORE = "> ", ". "
MAX_HISTORY = 1000  # lines kept


def read_question(read_line: Callable[[str], str | None]) -> str | None:
    """One question or command; None at the end of input, also inside an unfinished block."""
    line = read_line(PROMPT)
    if line is None:
        return None
    if line.strip().startswith(QUOTES):
        return _block(line.strip().removeprefix(QUOTES), read_line)
    lines = [line]
    while lines[-1].endswith("\\"):
        more = read_line(MORE)
        lines[-1] = lines[-1].removesuffix("\\")
        if more is None:
            break
        lines.append(more)
    return "\n".join(lines)


def _block(first: str, read_line: Callable[[str], str | None]) -> str | None:
    if first.endswith(QUOTES):
        return first.removesuffix(QUOTES)
    lines = [first] if first else []
    while (line := read_line(MORE)) is not None:
        if line.rstrip().endswith(QUOTES):
            last = line.rstrip().removesuffix(QUOTES)
            return "\n".join([*lines, last] if last else lines)
        lines.append(line)
    return None


def piped_line(prompt: str) -> str | None:
    """The next line of stdin as UTF-8, whatever the locale says; nothing is prompted. Raises PromptError."""
    data = sys.stdin.buffer.readline()
    if not data:
        return None
    try:
        return data.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise PromptError(f"stdin is not UTF-8 at byte {error.start} of a line: convert it, iconv -t UTF-8") from None


def typed_line(prompt: str) -> str | None:
    """A line edited on the terminal. Raises KeyboardInterrupt for Ctrl-C, PromptError for bytes that are no text."""
    try:
        line = input(prompt)
    except EOFError:
        return None
    try:
        line.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PromptError(f"what was typed is not UTF-8 at character {error.start}: type it again") from None
    return line


@contextmanager
def history_in(file: Path) -> Iterator[None]:
    """Arrow keys find what was typed in earlier chats; the file is its owner's alone."""
    try:
        import readline  # takes over input() where it can be imported
    except ImportError:  # a Python built without it: lines can still be typed
        yield
        return
    readline.set_history_length(MAX_HISTORY)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
        readline.read_history_file(file)
    except OSError:  # a home that cannot be written: this chat has a history of its own
        yield
        return
    try:
        yield
    finally:
        readline.write_history_file(file)
        readline.clear_history()


def keys_kept() -> AbstractContextManager[None]:
    """Keys pressed while nobody reads wait for the line editor as they are.

    A terminal that gathers lines makes a NUL of Ctrl-D, which the editor, when its turn comes, takes for no end.
    """
    return _terminal_without(termios.ICANON)


def keys_unseen() -> AbstractContextManager[None]:
    """Keys pressed while an answer comes, Ctrl-C above all, leave no mark in it; the line editor shows them later."""
    return _terminal_without(termios.ECHO)


@contextmanager
def _terminal_without(local_flag: int) -> Iterator[None]:
    if "readline" not in sys.modules:  # then input() needs the terminal's own lines, which it shows by itself
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    changed = [*before]
    changed[3] &= ~local_flag
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
