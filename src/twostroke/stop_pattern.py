"""Regular expressions that end an answer, as automata of characters (Glushkov 1961): nothing is ever tried twice.

`params.py` checks patterns with `compile_pattern`, `sample/stop.py` follows them through an answer. A character costs
at most one look at each position of the pattern, MAX_POSITIONS in all, whatever pattern and text are: a hostile one
cannot hold a step up, as it could in an engine that backtracks. What would need backtracking is refused by name.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from twostroke.errors import ParamsError

MAX_CHARACTERS = 512
MAX_POSITIONS = 64  # of all patterns of a request: some 25 microseconds a character where all are open at once
MAX_DEPTH = 32  # of groups
QUANTIFIER = re.compile(r"[*+?]|\{(\d*)(,?)(\d*)\}")
ESCAPE = re.compile(r"\\(?:[dDwWsSnrtfva]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[^0-9A-Za-z])", re.DOTALL)
SET = re.compile(r"\[\^?\]?(?:\\.|[^\]\\\[])*\]", re.DOTALL)
FLAGS = re.compile(r"\(\?([is]+)\)")
# Characters that look like one thing and mean another to Python, today or soon.
AMBIGUOUS_IN_SET = re.compile(r"--|&&|~~|\|\|")


@dataclass(frozen=True, slots=True)
class StopPattern:
    """One pattern. Its positions are bits: each is a place in the pattern that takes one character."""

    source: str
    atoms: tuple[re.Pattern[str], ...]  # per position, what it takes: one character, so nothing to backtrack
    first: int  # positions a match may begin with
    last: int  # positions a match may end with
    follow: tuple[int, ...]  # per position, those that may come next

    def taking(self, character: str) -> int:
        """Positions that take this character."""
        return sum(1 << index for index, atom in enumerate(self.atoms) if atom.fullmatch(character))


def compile_patterns(sources: Iterable[str]) -> tuple[StopPattern, ...]:
    """Patterns of one request. Raises ParamsError that names the pattern and what is wrong with it."""
    patterns = tuple([compile_pattern(source) for source in sources])
    num_positions = sum(len(pattern.atoms) for pattern in patterns)
    if num_positions > MAX_POSITIONS:
        raise ParamsError(
            f"stop_regex has patterns of {num_positions} positions together: the limit is {MAX_POSITIONS}, use fewer",
            field="stop_regex",
        )
    return patterns


def compile_pattern(source: str) -> StopPattern:
    """In Python's syntax, without what looks around, back or at borders. Raises ParamsError."""
    if len(source) > MAX_CHARACTERS:
        raise ParamsError(
            f"stop_regex has a pattern of {len(source)} characters: the limit is {MAX_CHARACTERS}", field="stop_regex"
        )
    parser = _Parser(source)
    node = parser.parse()
    size = _size(node)
    if size > MAX_POSITIONS:
        raise parser.refused(f"with its repetitions written out it has {size} positions, the limit is {MAX_POSITIONS}")
    automaton = _Automaton(flags=parser.flags)
    part = automaton.add(node)
    if part.is_optional:
        raise parser.refused("it matches the empty text, every answer would end at once")
    return StopPattern(source, tuple(automaton.atoms), part.first, part.last, tuple(automaton.follow))


@dataclass(frozen=True, slots=True)
class _Atom:
    """What takes one character, in Python's notation."""

    source: str


@dataclass(frozen=True, slots=True)
class _Chain:
    parts: "tuple[_Node, ...]"


@dataclass(frozen=True, slots=True)
class _Choice:
    parts: "tuple[_Node, ...]"


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: "_Node"
    least: int
    most: int | None


_Node = _Atom | _Chain | _Choice | _Repeat
_NOTHING = _Chain(())


class _Parser:
    """Finds where each part of a pattern ends; what a set of characters means is Python's business."""

    def __init__(self, source: str) -> None:
        self.flags = 0
        self._source = source
        self._at = 0
        found = FLAGS.match(source)
        if found:
            self._at = found.end()
            self.flags = sum({"i": re.IGNORECASE, "s": re.DOTALL}[flag] for flag in sorted(set(found[1])))

    def refused(self, problem: str) -> ParamsError:
        shown = self._source if len(self._source) <= 60 else f"{self._source[:57]}..."
        return ParamsError(f"stop_regex has {shown!r}: {problem}", field="stop_regex")

    def parse(self) -> _Node:
        node = self._choice(0)
        if self._at < len(self._source):
            raise self.refused(f"a ) at character {self._at} closes nothing")
        return node

    @property
    def _next(self) -> str:
        return self._source[self._at : self._at + 1]

    def _choice(self, depth: int) -> _Node:
        if depth > MAX_DEPTH:
            raise self.refused(f"groups are nested more than {MAX_DEPTH} deep")
        parts = [self._chain(depth)]
        while self._next == "|":
            self._at += 1
            parts.append(self._chain(depth))
        return parts[0] if len(parts) == 1 else _Choice(tuple(parts))

    def _chain(self, depth: int) -> _Node:
        parts: list[_Node] = []
        while self._next and self._next not in "|)":
            parts.append(self._repeated(self._group(depth) if self._next == "(" else self._atom()))
        return _Chain(tuple(parts))

    def _group(self, depth: int) -> _Node:
        start = self._at
        self._at += 1
        if self._next == "?":
            if not self._source.startswith("?:", self._at):
                raise self.refused(f"(? at character {start} is more than a group: of these only (?:...) is known here")
            self._at += 2
        node = self._choice(depth + 1)
        if self._next != ")":
            raise self.refused(f"the ( at character {start} is not closed")
        self._at += 1
        return node

    def _atom(self) -> _Node:
        start, kind = self._at, self._next
        if kind in "^$":
            raise self.refused(f"{kind} at character {start} takes no character: write \\n for the border of a line")
        if kind in "*+?":
            raise self.refused(f"{kind} at character {start} repeats nothing")
        found = {"\\": ESCAPE, "[": SET}[kind].match(self._source, start) if kind in "\\[" else None
        if kind == "\\" and found is None:
            raise self.refused(f"{self._source[start : start + 2]} at character {start} takes no character of its own")
        if kind == "[" and (found is None or AMBIGUOUS_IN_SET.search(found[0])):
            raise self.refused(f"the set at character {start} is not closed, or has [, --, &&, ~~ or || without a \\")
        self._at = start + 1 if found is None else found.end()
        source = self._source[start : self._at]
        return _Atom(re.escape(source) if found is None and source != "." else source)

    def _repeated(self, part: _Node) -> _Node:
        found = QUANTIFIER.match(self._source, self._at)
        if found is None or found[0] in ("{}", "{,}"):  # the last two are plain text to Python
            return part
        self._at = found.end()
        if self._next == "+" or (self._next and self._next in "*{" and QUANTIFIER.match(self._source, self._at)):
            raise self.refused(f"{self._next} at character {self._at} repeats a repetition")
        if self._next == "?":
            self._at += 1  # as few as may be: the first match to end counts anyway
        if _size(part) == 0:
            return _NOTHING
        least, most = bounds(found)
        if most is not None and most < least:
            raise self.refused(f"{found[0]} asks for at least {least} and at most {most}")
        return _Repeat(part, least, most)


def bounds(found: re.Match[str]) -> tuple[int, int | None]:
    """Fewest and most repetitions a quantifier asks for; None is without end. Groups: fewest, a comma, most."""
    if found[0] in "*+?":
        return int(found[0] == "+"), 1 if found[0] == "?" else None
    least = int(found[1] or 0)
    if not found[2]:
        return least, least
    return least, int(found[3]) if found[3] else None


def _size(node: _Node) -> int:
    """Positions of the automaton, counted before any is made: repetitions are copies."""
    match node:
        case _Atom():
            return 1
        case _Repeat(part, least, most):
            return _size(part) * (max(least, 1) if most is None else most)
        case _Chain(parts) | _Choice(parts):
            return sum(map(_size, parts))


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the automaton: whether it may be left out, where it begins and where it ends."""

    is_optional: bool
    first: int
    last: int


@dataclass(slots=True)
class _Automaton:
    """Grows one position at a time."""

    flags: int
    atoms: list[re.Pattern[str]] = field(default_factory=list)
    follow: list[int] = field(default_factory=list)

    def add(self, node: _Node) -> _Part:
        match node:
            case _Atom(source):
                return self._add_atom(source)
            case _Chain(parts):
                return self._add_chain(parts)
            case _Choice(parts):
                return self._add_choice(parts)
            case _Repeat(part, least, most):
                return self._add_repeat(part, least, most)

    def _add_atom(self, source: str) -> _Part:
        self.atoms.append(_compiled(source, self.flags))
        self.follow.append(0)
        bit = 1 << (len(self.atoms) - 1)
        return _Part(is_optional=False, first=bit, last=bit)

    def _add_chain(self, parts: Iterable[_Node]) -> _Part:
        whole = _Part(is_optional=True, first=0, last=0)
        for node in parts:
            whole = self._joined(whole, self.add(node))
        return whole

    def _add_choice(self, parts: Iterable[_Node]) -> _Part:
        is_optional, first, last = False, 0, 0
        for each in map(self.add, parts):
            is_optional, first, last = is_optional or each.is_optional, first | each.first, last | each.last
        return _Part(is_optional, first, last)

    def _add_repeat(self, node: _Node, least: int, most: int | None) -> _Part:
        whole = _Part(is_optional=True, first=0, last=0)
        for index in range(max(least, 1) if most is None else most):
            part = self.add(node)
            if most is None and index == max(least, 1) - 1:
                self._link(part.last, part.first)
            whole = self._joined(whole, part if index < least else _Part(True, part.first, part.last))
        return whole

    def _joined(self, before: _Part, behind: _Part) -> _Part:
        self._link(before.last, behind.first)
        return _Part(
            is_optional=before.is_optional and behind.is_optional,
            first=before.first | (behind.first if before.is_optional else 0),
            last=behind.last | (before.last if behind.is_optional else 0),
        )

    def _link(self, last: int, first: int) -> None:
        for index in range(len(self.follow)):
            if last >> index & 1:
                self.follow[index] |= first


def _compiled(source: str, flags: int) -> re.Pattern[str]:
    try:
        return re.compile(source, flags)
    except re.error as error:
        raise ParamsError(f"stop_regex has {source!r}: {error.msg}", field="stop_regex") from None
