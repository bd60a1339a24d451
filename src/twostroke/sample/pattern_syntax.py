"""Reads regular expressions in Rust's syntax, which is llguidance's: the part of it that has one meaning everywhere.

What takes a character is a set of characters. Flags, borders, lazy repetitions, sets of sets and names of Unicode
properties are not read here: `Unread` says so, and the library follows such a pattern itself. It has judged every
pattern before, so what is broken never comes here.
"""

import re
import string
from collections.abc import Callable
from dataclasses import dataclass

from twostroke.sample.characters import LAST, Characters
from twostroke.stop_pattern import bounds

MAX_DEPTH = 32  # of groups
MAX_RANGES = 10_000  # of characters, in all sets while they grow: some 20 ms
QUANTIFIER = re.compile(r"[*+?]|\{(\d+)(,?)(\d*)\}")
GROUP = re.compile(r"\((?:\?(?::|P?<[A-Za-z_]\w*>))?", re.ASCII)
CODE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|[xuU]\{([0-9a-fA-F]{1,8})\})")
SET = re.compile(r"\[(\^?)(\]?(?:\\.|[^\]\\\[])*)\]", re.DOTALL)
LEADING_BRACKET = re.compile(r"\]-.", re.DOTALL)  # is a character and begins no range
SET_OF_SETS = re.compile(r"--|&&|~~")
CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a"}
ESCAPED = {*string.punctuation} - {"<", ">"}  # those two are borders of words


class Unread(Exception):
    """A pattern that is left to the library."""


@dataclass(frozen=True, slots=True)
class Chain:
    """One part behind the other."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    """Any one part."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """The part again and again; without `most` there is no end."""

    part: "Node"
    least: int
    most: int | None


Node = Characters | Chain | Choice | Repeat
NOTHING = Chain(())  # the empty text


def read_pattern(source: str, *, characters_of: Callable[[str], Characters]) -> Node:
    r"""The pattern of a whole answer; `characters_of` says what `\d`, `\s` and `\w` are. Raises Unread."""
    return _Reader(source, characters_of).read()


class _Reader:
    def __init__(self, source: str, characters_of: Callable[[str], Characters]) -> None:
        self._source = source
        self._characters_of = characters_of
        self._at = 0
        self._has_border = False
        self._has_choice = False
        self._num_ranges = 0  # of sets that were made

    def read(self) -> Node:
        node = self._choice(0)
        if self._at < len(self._source) or (self._has_border and self._has_choice):
            raise Unread
        return node

    @property
    def _next(self) -> str:
        return self._source[self._at : self._at + 1]

    def _choice(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise Unread
        parts = [self._chain(depth)]
        while self._next == "|":
            self._at += 1
            self._has_choice = self._has_choice or depth == 0
            parts.append(self._chain(depth))
        some = [part for part in parts if part != NOTHING]
        if len(some) < len(parts):
            some.append(NOTHING)
        return some[0] if len(some) == 1 else Choice(tuple(some))

    def _chain(self, depth: int) -> Node:
        parts: list[Node] = []
        while self._next and self._next not in "|)":
            if self._is_border():
                self._has_border = True
                self._at += 1
            else:
                parts.append(self._repeated(self._group(depth) if self._next == "(" else self._characters()))
        return Chain(tuple([part for part in parts if part != NOTHING]))

    def _is_border(self) -> bool:
        """`^` before everything or `$` behind it: a pattern is of the whole answer anyway."""
        first, last = self._at == 0, self._at == len(self._source) - 1
        return (self._next == "^" and first) or (self._next == "$" and last)

    def _group(self, depth: int) -> Node:
        found = GROUP.match(self._source, self._at)
        assert found is not None, "it begins with a ("
        self._at = found.end()
        if self._next == "?":
            raise Unread
        node = self._choice(depth + 1)
        if self._next != ")":
            raise Unread
        self._at += 1
        return node

    def _repeated(self, node: Node) -> Node:
        found = QUANTIFIER.match(self._source, self._at)
        if found is None:
            return node
        self._at = found.end()  # what repeats a repetition, or makes it a lazy one, takes no character
        repeat = Repeat(node, *bounds(found))
        return NOTHING if node == NOTHING or repeat.most == 0 else repeat

    def _characters(self) -> Characters:
        if self._next == "[":
            return self._set()
        if self._next == "\\":
            return self._escaped()
        character = self._next
        if character in "*+?{^$":
            raise Unread
        self._at += 1
        return Characters.of("\n").others() if character == "." else Characters.of([character])

    def _escaped(self) -> Characters:
        r"""What a `\` begins."""
        letter = self._source[self._at + 1 : self._at + 2]
        if letter and letter in "dswDSW":
            self._at += 2
            named = self._characters_of(f"\\{letter.lower()}")
            return named if letter.islower() else self._made(named.others())
        return Characters.of(self._escaped_character())

    def _made(self, characters: Characters) -> Characters:
        self._num_ranges += len(characters.ranges)
        if self._num_ranges > MAX_RANGES:
            raise Unread
        return characters

    def _escaped_character(self) -> str:
        letter = self._source[self._at + 1 : self._at + 2]
        code = CODE.match(self._source, self._at)
        if code is not None:
            self._at = code.end()
            number = int(next(filter(None, code.groups())), 16)
            if number > LAST or 0xD800 <= number < 0xE000:
                raise Unread
            return chr(number)
        self._at += 2
        if letter in CONTROLS:
            return CONTROLS[letter]
        if letter not in ESCAPED:
            raise Unread
        return letter

    def _set(self) -> Characters:
        found = SET.match(self._source, self._at)
        if found is None or SET_OF_SETS.search(found[2]) or LEADING_BRACKET.match(found[2]):
            raise Unread
        start, end = found.span(2)
        self._at, wanted = start, Characters()
        while self._at < end:
            wanted = self._made(wanted.joined(self._set_part(start, end)))
        self._at = found.end()
        return self._made(wanted.others()) if found[1] else wanted

    def _set_part(self, start: int, end: int) -> Characters:
        """A character, a range of them or what a letter stands for."""
        if self._next == "-" and start < self._at < end - 1:
            raise Unread
        if self._source[self._at : self._at + 2].lower() in ("\\d", "\\s", "\\w"):
            return self._escaped()
        first = self._set_character()
        if self._next != "-" or self._at >= end - 1:
            return Characters.of(first)
        self._at += 1
        last = self._set_character()
        return Characters.within([(ord(first), ord(last))])

    def _set_character(self) -> str:
        if self._next == "\\":
            return self._escaped_character()
        self._at += 1
        return self._source[self._at - 1]
