"""Streams show what they can: escape codes on terminals only, text untouched everywhere."""

import io
import os
import pty
import struct
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from typing import TextIO

import pyte
import pytest

from twostroke.config import resolve
from twostroke.view.terminal import UNKNOWN_WIDTH, Terminal, speak_utf8

# Two hundred wide characters, joined emoji, combining accents, right-to-left text, tabs.
HARD_TEXTS = ["漢字" * 100, "👩‍👩‍👧‍👦" * 30, "e\u0301" * 150, "שלום עולם " * 20, "a\tb\t" * 30]


@contextmanager
def terminal_of(columns: int) -> Iterator[tuple[TextIO, int]]:
    """A pseudo-terminal as a text stream, and the descriptor a screen would read it from."""
    master, slave = pty.openpty()
    resize(slave, columns)
    try:
        with open(slave, "w", encoding="utf-8", newline="") as stream:
            yield stream, master
    finally:
        os.close(master)


def resize(descriptor: int, columns: int) -> None:
    ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def written(stream: TextIO, master: int) -> bytes:
    """Everything the terminal has been sent so far; a NUL marks the end, since a read may bring any part of it."""
    stream.write("\0")
    stream.flush()
    data = b""
    while not data.endswith(b"\0"):
        data += os.read(master, 10_000)
    return data[:-1]


def screen_of(data: bytes, columns: int) -> list[str]:
    """The lines a screen shows after these bytes."""
    screen = pyte.Screen(columns, 200)
    pyte.ByteStream(screen).feed(data)
    return [line.rstrip() for line in screen.display if line.strip()]


def test_a_file_is_no_terminal_and_has_no_colour() -> None:
    terminal = Terminal.of(io.StringIO(), resolve({"TERM": "xterm"}))
    assert not terminal.is_terminal
    assert not terminal.has_color


@pytest.mark.parametrize(
    ("environ", "is_terminal", "has_color"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({}, True, True),
    ],
)
def test_no_color_and_dumb_terminals_are_honoured(environ: dict[str, str], is_terminal: bool, has_color: bool) -> None:
    with terminal_of(80) as (stream, _):
        terminal = Terminal.of(stream, resolve(environ))
        assert (terminal.is_terminal, terminal.has_color) == (is_terminal, has_color)


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_no_escape_code_without_colour(environ: dict[str, str]) -> None:
    with terminal_of(80) as (stream, master):
        Terminal.of(stream, resolve(environ)).write_lines(["one", "two"])
        assert written(stream, master) == b"one\r\ntwo\r\n"


def test_lines_beside_the_answer_are_dim_on_a_colour_terminal() -> None:
    with terminal_of(80) as (stream, master):
        Terminal.of(stream, resolve({})).write_lines(["one"])
        assert written(stream, master) == b"\x1b[2mone\x1b[0m\r\n"


def test_text_beside_the_answer_goes_on_in_its_line_and_is_dim_where_there_is_colour() -> None:
    for environ, shown in (({}, b"\x1b[2ma\\x1b\x1b[0m\x1b[2mb\x1b[0m"), ({"NO_COLOR": "1"}, b"a\\x1bb")):
        with terminal_of(80) as (stream, master):
            terminal = Terminal.of(stream, resolve(environ))
            terminal.write_aside("a\x1b")
            terminal.write_aside("b")
            assert written(stream, master) == shown


@pytest.mark.parametrize("text", [*HARD_TEXTS, "a\x1b[31mb", "bell\x07"])
def test_text_to_a_file_is_the_text(text: str) -> None:
    stream = io.StringIO(newline="")
    Terminal.of(stream, resolve({})).write(text)
    assert stream.getvalue() == text


@pytest.mark.parametrize("columns", [20, 80])
@pytest.mark.parametrize("text", HARD_TEXTS)
def test_text_to_a_terminal_gets_no_line_ends_of_ours(text: str, columns: int) -> None:
    with terminal_of(columns) as (stream, master):
        Terminal.of(stream, resolve({})).write(text)
        assert written(stream, master).decode() == text


@pytest.mark.parametrize("columns", [20, 80])
def test_wide_characters_fill_lines_and_none_is_lost(columns: int) -> None:
    with terminal_of(columns) as (stream, master):
        Terminal.of(stream, resolve({})).write("漢" * 200)
        lines = screen_of(written(stream, master), columns)
    assert "".join(lines).count("漢") == 200
    assert len(lines) == 200 * 2 // columns


def test_a_model_cannot_drive_the_terminal() -> None:
    with terminal_of(80) as (stream, master):
        Terminal.of(stream, resolve({})).write("a\x1b]0;title\x07b\x9bc\x7f\r\tok\n")
        assert written(stream, master) == b"a\\x1b]0;title\\x07b\\x9bc\\x7f\\x0d\tok\r\n"


def test_width_follows_a_resize() -> None:
    with terminal_of(80) as (stream, _):
        terminal = Terminal.of(stream, resolve({}))
        assert terminal.width() == 80
        resize(stream.fileno(), 33)
        assert terminal.width() == 33


@pytest.mark.parametrize(("measured", "columns", "width"), [(80, "20", 20), (20, "80", 20), (0, "20", 20)])
def test_columns_can_only_make_it_narrower(measured: int, columns: str, width: int) -> None:
    with terminal_of(measured) as (stream, _):
        assert Terminal.of(stream, resolve({"COLUMNS": columns})).width() == width


def test_an_unknown_width_is_eighty() -> None:
    with terminal_of(0) as (stream, _):
        assert Terminal.of(stream, resolve({})).width() == UNKNOWN_WIDTH
    assert Terminal.of(io.StringIO(), resolve({})).width() == UNKNOWN_WIDTH


def test_output_is_utf8_whatever_the_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "out", "w", encoding="ascii") as out, open(tmp_path / "err", "w", encoding="latin-1") as err:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        speak_utf8()
        out.write("漢é")
        err.write("漢é")
    assert (tmp_path / "out").read_bytes() == "漢é".encode()
    assert (tmp_path / "err").read_bytes() == "漢é".encode()


def test_a_replaced_stream_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    speak_utf8()
    assert sys.stdout is out


def test_a_stream_that_came_closed_swallows_what_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    speak_utf8()
    for stream in (sys.stdout, sys.stderr):
        stream.write("漢é")
        assert not stream.isatty()
        stream.close()


@pytest.mark.parametrize("code", [*range(0x20), *range(0x7F, 0xA0)])
def test_every_control_character_is_spelt_out_on_a_terminal_but_tab_and_line_end(code: int) -> None:
    is_text = chr(code) in "\n\t"
    with terminal_of(80) as (stream, master):
        terminal = Terminal(stream, is_terminal=True, has_color=False, columns=None)
        terminal.write(f"a{chr(code)}b")
        terminal.write_lines([f"a{chr(code)}b"])
        shown = written(stream, master).decode()
    said = f"a{chr(code)}b" if is_text else f"a\\x{code:02x}b"
    assert shown == f"{said}{said}\n".replace("\n", "\r\n")


@pytest.mark.parametrize("text", [" ", "~", "\xa0", "é", "\u200b"])
def test_the_neighbours_of_control_characters_are_text(text: str) -> None:
    with terminal_of(80) as (stream, master):
        Terminal.of(stream, resolve({})).write(text)
        assert written(stream, master).decode() == text


def test_lines_in_a_file_are_what_they_are() -> None:
    stream = io.StringIO()
    Terminal.of(stream, resolve({})).write_lines(["a\x1b[2mb", "", "c\x9b"])
    assert stream.getvalue() == "a\x1b[2mb\n\nc\x9b\n"


@pytest.mark.parametrize(
    ("environ", "width"), [({}, UNKNOWN_WIDTH), ({"COLUMNS": "33"}, 33), ({"COLUMNS": "200"}, 200)]
)
@pytest.mark.parametrize("error", [OSError(25, "no terminal"), ValueError("closed")])
def test_a_stream_without_a_width_has_the_columns_or_eighty(
    environ: dict[str, str], width: int, error: Exception
) -> None:
    class Odd(io.StringIO):
        def fileno(self) -> int:
            raise error

    assert Terminal.of(Odd(), resolve(environ)).width() == width


def test_half_a_character_is_written_as_its_number_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stdout", "stderr"):
        with open(tmp_path / name, "w", encoding="ascii") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, name, stream)
            speak_utf8()
            getattr(sys, name).write("漢\ud800")
        assert (tmp_path / name).read_bytes() == "漢\\ud800".encode()
