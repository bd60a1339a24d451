"""One block of calls that a grammar holds to its form: each is told from its name on, arguments as they come.

Stands in for CallBlock in an AnswerReader where calls cannot break. What the limit of tokens cuts off stays cut off.
"""

import re

from twostroke.chat.answer import CallArguments, CallBegin, Piece
from twostroke.chat.answer_format import CallFormat, CallLayout
from twostroke.chat.call_block import BrokenCallError
from twostroke.chat.json_text import JsonEnd

_BETWEEN = r"[\s\[},]*"  # what may stand before a call inside a block


class HeldBlock:
    """Everything after one opening mark, as `call_grammar` spells it."""

    def __init__(self, call_format: CallFormat, *, opening: str, index: int) -> None:
        """`index` is that of the block's first call."""
        self.opening = opening
        self.text = ""  # what belongs to no call yet
        self.num_calls = 0
        self._index = index
        self._json: JsonEnd | None = None
        self._pieces: list[Piece] = []
        is_named = call_format.layout is CallLayout.NAMED
        head = rf"([\w-]+){re.escape(call_format.after_name)}" if is_named else r'\{"name": "([\w-]+)", "\w+": '
        self._head = re.compile(_BETWEEN + head)
        is_list = call_format.layout is CallLayout.LIST
        self._ends = [mark for mark in ("" if is_named else "}", "]" if is_list else "", call_format.closing) if mark]

    @property
    def has_begun(self) -> bool:
        return self.num_calls > 0

    def taken(self) -> list[Piece]:
        """What was found since the last call."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def feed(self, text: str) -> str | None:
        """Take more text; once the block is complete, what is left of it. None: it goes on."""
        while True:
            if self._json is not None:
                rest = self._arguments(self._json, text)
                if rest is None:
                    return None
                self._json, text = None, rest
            self.text += text
            found = self._head.match(self.text)
            if found is None:
                return self._end() if self.has_begun else None
            text, self.text = self.text[found.end() :], ""
            self._pieces.append(CallBegin(self._index + self.num_calls, found[1]))
            self.num_calls += 1
            self._json = JsonEnd()

    def _arguments(self, json: JsonEnd, text: str) -> str | None:
        try:
            end = json.feed(text, 0)
        except ValueError as error:
            raise BrokenCallError(str(error)) from None
        told = text if end is None else text[:end]
        if told:
            self._pieces.append(CallArguments(self._index + self.num_calls - 1, told))
        return None if end is None else text[end:]

    def _end(self) -> str | None:
        """What is left after the marks that close the block, once they are there."""
        position = 0
        for mark in self._ends:
            rest = self.text[position:]
            word = rest.lstrip()
            if not word.startswith(mark):
                return None
            position += len(rest) - len(word) + len(mark)
        return self.text[position:]
