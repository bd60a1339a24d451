"""Thoughts and answers on one screen."""

import pytest

from twostroke.chat.answer import CallBegin, Content, Piece, Reasoning
from twostroke.cli.chat_screen import AnswerScreen


@pytest.mark.parametrize(
    ("pieces", "answer", "aside"),
    [
        ([], "\n", ""),
        ([Content("a"), Content("b")], "ab\n", ""),
        ([Reasoning("h"), Reasoning("m"), Content("a"), Content("b")], "ab\n", "thinking:\nhm\n\n"),
        ([Reasoning("hm")], "\n", "thinking:\nhm\n"),
        ([CallBegin(0, "f"), Content("a")], "a\n", ""),
    ],
)
def test_thoughts_are_marked_and_kept_out_of_the_answer(pieces: list[Piece], answer: str, aside: str) -> None:
    written: list[str] = []
    beside: list[str] = []
    screen = AnswerScreen(write=written.append, aside=beside.append)
    for piece in pieces:
        screen(piece)
    screen.end()
    assert ("".join(written), "".join(beside)) == (answer, aside)
