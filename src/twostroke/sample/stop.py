"""Stop strings and patterns in streamed text. Fed by the engine piece by piece; never looks at tokens.

What could still become a match is held back, nothing more. The match that ends first wins, and of those that end
together the longest: so the pieces' borders change neither the text nor the match.
"""

from collections.abc import Sequence
from typing import Protocol

from twostroke.stop_pattern import StopPattern


class StopMatcher:
    """Follows every stop string and pattern at once, character by character."""

    def __init__(
        self, stops: Sequence[str], patterns: Sequence[StopPattern] = (), *, includes_match: bool = False
    ) -> None:
        """`includes_match` shows the match too; then nothing has to be held back."""
        self._followers: tuple[_Follower, ...] = (*map(_StringFollower, stops), *map(_PatternFollower, patterns))
        self._includes_match = includes_match
        self._held = ""
        self.matched: str | None = None  # the stop string, or the pattern as it was written

    def feed(self, piece: str) -> str:
        """Take more text; return what may be shown now. After a match nothing more is shown."""
        if not self._followers:
            return piece
        if self.matched is not None:
            return ""
        text = self._held + piece
        for end in range(len(self._held) + 1, len(text) + 1):
            length = self._advance(text[end - 1])
            if length:
                self._held = ""
                return text[:end] if self._includes_match else text[: end - length]
        num_held = 0 if self._includes_match else max([each.num_open for each in self._followers])
        num_shown = len(text) - num_held
        self._held = text[num_shown:]
        return text[:num_shown]

    def flush(self) -> str:
        """The answer ended without a match: return what was held back."""
        held, self._held = self._held, ""
        return held

    def _advance(self, character: str) -> int:
        """Characters of the longest match that ends here; 0 where none does."""
        longest = 0
        for follower in self._followers:
            length = follower.advance(character)
            if length > longest:
                longest, self.matched = length, follower.source
        return longest


class _Follower(Protocol):
    """One stop on its way through a text."""

    source: str
    num_open: int  # characters at the end of the text that may still become a match

    def advance(self, character: str) -> int:
        """Characters of the longest match that ends with this one, else 0."""


class _StringFollower:
    """One comparison per character, on average (Knuth, Morris, Pratt 1977)."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.num_open = 0
        self._borders = _borders(source)

    def advance(self, character: str) -> int:
        source, length = self.source, self.num_open
        while length and source[length] != character:
            length = self._borders[length - 1]
        self.num_open = length + 1 if source[length] == character else 0
        return self.num_open if self.num_open == len(source) else 0


class _PatternFollower:
    """Every match that is open, the one that began first in front; of two at one position the later has no use."""

    def __init__(self, pattern: StopPattern) -> None:
        self.source = pattern.source
        self.num_open = 0
        self._pattern = pattern
        self._open: list[tuple[int, int]] = []  # where a match began, and the positions it may be at
        self._num_read = 0
        self._taking: dict[str, int] = {}

    def advance(self, character: str) -> int:
        taking = self._taking.get(character)
        if taking is None:
            taking = self._taking[character] = self._pattern.taking(character)
        begun = [(start, self._behind(positions) & taking) for start, positions in self._open]
        begun.append((self._num_read, self._pattern.first & taking))
        self._num_read += 1
        self._open = []
        length = taken = 0
        for start, positions in begun:
            positions &= ~taken
            if positions:
                taken |= positions
                self._open.append((start, positions))
                if not length and positions & self._pattern.last:
                    length = self._num_read - start
        self.num_open = self._num_read - self._open[0][0] if self._open else 0
        return length

    def _behind(self, positions: int) -> int:
        """Positions that may come next."""
        follow, behind = self._pattern.follow, 0
        while positions:
            lowest = positions & -positions
            behind |= follow[lowest.bit_length() - 1]
            positions ^= lowest
        return behind


def _borders(stop: str) -> list[int]:
    """For each prefix, the length of its longest proper prefix that is also its suffix."""
    borders = [0] * len(stop)
    length = 0
    for end in range(1, len(stop)):
        while length and stop[length] != stop[end]:
            length = borders[length - 1]
        if stop[length] == stop[end]:
            length += 1
        borders[end] = length
    return borders
