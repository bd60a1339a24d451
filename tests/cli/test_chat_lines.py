"""Questions of one line and of several, typed or piped."""

import io
import os
import pty
import sys
import termios
from pathlib import Path

import pytest

from tests.cli.chat_builders import typing
from twostroke.cli.chat_lines import history_in, keys_kept, keys_unseen, piped_line, read_question, typed_line
from twostroke.errors import PromptError


@pytest.mark.parametrize(
    ("lines", "question"),
    [
        (["hi"], "hi"),
        ([""], ""),
        ([], None),
        (["a\\", "b"], "a\nb"),
        (["a\\", "b\\", "c"], "a\nb\nc"),
        (["a\\"], "a"),
        (['"""', "a", "b", '"""'], "a\nb"),
        (['"""a', 'b"""'], "a\nb"),
        (['"""one line"""'], "one line"),
        (['"""', "a", "", "b", '"""'], "a\n\nb"),
        (['"""', "/clear", '"""'], "/clear"),
        (['"""', "never ended"], None),
        (['say """ twice'], 'say """ twice'),
    ],
)
def test_a_question_is_a_line_a_block_or_continued_lines(lines: list[str], question: str | None) -> None:
    assert read_question(typing(lines)) == question


def test_what_follows_a_question_is_the_next_one() -> None:
    read_line = typing(["a\\", "b", '"""', "c", '"""', "d"])
    assert [read_question(read_line) for _ in range(4)] == ["a\nb", "c", "d", None]


class Piped:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def test_a_pipe_is_read_as_utf8_whatever_ends_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Piped("漢\r\n b\nlast".encode()))
    assert [piped_line("> ") for _ in range(4)] == ["漢", " b", "last", None]


def test_a_pipe_that_is_not_utf8_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Piped(b"a\xff\n"))
    with pytest.raises(PromptError, match="not UTF-8 at byte 1 of a line"):
        piped_line("> ")


def test_the_end_of_typing_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", ended)
    assert typed_line("> ") is None


def test_bytes_typed_that_are_no_text_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda prompt: b"a\xff".decode("utf-8", "surrogateescape"))
    with pytest.raises(PromptError, match="not UTF-8 at character 1: type it again"):
        typed_line("> ")


def test_history_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    readline = pytest.importorskip("readline")
    file = tmp_path / "home" / "chat_history"
    with history_in(file):
        readline.add_history("first question")
    assert "first question" in file.read_text()
    assert os.stat(file).st_mode & 0o077 == 0
    with history_in(file):
        assert readline.get_current_history_length() >= 1
    assert readline.get_current_history_length() == 0


def test_a_home_that_cannot_be_written_ends_no_chat(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file, no folder")
    with history_in(tmp_path / "home" / "chat_history"):
        pass


def test_ctrl_d_waits_on_a_terminal_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the key it is: afterwards the terminal makes an end of it again."""
    pytest.importorskip("readline")
    master, slave = pty.openpty()
    with open(master, "wb", buffering=0) as keys, open(slave) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        before = termios.tcgetattr(slave)
        with keys_kept():
            keys.write(b"a\x04")
            assert os.read(slave, 10) == b"a\x04"
        assert termios.tcgetattr(slave) == before
        keys.write(b"\x04")
        assert os.read(slave, 10) == b""


def test_a_key_pressed_while_an_answer_comes_leaves_no_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there for whoever reads next, and the terminal is as it was."""
    pytest.importorskip("readline")
    master, slave = pty.openpty()
    with open(master, "r+b", buffering=0) as keys, open(slave) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        before = termios.tcgetattr(slave)
        with keys_unseen():
            keys.write(b"a\n")
            assert os.read(slave, 10) == b"a\n"
            os.write(slave, b"the answer")
            assert keys.read(10) == b"the answer"
        assert termios.tcgetattr(slave) == before


def test_without_a_line_editor_the_terminal_goes_on_making_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "readline", raising=False)
    master, slave = pty.openpty()
    with open(master, "wb", buffering=0), open(slave) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with keys_kept():
            assert termios.tcgetattr(slave)[3] & termios.ICANON
