"""Where the console script begins: so light that Ctrl-C has its exit code from the first moment on.

Owns what Ctrl-C does while modules load; a command that runs owns it itself.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from twostroke.cli.exit_code import ExitCode


def main() -> int:
    """Load the commands and run the one that was asked for."""
    try:
        with leaving_on_interrupt():
            from twostroke.cli.app import main as run_command
        return run_command()
    except KeyboardInterrupt:  # between the two
        return ExitCode.INTERRUPTED


@contextmanager
def leaving_on_interrupt() -> Iterator[None]:
    """Ctrl-C ends the program at once, for stretches that import: nothing is open yet that needs closing.

    KeyboardInterrupt would not do: raised in a callback of the import system, it is printed and lost.
    Where someone else has decided about Ctrl-C (a parent that ignores it, a program around us), nothing changes.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    try:
        signal.signal(signal.SIGINT, _leave)
    except ValueError:  # not the main thread, which alone hears signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(ExitCode.INTERRUPTED)
