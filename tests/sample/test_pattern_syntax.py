"""Which patterns are read, and how; what they allow is judged beside llguidance in test_pattern.py."""

import pytest

from twostroke.sample.characters import Characters
from twostroke.sample.pattern_syntax import (
    MAX_DEPTH,
    MAX_RANGES,
    Chain,
    Choice,
    Node,
    Repeat,
    Unread,
    read_pattern,
)

DIGITS = Characters.of("0123456789")


def read(source: str) -> Node:
    return read_pattern(source, characters_of=lambda name: DIGITS if name == r"\d" else Characters.of(name))


def one(characters: str) -> Characters:
    return Characters.of(characters)


@pytest.mark.parametrize(
    ("source", "node"),
    [
        ("", Chain(())),
        ("ab", Chain((one("a"), one("b")))),
        ("a|b|", Choice((Chain((one("a"),)), Chain((one("b"),)), Chain(())))),
        ("|a||", Choice((Chain((one("a"),)), Chain(())))),
        ("()(|)a(){3}((){2}|)*", Chain((one("a"),))),
        ("a{0}(a{0}b){0,0}", Chain(())),
        ("^a$", Chain((one("a"),))),
        ("(a)(?:b)(?P<n>c)(?<n2>d)", Chain(tuple([Chain((one(each),)) for each in "abcd"]))),
        ("a*", Chain((Repeat(one("a"), 0, None),))),
        ("a+", Chain((Repeat(one("a"), 1, None),))),
        ("a?", Chain((Repeat(one("a"), 0, 1),))),
        ("a{3}", Chain((Repeat(one("a"), 3, 3),))),
        ("a{3,}", Chain((Repeat(one("a"), 3, None),))),
        ("a{3,5}", Chain((Repeat(one("a"), 3, 5),))),
        (".", Chain((one("\n").others(),))),
        (r"\d\D", Chain((DIGITS, DIGITS.others()))),
        (r"[\d-]", Chain((DIGITS.joined(one("-")),))),
        (r"[^\D]", Chain((DIGITS,))),
        ("[a-cx]", Chain((one("abcx"),))),
        ("[]a]", Chain((one("]a"),))),
        ("[^]a]", Chain((one("]a").others(),))),
        ("[-a]", Chain((one("-a"),))),
        ("[]-]", Chain((one("]-"),))),
        ("[a-]", Chain((one("a-"),))),
        (r"[\]\-\\]", Chain((one("]-\\"),))),
        (r"[+-\-]", Chain((one("+,-"),))),
        ("[.*+?(){}|^$]", Chain((one(".*+?(){}|^$"),))),
        (r"\x41\u0042\U00000043\x{44}\u{45}", Chain(tuple([one(each) for each in "ABCDE"]))),
        (r"\n\r\t\f\v\a", Chain(tuple([one(each) for each in "\n\r\t\f\v\a"]))),
        (r"\.\*\-\/\_", Chain(tuple([one(each) for each in ".*-/_"]))),
        ("]}", Chain((one("]"), one("}")))),
        ("é😀", Chain((one("é"), one("😀")))),
    ],
)
def test_patterns_are_read_as_they_are_meant(source: str, node: Node) -> None:
    assert read(source) == node


@pytest.mark.parametrize(
    "source",
    [
        "(?i)a",
        "(?i:a)",
        "(?x) a",
        "(?=a)",
        "(?<=a)",
        r"a\b",
        r"\Aa\z",
        r"\<a\>",
        r"\p{L}",
        r"\pL",
        r"\1",
        "a*?",
        "a+?",
        "a{2}?",
        "a**",
        "a{2}{3}",
        "a{ 2 }",
        "^a|b$",
        "a|^b",
        "a^",
        "a$b",
        "[[:alpha:]]",
        "[a-z&&[^b]]",
        "[a-c--b]",
        "[a~~b]",
        "[a-z-9]",
        "[]-a]",
        "[^]-a]",
        "[]-\n]",
        r"[\d-z]",
        r"[\pL]",
        "[a",
        "(a",
        "a)",
        "*",
        "{",
        "\\",
        r"\u{110000}",
        r"\ud800",
        "(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1),
    ],
)
def test_what_might_mean_something_else_is_left_to_the_library(source: str) -> None:
    with pytest.raises(Unread):
        read(source)


def test_sets_that_would_take_long_to_join_are_left_to_the_library() -> None:
    wide = Characters.within((2 * point + 1000, 2 * point + 1000) for point in range(800))

    def read_wide(count: int) -> Node:
        source = "".join(f"[\\w{chr(ord('a') + index)}]" for index in range(count))
        return read_pattern(source, characters_of=lambda name: wide)

    read_wide(MAX_RANGES // (3 * 800))
    with pytest.raises(Unread):
        read_wide(MAX_RANGES // 800)
