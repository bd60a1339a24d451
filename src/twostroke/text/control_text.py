"""Where control literals stand in a text.

Maps the literals of control tokens to their ids and cuts a text at them, leftmost and longest first.
Tokenizer uses it where control text is allowed; a plain encoding never comes here.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class ControlToken:
    """A control token and how it treats its neighbours, in the words of tokenizer.json.

    `lstrip` and `rstrip` swallow the white space beside it; `single_word` matches between word
    boundaries only.
    """

    token_id: int
    text: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


class ControlText:
    """The control literals of one vocabulary."""

    def __init__(self, tokens: Iterable[ControlToken]) -> None:
        self._by_text = {token.text: token for token in tokens if token.text}

    @cached_property
    def _lengths(self) -> list[int]:
        return sorted({len(text) for text in self._by_text}, reverse=True)

    @cached_property
    def _first_char(self) -> re.Pattern[str]:
        firsts = sorted({text[0] for text in self._by_text})
        return re.compile("[" + "".join(map(re.escape, firsts)) + "]" if firsts else r"(?!)")

    def id_of(self, literal: str) -> int | None:
        """The id of this literal, None if it is none."""
        token = self._by_text.get(literal)
        return token.token_id if token else None

    @property
    def literals(self) -> Iterable[str]:
        return self._by_text.keys()

    def split(self, text: str) -> list[str | int]:
        """Plain texts and control ids in order; joined they are `text`, less what a token swallows."""
        pieces: list[str | ControlToken] = []
        done = 0
        for start, token in self.matches(text):
            pieces += [text[done:start], token]
            done = start + len(token.text)
        return without_swallowed([*pieces, text[done:]])

    def matches(self, text: str) -> Iterator[tuple[int, ControlToken]]:
        """Where control literals start, leftmost and longest first, without overlap."""
        position = 0
        while found := self._first_char.search(text, position):
            start = found.start()
            token = self._longest_at(text, start)
            if token is not None:
                yield start, token
            position = start + (len(token.text) if token else 1)

    def _longest_at(self, text: str, start: int) -> ControlToken | None:
        for length in self._lengths:
            token = self._by_text.get(text[start : start + length])
            if token and not (token.single_word and _inside_word(text, start, start + length)):
                return token
        return None


def _inside_word(text: str, start: int, end: int) -> bool:
    before = text[start - 1] if start else " "
    after = text[end] if end < len(text) else " "
    return bool(re.match(r"\w", before) or re.match(r"\w", after))


def without_swallowed(pieces: Sequence[str | ControlToken]) -> list[str | int]:
    """Ids for control tokens, and the texts between them less the white space a token swallows."""
    kept: list[str | int] = []
    for index, piece in enumerate(pieces):
        if isinstance(piece, ControlToken):
            kept.append(piece.token_id)
            continue
        before = pieces[index - 1] if index else ""
        after = pieces[index + 1] if index + 1 < len(pieces) else ""
        if isinstance(before, ControlToken) and before.rstrip:
            piece = piece.lstrip()
        if isinstance(after, ControlToken) and after.lstrip:
            piece = piece.rstrip()
        if piece:
            kept.append(piece)
    return kept
