"""JSON inside running text: where a value ends, and the fields of an object as they were written.

Fed piece by piece, one look per character. Used by the readers of calls; judges no schema.
"""

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]  # the one public way to a string's end
from typing import Any, NoReturn

_TELLING = re.compile(r"[^0-9A-Za-z+.,:\- \t\r\n]")  # between strings
_IN_STRING = re.compile(r'["\\\x00-\x1f]')
_BLANKS = re.compile(r"[ \t\n\r]*")


class JsonEnd:
    """Finds the end of an object or list. Raises ValueError where no JSON goes on like this."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_string = False
        self._skips_one = False  # a backslash ended the last piece

    def feed(self, text: str, start: int) -> int | None:
        """Position after the value in this piece; None where it goes on in the next."""
        position = start
        if self._skips_one and position < len(text):
            self._skips_one, position = False, position + 1
        if not self._depth and position < len(text) and text[position] not in "{[":
            raise ValueError("a value begins with a brace or bracket")
        while found := (_IN_STRING if self._is_string else _TELLING).search(text, position):
            position = found.end()
            if self._take(found[0]):
                self._skips_one = position == len(text)
                position += 1
            if not self._depth:
                return position
        return None

    def _take(self, letter: str) -> bool:
        """Whether the next letter means nothing."""
        if self._is_string and letter == "\\":
            return True
        if letter == '"':
            self._is_string = not self._is_string
        elif self._is_string or letter not in "{[}]":
            raise ValueError(f"{letter!r} stands in no JSON")
        else:
            self._depth += 1 if letter in "{[" else -1
        return False


def objects_in(text: str) -> list[dict[str, tuple[Any, str]]]:
    """The object, or the objects of the list, that a text is: each field with its value and its own spelling.

    Raises ValueError for anything else, also for a field that stands there twice.
    """
    try:
        found, end = _objects(text, _blanks(text, 0))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if _blanks(text, end) != len(text):
        raise ValueError("more than one value")
    return found


def _objects(text: str, start: int) -> tuple[list[dict[str, tuple[Any, str]]], int]:
    if text[start : start + 1] != "[":
        fields, end = _fields(text, start)
        return [fields], end
    found, position = [], _blanks(text, start + 1)
    while True:
        fields, position = _fields(text, position)
        found.append(fields)
        position = _blanks(text, position)
        if text[position : position + 1] != ",":
            return found, _after(text, position, "]")
        position = _blanks(text, position + 1)


def _fields(text: str, start: int) -> tuple[dict[str, tuple[Any, str]], int]:
    fields: dict[str, tuple[Any, str]] = {}
    position = _blanks(text, _after(text, start, "{"))
    if text[position : position + 1] == "}":
        return fields, position + 1
    while True:
        name, position = scanstring(text, _after(text, position, '"'))
        if name in fields:
            raise ValueError(f"{name!r} stands there twice")
        position = _blanks(text, _after(text, _blanks(text, position), ":"))
        value, end = _DECODER.raw_decode(text, position)
        fields[name] = value, text[position:end]
        position = _blanks(text, end)
        if text[position : position + 1] != ",":
            return fields, _after(text, position, "}")
        position = _blanks(text, position + 1)


def _after(text: str, position: int, wanted: str) -> int:
    if text[position : position + 1] != wanted:
        raise ValueError(f"{wanted} is missing at character {position}")
    return position + 1


def _blanks(text: str, position: int) -> int:
    found = _BLANKS.match(text, position)
    assert found is not None, "it matches nothing too"
    return found.end()


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)
