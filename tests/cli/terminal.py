"""A program on a terminal of its own, and somebody who types to it."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

PATIENCE_S = 90.0  # cores are shared with compilers

# A session leader that opens a terminal owns it: Ctrl-C there becomes SIGINT here.
OWN_TERMINAL = "import os, sys; os.open(os.ttyname(0), os.O_RDWR); os.execv(sys.argv[1], sys.argv[1:])"


class Typist:
    """The program, and what its screen was sent."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.sent = b""
        self._master = master

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def wait_for(self, text: bytes) -> None:
        assert self.shows(text, within_s=PATIENCE_S), (text, self.sent[-2000:])

    def shows(self, text: bytes, *, within_s: float) -> bool:
        deadline_s = time.monotonic() + within_s
        while text not in self.sent and time.monotonic() < deadline_s:
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.sent += os.read(self._master, 65_536)
                except OSError:  # the other side has closed
                    break
        return text in self.sent

    def wait_for_prompt(self, after: bytes) -> None:
        """A prompt behind these words, and forget what was before."""
        self.wait_for(after)
        self.sent = self.sent[self.sent.rindex(after) :]
        self.wait_for(b"> ")
        self.sent = self.sent[self.sent.index(b"> ") :]


@contextmanager
def typing_to(command: Sequence[str], *, env: Mapping[str, str] | None = None) -> Iterator[Typist]:
    """The program starts with the block and ends with it. It finds TERM as xterm."""
    master, slave = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-c", OWN_TERMINAL, *command],
            env={**(os.environ if env is None else env), "TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        ) as process:
            os.close(slave)
            try:
                yield Typist(process, master)
            finally:
                process.kill()
    finally:
        os.close(master)
