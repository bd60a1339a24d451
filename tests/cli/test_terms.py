"""Terms are accepted by a typed yes or by a flag; nobody there means no."""

import io
import os
import pty
import sys
from collections.abc import Callable

import pytest

from tests.view.test_terminal import terminal_of, written
from twostroke.cli.terms import ask_terms
from twostroke.config import resolve
from twostroke.model.terms import Terms
from twostroke.view.terminal import Terminal

TERMS = Terms(model="m:1b", title="M Terms", address="m.example/terms", text="Be kind.\n\x1b[2JNo harm.")


def type_answer(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, *, then: Callable[[], None] = lambda: None
) -> tuple[bool, str]:
    """Whether the terms count as accepted after typing `answer`, and what was shown."""
    keyboard, typed = pty.openpty()
    with terminal_of(80) as (stream, master), open(typed, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        os.write(keyboard, answer)
        ask = ask_terms(Terminal.of(stream, resolve({})), before=then)
        assert callable(ask)
        accepted = ask(TERMS)
        shown = written(stream, master).decode()
    os.close(keyboard)
    return accepted, shown


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [(b"yes\n", True), (b" YES \n", True), (b"y\n", False), (b"no\n", False), (b"\n", False), (b"\x04", False)],
)
def test_only_a_typed_yes_accepts(monkeypatch: pytest.MonkeyPatch, answer: bytes, accepted: bool) -> None:
    assert type_answer(monkeypatch, answer)[0] is accepted


def test_the_whole_terms_are_shown_and_cannot_drive_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    _, shown = type_answer(monkeypatch, b"no\n", then=lambda: calls.append("line ended"))
    assert calls == ["line ended"]
    assert "Be kind.\r\n\\x1b[2JNo harm." in shown
    assert "m:1b is provided under the M Terms (m.example/terms)." in shown


def test_ctrl_d_leaves_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type_answer(monkeypatch, b"\x04")[1].endswith("Type yes: \r\n")


def test_nobody_at_the_terminal_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    with terminal_of(80) as (stream, _):
        assert ask_terms(Terminal.of(stream, resolve({})), before=lambda: None) is False


def test_a_log_cannot_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask_terms(Terminal.of(io.StringIO(), resolve({})), before=lambda: None) is False
