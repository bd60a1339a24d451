"""Sets of characters as ranges of code points, and the bytes that UTF-8 writes them with."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)  # halves of a pair, no characters
LAST_OF_LENGTH = (0x7F, 0x7FF, 0xFFFF, LAST)  # the last character of one byte, of two, ...

Range = tuple[int, int]  # first and last
ByteRanges = tuple[Range, ...]  # of the first byte, the second, ...


@dataclass(frozen=True, slots=True)
class Characters:
    """Ranges ascend, touch nowhere and have no surrogates: equal sets are equal."""

    ranges: tuple[Range, ...] = ()

    @classmethod
    def of(cls, characters: Iterable[str]) -> "Characters":
        return cls.within((ord(each), ord(each)) for each in characters)

    @classmethod
    def within(cls, ranges: Iterable[Range]) -> "Characters":
        """Those of any of the ranges, which come in any order."""
        joined: list[Range] = []
        for first, last in sorted(part for each in ranges for part in _without_surrogates(each)):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = joined[-1][0], max(joined[-1][1], last)
            else:
                joined.append((first, last))
        return cls(tuple(joined))

    def joined(self, other: "Characters") -> "Characters":
        return Characters.within((*self.ranges, *other.ranges))

    def others(self) -> "Characters":
        """All characters that are not in the set."""
        firsts = [0, *(last + 1 for _, last in self.ranges)]
        lasts = [*(first - 1 for first, _ in self.ranges), LAST]
        return Characters.within((first, last) for first, last in zip(firsts, lasts, strict=True) if first <= last)

    def sequences(self) -> tuple[ByteRanges, ...]:
        """The set as UTF-8: every character is in one sequence, and nothing else is."""
        return tuple([sequence for each in self.ranges for sequence in _sequences(*each)])


def _without_surrogates(whole: Range) -> Iterator[Range]:
    for first, last in ((whole[0], min(whole[1], SURROGATES[0] - 1)), (max(whole[0], SURROGATES[1] + 1), whole[1])):
        if first <= last:
            yield first, last


def _sequences(first: int, last: int) -> Iterator[ByteRanges]:
    """Cuts a range where its bytes stop being independent of one another."""
    cut = _cut(first, last)
    if cut is not None:
        yield from _sequences(first, cut)
        yield from _sequences(cut + 1, last)
    else:
        yield tuple(zip(chr(first).encode(), chr(last).encode(), strict=True))


def _cut(first: int, last: int) -> int | None:
    """The last character of a part that has to be apart."""
    for longest in LAST_OF_LENGTH:
        if first <= longest < last:
            return longest
    for num_bits in (6, 12, 18) if first > LAST_OF_LENGTH[0] else ():  # of the bytes behind
        low = (1 << num_bits) - 1
        if first & ~low != last & ~low:
            if first & low:
                return first | low
            if last & low != low:
                return (last & ~low) - 1
    return None
