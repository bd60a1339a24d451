from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from twostroke.sample.stop import StopMatcher
from twostroke.stop_pattern import compile_patterns


def feed_all(stops: Sequence[str], pieces: Sequence[str]) -> tuple[list[str], str | None]:
    """What is shown piece by piece, the flushed rest last, and the match, which ends the feeding."""
    matcher = StopMatcher(stops)
    shown = []
    for piece in pieces:
        shown.append(matcher.feed(piece))
        if matcher.matched is not None:
            return shown, matcher.matched
    return [*shown, matcher.flush()], matcher.matched


def by_growing_prefixes(stops: Sequence[str], text: str) -> tuple[str, str | None]:
    """The obvious twin: the first prefix that ends with a stop string, the longest such string."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


def cut(text: str, lengths: Sequence[int]) -> list[str]:
    pieces, start = [], 0
    for length in lengths:
        pieces.append(text[start : start + length])
        start += length
    return [*pieces, text[start:]]


@given(
    st.text("ab", max_size=20),
    st.lists(st.text("ab", min_size=1, max_size=5), max_size=4),
    st.lists(st.integers(0, 4), max_size=12),
)
def test_any_pieces_give_the_text_before_the_first_stop_to_end(text: str, stops: list[str], lengths: list[int]) -> None:
    shown, matched = feed_all(stops, cut(text, lengths))
    assert ("".join(shown), matched) == by_growing_prefixes(stops, text)


@given(st.text("ab", max_size=30), st.text("ab", min_size=1, max_size=5))
def test_one_stop_is_found_where_find_finds_it(text: str, stop: str) -> None:
    shown, matched = feed_all([stop], list(text))
    place = text.find(stop)
    assert "".join(shown) == (text if place < 0 else text[:place])
    assert (matched is None) == (place < 0)


@given(st.text("abc", max_size=20), st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=3))
def test_held_back_is_the_longest_open_beginning_and_nothing_more(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = ""
    for end, character in enumerate(text, start=1):
        shown += matcher.feed(character)
        if matcher.matched is not None:
            return
        open_lengths = [n for stop in stops for n in range(len(stop)) if text[:end].endswith(stop[:n])]
        assert shown == text[: end - max(open_lengths)]


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("O P Q", "A B C "),
        ("P", "A B C O "),
        (" P Q R", "A B C O"),
        ("A B C O P Q R", ""),
        ("Q", "A B C O P "),
        ("A B C O P Q R S", "A B C O P Q R"),
    ],
)
def test_matching_is_on_text_not_on_token_borders(stop: str, expected: str) -> None:
    pieces = ["A", " B", " C", " O", " P", " Q R"]
    assert "".join(feed_all([stop], pieces)[0]) == expected


@pytest.mark.parametrize("stops", [["?\n"], ["rs?!"], ["?\n", "Mars?!"]])
def test_held_text_is_shown_when_the_answer_ends_otherwise(stops: list[str]) -> None:
    shown, matched = feed_all(stops, ["...sky", " on", " Mars", "?"])
    assert "".join(shown) == "...sky on Mars?"
    assert matched is None


@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("Alice! Alice: hi", ["\n", "Alice:"], "Alice! "),
        ("aaab", ["aab"], "a"),
        ("ababac", ["abac"], "ab"),
    ],
)
def test_a_false_start_is_shown_once(text: str, stops: list[str], expected: str) -> None:
    assert "".join(feed_all(stops, list(text))[0]) == expected


def test_a_long_stop_string_does_not_delay_text_that_cannot_begin_it() -> None:
    matcher = StopMatcher(["#" * 200])
    for piece in ["one", " two", " three"]:
        assert matcher.feed(piece) == piece


def test_nothing_is_shown_after_the_match() -> None:
    matcher = StopMatcher(["7"])
    assert matcher.feed("6 7 8") == "6 "
    assert matcher.matched == "7"
    assert matcher.feed("9") == ""
    assert matcher.flush() == ""


def test_without_stop_strings_everything_passes() -> None:
    assert feed_all([], ["a", "", "b"]) == (["a", "", "b", ""], None)


def test_a_very_long_stop_string_costs_one_comparison_per_character() -> None:
    matcher = StopMatcher(["a" * 50_000 + "b"])
    assert matcher.feed("a" * 60_000) == "a" * 10_000
    assert matcher.feed("c") == "a" * 50_000 + "c"


@given(
    st.text("ab", max_size=20),
    st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4),
    st.lists(st.integers(0, 4), max_size=12),
)
def test_with_the_match_shown_nothing_is_held_back_and_the_text_differs_by_the_match(
    text: str, stops: list[str], lengths: list[int]
) -> None:
    matcher = StopMatcher(stops, includes_match=True)
    shown = ""
    for piece in cut(text, lengths):
        shown += matcher.feed(piece)
        if matcher.matched is None:
            assert shown == text[: len(shown)]
            assert matcher.flush() == ""
    before, matched = by_growing_prefixes(stops, text)
    assert (shown, matcher.matched) == (before + (matched or ""), matched)


def test_of_strings_and_patterns_the_longest_that_ends_first_wins() -> None:
    for stops, patterns, text, expected in (
        (["ser:"], [r"\n(User|Bot):"], "hi\nUser: x", ("hi", r"\n(User|Bot):")),
        (["hi\nUser:"], [r"\n(User|Bot):"], "hi\nUser: x", ("", "hi\nUser:")),
        (["User: x"], [r"\d"], "hi 7", ("hi ", r"\d")),
        (["a"], ["a"], "ba", ("b", "a")),
    ):
        matcher = StopMatcher(stops, compile_patterns(patterns))
        assert (matcher.feed(text), matcher.matched) == expected


def test_a_pattern_holds_back_from_where_it_may_have_begun() -> None:
    matcher = StopMatcher((), compile_patterns([r"<[a-z]+>"]))
    assert [matcher.feed(piece) for piece in ("a <", "b", "C <d", ">")] == ["a ", "", "<bC ", ""]
    assert matcher.matched == "<[a-z]+>"
