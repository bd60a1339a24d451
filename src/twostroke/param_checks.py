"""Checks of a request's fields: the range of a number, the kind of a text. Errors name field, value and limit."""

import math

from twostroke.errors import ParamsError


def check_range(name: str, value: object, low: float, high: float, *, low_open: bool = False) -> None:
    """A finite number within limits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParamsError(f"{name} is {value!r}: it must be a number", field=name)
    too_low = value <= low if low_open else value < low
    if not _is_finite(value) or too_low or value > high:
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        raise ParamsError(f"{name} is {shown}: it must be {_range(low, high, low_open=low_open)}", field=name)


def check_int(name: str, value: object, low: int, high: int | None) -> None:
    """A whole number within limits; `high` None: as large as one likes."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ParamsError(f"{name} is {value!r}: it must be a whole number", field=name)
    if value < low or (high is not None and value > high):
        limit = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ParamsError(f"{name} is {value}: it must be {limit}", field=name)


def check_texts(name: str, texts: object, *, limit: int, longest: int, why_not_empty: str) -> None:
    """A tuple of at most `limit` strings, none of them empty or of more than `longest` characters."""
    if not isinstance(texts, tuple):
        raise ParamsError(f"{name} is {texts!r}: it must be a tuple of strings", field=name)
    for text in texts:
        if not isinstance(text, str):
            raise ParamsError(f"{name} has {text!r}: each must be a string", field=name)
        if not text:
            raise ParamsError(f"{name} has an empty text: {why_not_empty}", field=name)
        if len(text) > longest:
            raise ParamsError(
                f"{name} has a text of {len(text)} characters: the limit is {longest}, shorten it", field=name
            )
    if len(texts) > limit:
        raise ParamsError(f"{name} has {len(texts)} strings: the limit is {limit}", field=name)


def _range(low: float, high: float, *, low_open: bool) -> str:
    if high == math.inf:
        return f"a finite number above {low:g}" if low_open else f"a finite number, {low:g} or more"
    return f"above {low:g} and at most {high:g}" if low_open else f"from {low:g} to {high:g}"


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False
