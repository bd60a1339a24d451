"""How the program ends, as numbers a shell can test."""

from enum import IntEnum


class ExitCode(IntEnum):
    """DONE also when the reader of our output left before its end."""

    DONE = 0
    FAILED = 1
    USER_MISTAKE = 2  # a flag, file or answer that cannot work; the line on stderr says how to mend it
    INTERRUPTED = 130  # 128 + SIGINT
