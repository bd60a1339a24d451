"""Tells control literals a template writes from the same letters typed by a user.

Constants of a template are rewritten when it is compiled: letters of control literals become lone
surrogates, which no user text can hold because they are replaced before. After rendering, marked
letters that spell a literal are its token; everything else is plain text. Used by ChatTemplate only.
"""

import re
from functools import cached_property
from typing import Any, Self, SupportsIndex

from jinja2 import nodes

from twostroke.errors import ChatTemplateError
from twostroke.text.control_text import ControlText, ControlToken, without_swallowed

_FIRST_MARK = 0xD800
_MAX_LETTERS = 0x7FF  # lone surrogates there are, less the cut mark
MAX_LITERAL = 1000  # characters of a control token; all its beginnings and ends are kept
CUT_MARK = "\udfff"  # where an unfinished message ends
_MARKED = re.compile("[\ud800-\udffe]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ASKING_METHODS = frozenset(
    (
        *("split", "rsplit", "startswith", "endswith", "find", "rfind", "index", "rindex", "count", "get"),
        *("strip", "lstrip", "rstrip", "partition", "rpartition", "removeprefix", "removesuffix"),
    )
)


def without_marks(text: str) -> str:
    """Outside text made safe: lone surrogates become U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


class MarkTable:
    """Marks for the letters of one vocabulary's control literals.

    Raises ChatTemplateError where there are more letters than marks, or a literal is absurdly long.
    """

    def __init__(self, control: ControlText) -> None:
        self._control = control
        longest = max(map(len, control.literals), default=0)
        if longest > MAX_LITERAL:
            raise ChatTemplateError(f"the vocabulary has a control token of {longest} characters: limit {MAX_LITERAL}")
        letters = sorted({letter for literal in control.literals for letter in literal})
        if len(letters) > _MAX_LETTERS:
            raise ChatTemplateError(
                f"the vocabulary's control tokens are spelt with {len(letters)} different characters: "
                f"limit {_MAX_LETTERS}"
            )
        self._to_mark = {ord(letter): _FIRST_MARK + index for index, letter in enumerate(letters)}
        self._to_letter = {mark: letter for letter, mark in self._to_mark.items()} | {ord(CUT_MARK): None}
        self._max_length = longest

    @cached_property
    def _heads(self) -> frozenset[str]:
        return frozenset(text[:end] for text in self._control.literals for end in range(1, len(text)))

    @cached_property
    def _tails(self) -> frozenset[str]:
        return frozenset(text[start:] for text in self._control.literals for start in range(1, len(text)))

    def mark_all(self, text: str) -> str:
        """Every letter marked that has a mark."""
        return text.translate(self._to_mark)

    def mark(self, text: str) -> str:
        """Whole control literals marked, and at both ends parts that a neighbour may complete."""
        marked, done = [], 0
        for start, token in self._control.matches(text):
            end = start + len(token.text)
            marked += [text[done:start], self.mark_all(text[start:end])]
            done = end
        marked.append(self._mark_tail(text[done:]))
        marked[0] = self._mark_head(marked[0])
        return "".join(marked)

    def _mark_head(self, text: str) -> str:
        for length in range(min(self._max_length, len(text)), 0, -1):
            if text[:length] in self._tails:
                return self.mark_all(text[:length]) + text[length:]
        return text

    def _mark_tail(self, text: str) -> str:
        for length in range(min(self._max_length, len(text)), 0, -1):
            if text[-length:] in self._heads:
                return text[:-length] + self.mark_all(text[-length:])
        return text

    def unmark(self, text: str) -> str:
        """The text as people read it."""
        return text.translate(self._to_letter)

    def split(self, marked: str) -> list[str | int]:
        """Plain texts and control ids of a rendered text, in order."""
        pieces: list[str | ControlToken] = [""]
        done = 0
        for run in _MARKED.finditer(marked):
            _append(pieces, marked[done : run.start()])
            self._split_run(self.unmark(run[0]), pieces)
            done = run.end()
        _append(pieces, marked[done:])
        return without_swallowed(pieces)

    def _split_run(self, run: str, pieces: list[str | ControlToken]) -> None:
        done = 0
        for start, token in self._control.matches(run):
            _append(pieces, run[done:start])
            pieces.append(token)
            done = start + len(token.text)
        _append(pieces, run[done:])


def _append(pieces: list[str | ControlToken], text: str) -> None:
    """Join neighbouring plain texts: a tokenizer must see them whole."""
    if not text:
        return
    if isinstance(pieces[-1], str):
        pieces[-1] += text
    else:
        pieces.append(text)


class MarkedText(str):
    """A string that compares as typed and is written marked: known roles and BOS or EOS literals.

    Templates build control literals from roles ('<|' + role + '|>') and also compare roles with plain
    strings; this serves both.
    """

    __slots__ = ("marked",)
    marked: str

    def __new__(cls, text: str, *, marked: str) -> Self:
        self = super().__new__(cls, text)
        self.marked = marked
        return self

    def __str__(self) -> str:
        return self.marked

    def __add__(self, other: str) -> str:
        return self.marked + str(other)

    def __radd__(self, other: str) -> str:
        return str(other) + self.marked

    def __mul__(self, count: SupportsIndex) -> str:
        return self.marked * count

    def __format__(self, specification: str) -> str:
        return format(self.marked, specification)


class ConstantMarker:
    """Rewrites the constants of a parsed template that may be written out.

    Constants a template only asks about (comparisons, tests, arguments of split, startswith, ...) stay
    plain, so they match what users typed.
    """

    def __init__(self, table: MarkTable) -> None:
        self._table = table

    def rewrite(self, node: nodes.Node, *, is_written: bool = True) -> None:
        """Mark constants below this node in place."""
        if is_written and isinstance(node, nodes.TemplateData):
            node.data = self._table.mark(node.data)
        elif is_written and isinstance(node, nodes.Const) and isinstance(node.value, str):
            node.value = self._table.mark(node.value)
        elif isinstance(node, nodes.Compare | nodes.Test):
            is_written = False
        for name, value in node.iter_fields():
            self._rewrite_field(value, is_written and not _only_asks(node, name))

    def _rewrite_field(self, value: Any, is_written: bool) -> None:
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, nodes.Node):
                self.rewrite(item, is_written=is_written)


def _only_asks(node: nodes.Node, field: str) -> bool:
    """Whether this field of the node is looked at and never written."""
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
        return field == "args" and node.node.attr in _ASKING_METHODS
    if isinstance(node, nodes.Getitem):
        return field == "arg"
    if isinstance(node, nodes.Pair):
        return field == "key"
    return isinstance(node, nodes.For | nodes.If | nodes.CondExpr) and field == "test"
