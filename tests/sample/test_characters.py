"""Sets of characters and their bytes, beside what Python says of each character."""

from itertools import product

import pytest
from hypothesis import given, strategies as st

from twostroke.sample.characters import ByteRanges, Characters

BORDERS = (0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x3FFFF, 0x40000, 0x10FFFF)
POINTS = st.one_of(st.integers(0, 0x10FFFF), st.sampled_from(BORDERS), st.integers(0, 300), st.integers(0xD700, 0xE100))
RANGES = st.lists(st.tuples(POINTS, POINTS).map(lambda pair: (min(pair), max(pair))), max_size=5)


def is_character(point: int) -> bool:
    return not 0xD800 <= point < 0xE000


def holds(characters: Characters, point: int) -> bool:
    return any(first <= point <= last for first, last in characters.ranges)


def takers(sequences: tuple[ByteRanges, ...], written: bytes) -> int:
    """Sequences these bytes are in."""
    return sum(
        len(sequence) == len(written)
        and all(first <= byte <= last for byte, (first, last) in zip(written, sequence, strict=True))
        for sequence in sequences
    )


def points_near(ranges: list[tuple[int, int]]) -> list[int]:
    near = {point + step for pair in [*ranges, BORDERS] for point in pair for step in (-1, 0, 1)}
    return sorted(point for point in near if 0 <= point <= 0x10FFFF and is_character(point))


@given(RANGES)
def test_a_set_is_its_ranges_without_surrogates_in_one_spelling(ranges: list[tuple[int, int]]) -> None:
    characters = Characters.within(ranges)
    for point in points_near(ranges):
        assert holds(characters, point) is any(first <= point <= last for first, last in ranges)
    assert not any(first < 0xE000 and last >= 0xD800 for first, last in characters.ranges)
    assert all(
        last + 1 < first for (_, last), (first, _) in zip(characters.ranges, characters.ranges[1:], strict=False)
    )
    assert characters == Characters.within(reversed(ranges)) == Characters.within([*ranges, *ranges])


@given(RANGES, RANGES)
def test_joined_and_other_sets_are_what_logic_says(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    first, second = Characters.within(left), Characters.within(right)
    assert first.others().others() == first
    assert first.joined(first.others()) == Characters.within([(0, 0x10FFFF)])
    for point in points_near([*left, *right]):
        assert holds(first.joined(second), point) is (holds(first, point) or holds(second, point))
        assert holds(first.others(), point) is not holds(first, point)


@given(RANGES)
def test_every_character_is_in_one_sequence_of_bytes_and_no_other_bytes_are(ranges: list[tuple[int, int]]) -> None:
    characters = Characters.within(ranges)
    sequences = characters.sequences()
    for point in points_near(ranges):
        assert takers(sequences, chr(point).encode()) == holds(characters, point)
    for sequence in sequences:
        for ends in product(*sequence):
            assert holds(characters, ord(bytes(ends).decode()))


@pytest.mark.parametrize(
    "wrong", [b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xff"]
)
def test_bytes_that_are_no_utf8_are_in_no_set(wrong: bytes) -> None:
    assert takers(Characters().others().sequences(), wrong) == 0


def test_all_characters_are_few_sequences() -> None:
    assert len(Characters().others().sequences()) == 9
    assert Characters.of("azb").ranges == ((ord("a"), ord("b")), (ord("z"), ord("z")))
