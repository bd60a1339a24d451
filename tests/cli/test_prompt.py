"""Prompts arrive whole, as UTF-8, from the argument or from stdin."""

import io
import os
import pty
import sys

import pytest
from hypothesis import given, strategies as st

from twostroke.cli.prompt import read_prompt
from twostroke.errors import PromptError


class Pipe(io.TextIOWrapper):
    """Stdin as a pipe, opened in a locale that is not ours."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="ascii", errors="surrogateescape")


def piped(data: bytes, *, argument: str | None = "-", keep_line_end: bool = False) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", Pipe(data))
        return read_prompt(argument, keep_line_end=keep_line_end)


def test_an_argument_is_taken_as_it_is() -> None:
    assert read_prompt(" hi\n", keep_line_end=False) == " hi\n"


@pytest.mark.parametrize("argument", ["-", None])
def test_a_pipe_is_read_with_a_dash_and_without(argument: str | None) -> None:
    assert piped(b"hi", argument=argument) == "hi"


def test_an_argument_beside_a_pipe_wins() -> None:
    assert piped(b"from the pipe", argument="from the argument") == "from the argument"


@pytest.mark.parametrize(
    ("data", "text"), [(b"hi", "hi"), (b"hi\n", "hi"), (b"hi\r\n", "hi"), (b"hi\n\n", "hi\n"), (b" hi \n", " hi ")]
)
def test_the_last_line_end_belongs_to_the_shell(data: bytes, text: str) -> None:
    assert piped(data) == text


@pytest.mark.parametrize("data", [b"hi\n", b"hi\r\n", b"\n", b"hi"])
def test_raw_text_keeps_every_byte(data: bytes) -> None:
    assert piped(data, keep_line_end=True) == data.decode()


@given(st.text(min_size=1))
def test_any_text_comes_through_whatever_the_locale(text: str) -> None:
    assert piped(text.encode(), keep_line_end=True) == text


@pytest.mark.parametrize("data", [b"", b"\n"])
def test_an_empty_pipe_says_how_to_give_a_prompt(data: bytes) -> None:
    with pytest.raises(PromptError, match=r"the prompt is empty: give one, twostroke run .*, or pipe it in"):
        piped(data)


def test_an_empty_argument_says_how_to_give_a_prompt() -> None:
    with pytest.raises(PromptError, match="the prompt is empty"):
        read_prompt("", keep_line_end=False)


def test_bytes_that_are_not_utf8_are_named() -> None:
    with pytest.raises(PromptError, match=r"stdin is not UTF-8: byte 0xe9 at position 3; convert it, iconv -t UTF-8"):
        piped(b"caf\xe9")


def test_a_terminal_without_a_prompt_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    with open(slave, encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        with pytest.raises(PromptError, match="no prompt: give one"):
            read_prompt(None, keep_line_end=False)
    os.close(master)


def test_a_dash_on_a_terminal_reads_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    os.write(master, "héllo\n\x04".encode())
    with open(slave, encoding="ascii") as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        assert read_prompt("-", keep_line_end=False) == "héllo"
    os.close(master)


def test_a_closed_stdin_is_no_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(PromptError, match="no prompt"):
        read_prompt("-", keep_line_end=False)
