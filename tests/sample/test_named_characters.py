"""Names of characters, asked of the library: beside Python's tables, which may be of an older Unicode."""

import unicodedata

import pytest

from tests.sample.test_characters import holds
from twostroke.sample.named_characters import named_characters


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        (r"\d", "0123456789\u0669\u0966\U0001d7d8", "a\u00b2\u2160 _"),
        (r"\s", " \t\n\v\f\r\u0085\u00a0\u2028\u3000", "a\u200b_"),
        (r"\w", "azAZ09_\u00e9\u4e2d\u0301\U00020000", " -.\u20ac\U0001f600"),
    ],
)
def test_names_take_what_they_should(name: str, taken: str, refused: str) -> None:
    characters = named_characters(name)
    assert [letter for letter in taken if not holds(characters, ord(letter))] == []
    assert [letter for letter in refused if holds(characters, ord(letter))] == []


def test_digits_are_the_decimal_ones_of_unicode() -> None:
    known = {point for point in range(0x110000) if unicodedata.category(chr(point)) == "Nd"}
    digits = {point for first, last in named_characters(r"\d").ranges for point in range(first, last + 1)}
    assert known <= digits
    assert all(unicodedata.category(chr(point)) == "Cn" for point in digits - known), "younger than Python's tables"
