"""How the program ends, as numbers a shell can test."""

from enum import IntEnum

from twostroke.errors import (
    CapacityError,
    ConfigError,
    ModelFileError,
    ModelNotFoundError,
    ParamsError,
    RemoteError,
    TermsError,
    TwostrokeError,
    UnsupportedModelError,
)


class ExitCode(IntEnum):
    """DONE also when the reader of our output left before its end."""

    DONE = 0
    FAILED = 1
    USER_MISTAKE = 2  # a flag, file or answer that cannot work; the line on stderr says how to mend it
    INTERRUPTED = 130  # 128 + SIGINT


# What was asked cannot be done as asked: another value, file or answer mends it, trying again does not.
USER_MISTAKES = (
    CapacityError,
    ConfigError,
    ModelFileError,
    ModelNotFoundError,
    ParamsError,
    TermsError,
    UnsupportedModelError,
)
REFUSED = {f"http {status}" for status in (400, 401, 403, 404, 413, 422)}  # the same, as a server says it


def code_of(error: TwostrokeError) -> ExitCode:
    """How the program ends that failed with this."""
    is_refused = isinstance(error, RemoteError) and error.kind in REFUSED
    return ExitCode.USER_MISTAKE if is_refused or isinstance(error, USER_MISTAKES) else ExitCode.FAILED
