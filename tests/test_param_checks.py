"""Checks of single fields: what passes, and errors that name field, value and limit."""

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from twostroke.errors import ParamsError
from twostroke.param_checks import check_int, check_range, check_texts


def problem(check: Any, *arguments: Any, **more: Any) -> str:
    with pytest.raises(ParamsError) as caught:
        check("x", *arguments, **more)
    assert caught.value.field == "x"
    return str(caught.value)


@pytest.mark.parametrize("value", [0, 0.0, -0.0, 1, 1.0, 0.5, 5e-324])
def test_numbers_within_a_range_pass_limits_included(value: float) -> None:
    check_range("x", value, 0.0, 1.0)


@pytest.mark.parametrize(
    ("value", "limits", "words"),
    [
        (-0.1, (0.0, 1.0), "x is -0.1: it must be from 0 to 1"),
        (2, (0.0, 1.0), "x is 2: it must be from 0 to 1"),
        (1.0000000000000002, (0.0, 1.0), "x is 1: it must be from 0 to 1"),
        (math.nan, (0.0, 1.0), "x is nan: it must be from 0 to 1"),
        (math.inf, (0.0, math.inf), "x is inf: it must be a finite number, 0 or more"),
        (-math.inf, (0.0, math.inf), "x is -inf: it must be a finite number, 0 or more"),
        (-3, (0.5, math.inf), "x is -3: it must be a finite number, 0.5 or more"),
    ],
)
def test_numbers_outside_are_told_with_their_limits(value: float, limits: tuple[float, float], words: str) -> None:
    assert problem(check_range, value, *limits) == words


@pytest.mark.parametrize(
    ("value", "high", "words"),
    [
        (0.0, 1.0, "x is 0: it must be above 0 and at most 1"),
        (-0.0, 1.0, "x is -0: it must be above 0 and at most 1"),
        (0, math.inf, "x is 0: it must be a finite number above 0"),
    ],
)
def test_an_open_limit_is_no_value(value: float, high: float, words: str) -> None:
    assert problem(check_range, value, 0.0, high, low_open=True) == words
    check_range("x", 5e-324, 0.0, high, low_open=True)


def test_a_whole_number_beyond_every_float_is_told_whole() -> None:
    huge = 10**400
    assert problem(check_range, huge, 0.0, math.inf) == f"x is {huge}: it must be a finite number, 0 or more"


@pytest.mark.parametrize("value", [True, False, "1", None, [], 1j])
def test_what_is_no_number_is_told_as_it_was_written(value: object) -> None:
    assert problem(check_range, value, 0.0, 1.0) == f"x is {value!r}: it must be a number"
    assert problem(check_int, value, 0, 1) == f"x is {value!r}: it must be a whole number"


@given(low=st.floats(-1e6, 1e6), width=st.floats(0, 1e6), value=st.floats(allow_nan=True))
def test_a_range_takes_what_lies_in_it_and_nothing_else(low: float, width: float, value: float) -> None:
    for low_open in (False, True):
        lies_in = (low < value if low_open else low <= value) and value <= low + width
        if lies_in:
            check_range("x", value, low, low + width, low_open=low_open)
        else:
            assert problem(check_range, value, low, low + width, low_open=low_open).startswith("x is ")


@pytest.mark.parametrize(
    ("value", "limits", "words"),
    [
        (-1, (0, 5), "x is -1: it must be from 0 to 5"),
        (6, (0, 5), "x is 6: it must be from 0 to 5"),
        (0, (1, None), "x is 0: it must be at least 1"),
    ],
)
def test_whole_numbers_outside_are_told_with_their_limits(
    value: int, limits: tuple[int, int | None], words: str
) -> None:
    assert problem(check_int, value, *limits) == words


def test_whole_numbers_within_pass_and_floats_never() -> None:
    for value in (0, 5):
        check_int("x", value, 0, 5)
    check_int("x", 10**400, 0, None)
    assert problem(check_int, 1.0, 0, 5) == "x is 1.0: it must be a whole number"


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["a"], "x is ['a']: it must be a tuple of strings"),
        ("ab", "x is 'ab': it must be a tuple of strings"),
        ((1,), "x has 1: each must be a string"),
        ((b"a",), "x has b'a': each must be a string"),
        (("a", ""), "x has an empty text: it would end nothing"),
        (("abcd",), "x has a text of 4 characters: the limit is 3, shorten it"),
        (("a", "b", "c"), "x has 3 strings: the limit is 2"),
    ],
)
def test_texts_are_refused_by_what_is_wrong_with_them(texts: object, words: str) -> None:
    assert problem(check_texts, texts, limit=2, longest=3, why_not_empty="it would end nothing") == words


def test_texts_within_their_limits_pass() -> None:
    for texts in ((), ("a",), ("abc", "abc")):
        check_texts("x", texts, limit=2, longest=3, why_not_empty="")
