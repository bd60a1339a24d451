"""Cutting texts at control literals: leftmost, longest, nothing lost but what a token swallows."""

import pytest
from hypothesis import given, strategies as st

from twostroke.text.control_text import ControlText, ControlToken


def control(*literals: str, **flags: bool) -> ControlText:
    return ControlText(ControlToken(index, literal, **flags) for index, literal in enumerate(literals))


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("plain", ["plain"]),
        ("<a>", [0]),
        ("x<a>y", ["x", 0, "y"]),
        ("<a><b><a>", [0, 1, 0]),
        ("<<a>>", ["<", 0, ">"]),
        ("<a", ["<a"]),
        ("<ab>", [2]),
        ("<ab><a>b>", [2, 0, "b>"]),
        ("<a>b>c", [0, "b>c"]),
        ("][", ["]["]),
        ("[x]", [3]),
    ],
)
def test_pieces_and_ids_come_in_order(text: str, pieces: list[str | int]) -> None:
    assert control("<a>", "<b>", "<ab>", "[x]").split(text) == pieces


def test_the_longest_literal_wins_at_one_place_and_the_leftmost_overall() -> None:
    assert control("ab", "abc", "bcd").split("abcd") == [1, "d"]
    assert control("ab", "bcd").split("abcd") == [0, "cd"]


@given(st.text(alphabet="<ab>| "))
def test_joined_pieces_are_the_text(text: str) -> None:
    literals = ("<a>", "<ab>", "<|a|>", "<")
    assert "".join(p if isinstance(p, str) else literals[p] for p in control(*literals).split(text)) == text


def test_no_control_tokens_leave_a_text_whole() -> None:
    assert control().split("<a>") == ["<a>"]
    assert control("").split("<a>") == ["<a>"]


@pytest.mark.parametrize(
    ("flags", "pieces"),
    [
        ({}, ["x \n", 0, "\t y ", 0]),
        ({"lstrip": True}, ["x", 0, "\t y", 0]),
        ({"rstrip": True}, ["x \n", 0, "y ", 0]),
        ({"lstrip": True, "rstrip": True}, ["x", 0, "y", 0]),
    ],
)
def test_a_token_swallows_the_space_it_says(flags: dict[str, bool], pieces: list[str | int]) -> None:
    assert control("<a>", **flags).split("x \n<a>\t y <a>") == pieces


def test_a_single_word_token_stands_between_word_boundaries() -> None:
    assert control("abc", single_word=True).split("abc abcd xabc abc, abc") == [0, " abcd xabc ", 0, ", ", 0]


def test_literals_can_be_looked_up() -> None:
    assert control("<a>", "<b>").id_of("<b>") == 1
    assert control("<a>").id_of("<c>") is None
