"""One block of calls in an answer's text: where it ends, and the calls it holds.

Fed by AnswerReader with what follows an opening mark. A block is calls from its first letter to its last, or it is
none: nothing is repaired, nothing left out.
"""

import re
from collections.abc import Collection
from typing import Any

from twostroke.chat.answer import CallArguments, CallBegin, Piece, ToolCall
from twostroke.chat.answer_format import CallFormat, CallLayout
from twostroke.chat.json_text import JsonEnd, objects_in

MAX_NAME = 64  # OpenAI's limit for the name of a function
MAX_BLANKS = 256  # between a call and the mark that closes it: who waits for it must not wait for ever
_BLANK = re.compile(r"\s*")
_OTHER_KEYS = frozenset(("name", "id", "type"))  # beside the arguments: what some models write and nobody needs
_ARGUMENT_KEYS = ("arguments", "parameters")


class BrokenCallError(ValueError):
    """What follows the mark is no call."""


class CallBlock:
    """Everything after one opening mark. `feed` raises BrokenCallError as soon as it can be no call."""

    def __init__(self, call_format: CallFormat, *, names: Collection[str], opening: str, index: int) -> None:
        """`names` are functions that may be called, `opening` the mark before, if one was, `index` the first call's."""
        self.opening = opening
        self._format = call_format
        self._names = names
        self._text: list[str] = []
        self._marks = [("name", call_format.after_name)] if call_format.layout is CallLayout.NAMED else []
        self._marks += [("json", "")] + ([("closing", call_format.closing)] if call_format.closing else [])
        self._json = JsonEnd()
        self._has_value = False
        self._partial = ""  # of the mark that is looked for, and blanks before it
        self.num_calls = 0
        self._index = index
        self._pieces: list[Piece] = []

    @property
    def text(self) -> str:
        """All that was fed."""
        return "".join(self._text)

    @property
    def has_begun(self) -> bool:
        """Whether a call of it was told."""
        return self.num_calls > 0

    def taken(self) -> list[Piece]:
        """Its calls, once it is complete."""
        return self._pieces

    def feed(self, text: str) -> str | None:
        """Take more text; once the block is complete, what is left of it. None: it goes on."""
        self._text.append(text)
        position = 0
        while self._marks:
            kind, mark = self._marks[0]
            end = self._json_end(text, position) if kind == "json" else self._mark_end(text, position, mark)
            if end is None:
                return None
            position = end
            self._marks.pop(0)
        rest = text[position:]
        whole = self.text
        for index, call in enumerate(self._read(whole[: len(whole) - len(rest)]), start=self._index):
            self._pieces += [CallBegin(index, call.name), CallArguments(index, call.arguments)]
            self.num_calls += 1
        return rest

    def _json_end(self, text: str, position: int) -> int | None:
        if not self._has_value:
            position = _after_blanks(text, position)
            if position == len(text):
                return None
            self._has_value = True
        try:
            return self._json.feed(text, position)
        except ValueError as error:
            raise BrokenCallError(str(error)) from None

    def _mark_end(self, text: str, position: int, mark: str) -> int | None:
        """After a mark that follows blanks, or a name."""
        seen = self._partial + text[position:]
        found = seen.find(mark)
        before = seen if found < 0 else seen[:found]
        word = before.strip()
        num_blanks = len(before) - len(word)
        if self._marks[0][0] == "name":
            could_be = len(word) <= MAX_NAME + (len(mark) if found < 0 else 0)
        else:
            could_be = mark.startswith(word) if found < 0 else not word
        if not could_be or num_blanks > MAX_BLANKS:
            raise BrokenCallError(f"{mark} is missing")
        if found < 0:
            self._partial = seen
            return None
        end = found + len(mark) - len(self._partial) + position
        self._partial = ""
        return end

    def _read(self, block: str) -> tuple[ToolCall, ...]:
        layout = self._format.layout
        try:
            if layout is CallLayout.NAMED:
                name, _, value = block.partition(self._format.after_name)
                return (self._named(name.strip(), value),)
            return tuple(map(self._call, objects_in(block.removesuffix(self._format.closing))))
        except ValueError as error:
            raise BrokenCallError(str(error)) from None

    def _named(self, name: str, value: str) -> ToolCall:
        value = value.strip()
        if len(objects_in(value)) != 1 or value[:1] != "{":
            raise BrokenCallError("the arguments are no object")
        return ToolCall(self._known(name), value)

    def _call(self, fields: dict[str, tuple[Any, str]]) -> ToolCall:
        given = [key for key in _ARGUMENT_KEYS if key in fields]
        if "name" not in fields or len(given) > 1 or fields.keys() - {*_OTHER_KEYS, *given}:
            raise BrokenCallError("a call has a name and arguments")
        value, text = fields[given[0]] if given else ({}, "{}")
        if isinstance(value, str):  # arguments as OpenAI writes them: an object inside a text
            text = value.strip()
            if text[:1] != "{":
                raise BrokenCallError("the arguments are no object")
            objects_in(text)
        elif not isinstance(value, dict):
            raise BrokenCallError("the arguments are no object")
        return ToolCall(self._known(fields["name"][0]), text)

    def _known(self, name: object) -> str:
        if not isinstance(name, str) or name not in self._names:
            raise BrokenCallError("no such function was offered")
        return name


def _after_blanks(text: str, position: int) -> int:
    found = _BLANK.match(text, position)
    assert found is not None, "it matches nothing too"
    return found.end()
