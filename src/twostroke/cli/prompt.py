"""Where the prompt comes from: the argument, or stdin as UTF-8 bytes whatever the locale says."""

import sys

from twostroke.errors import PromptError

EXAMPLES = 'give one, twostroke run "Why is the sky blue?", or pipe it in, twostroke run - < question.txt'


def read_prompt(argument: str | None, *, keep_line_end: bool) -> str:
    """The prompt as text; `-`, or nothing at all beside a pipe, means stdin to its end.

    One line end that closes stdin belongs to the shell, not to the question; `keep_line_end` keeps it.
    Raises PromptError for an empty prompt or bytes that are not UTF-8.
    """
    text = argument if argument is not None and argument != "-" else _read_stdin(argument, keep_line_end)
    if not text:
        raise PromptError(f"the prompt is empty: {EXAMPLES}")
    return text


def _read_stdin(argument: str | None, keep_line_end: bool) -> str:
    if sys.stdin is None or (argument is None and sys.stdin.isatty()):
        raise PromptError(f"no prompt: {EXAMPLES}")
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x} at position {error.start}"
        raise PromptError(f"stdin is not UTF-8: {found}; convert it, iconv -t UTF-8") from None
    return text if keep_line_end else text.removesuffix("\n").removesuffix("\r")
