"""Stop strings in streamed text. Fed by the engine piece by piece; never looks at tokens.

What could still become a stop string is held back, nothing more. The match that ends first wins, and of
those that end together the longest: so the pieces' borders change neither the text nor the match.
"""

from collections.abc import Sequence


class StopMatcher:
    """Follows every stop string at once, one comparison per character (Knuth, Morris, Pratt 1977)."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._borders = tuple(_borders(stop) for stop in self._stops)
        self._lengths = [0] * len(self._stops)  # how much of each stop string the text ends with
        self._held = ""
        self.matched: str | None = None

    def feed(self, piece: str) -> str:
        """Take more text; return what may be shown now. After a match nothing more is shown."""
        if not self._stops:
            return piece
        if self.matched is not None:
            return ""
        text = self._held + piece
        for end in range(len(self._held), len(text)):
            stop = self._advance(text[end])
            if stop is not None:
                self.matched = stop
                self._held = ""
                return text[: end + 1 - len(stop)]
        num_shown = len(text) - max(self._lengths)
        self._held = text[num_shown:]
        return text[:num_shown]

    def flush(self) -> str:
        """The answer ended without a match: return what was held back."""
        held, self._held = self._held, ""
        self._lengths = [0] * len(self._stops)
        return held

    def _advance(self, character: str) -> str | None:
        complete: str | None = None
        for index, stop in enumerate(self._stops):
            length, borders = self._lengths[index], self._borders[index]
            while length and stop[length] != character:
                length = borders[length - 1]
            if stop[length] == character:
                length += 1
            self._lengths[index] = length
            if length == len(stop) and (complete is None or len(stop) > len(complete)):
                complete = stop
        return complete


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
