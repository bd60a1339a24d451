"""Stop patterns mean what Python's regular expressions mean, cost what they promise, and are refused by name."""

import re

import pytest
from hypothesis import given, strategies as st

from twostroke.errors import ParamsError
from twostroke.sample.stop import StopMatcher
from twostroke.stop_pattern import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_POSITIONS,
    StopPattern,
    compile_pattern,
    compile_patterns,
)

ATOMS = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", r"\w", r"\n", "é", r"\.", "[a-b-]"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    quantifiers = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "{2,3}?"])
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.builds(lambda part, quantifier: f"(?:{part}){quantifier}", inner, quantifiers),
    )


PATTERNS = st.builds("".join, st.tuples(st.sampled_from(["", "", "(?i)", "(?s)"]), st.recursive(ATOMS, _grown)))


def by_trying_everything(source: str, text: str) -> tuple[int, int] | None:
    """The obvious twin: the first end at which a match ends, the earliest start of those that end there."""
    pattern = re.compile(source)
    for end in range(1, len(text) + 1):
        for start in range(end):
            if pattern.fullmatch(text, start, end):
                return start, end
    return None


def compiled(source: str) -> StopPattern | None:
    try:
        return compile_pattern(source)
    except ParamsError:
        return None


@given(PATTERNS, st.text("abAé.\n", max_size=10), st.integers(0, 10), st.booleans())
def test_a_pattern_ends_an_answer_where_python_finds_the_first_match_to_end(
    source: str, text: str, border: int, includes_match: bool
) -> None:
    pattern = compiled(source)
    if pattern is None:
        return
    matcher = StopMatcher((), (pattern,), includes_match=includes_match)
    shown = matcher.feed(text[:border]) + matcher.feed(text[border:])
    expected = by_trying_everything(source, text)
    if expected is None:
        assert (shown + matcher.flush(), matcher.matched) == (text, None)
    else:
        start, end = expected
        assert (shown, matcher.matched) == (text[: end if includes_match else start], source)


@given(PATTERNS)
def test_what_python_matches_to_nothing_is_refused_and_little_else(source: str) -> None:
    is_empty = re.compile(source).fullmatch("") is not None
    is_long = len(source) > 20  # repetitions of repetitions may have too many positions
    assert (compiled(source) is None) == is_empty or is_long


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("a*", "it matches the empty text, every answer would end at once"),
        ("a|", "it matches the empty text"),
        ("(a", "the ( at character 0 is not closed"),
        ("a)", "a ) at character 1 closes nothing"),
        ("^a", "^ at character 0 takes no character: write \\n for the border of a line"),
        ("a$", "$ at character 1"),
        (r"\bx", r"\b at character 0 takes no character of its own"),
        (r"(a)\1", r"\1 at character 3"),
        (r"a\Z", r"\Z at character 1"),
        ("x\\", "\\ at character 1"),
        ("(?=a)", "(? at character 0 is more than a group"),
        ("(?P<n>a)", "(? at character 0 is more than a group"),
        ("x(?i)", "(? at character 1 is more than a group"),
        ("a**", "* at character 2 repeats a repetition"),
        ("a++", "+ at character 2 repeats a repetition"),
        ("a{2}{3}", "{ at character 4 repeats a repetition"),
        ("*a", "* at character 0 repeats nothing"),
        ("a{3,1}", "{3,1} asks for at least 3 and at most 1"),
        ("[a", "the set at character 0 is not closed"),
        ("[[a]", "the set at character 0"),
        ("[a--b]", "the set at character 0"),
        ("[z-a]", "bad character range z-a"),
        ("(a{100}){3}", f"it has 300 positions, the limit is {MAX_POSITIONS}"),
        ("(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1), f"groups are nested more than {MAX_DEPTH} deep"),
        ("a" * (MAX_CHARACTERS + 1), f"{MAX_CHARACTERS + 1} characters: the limit is {MAX_CHARACTERS}"),
    ],
)
def test_what_it_is_not_is_refused_with_the_place(source: str, problem: str) -> None:
    with pytest.raises(ParamsError) as refused:
        compile_pattern(source)
    assert refused.value.field == "stop_regex"
    assert str(refused.value).startswith("stop_regex has ")
    assert problem in str(refused.value)


def test_repetitions_without_end_of_nothing_cost_nothing() -> None:
    assert len(compile_pattern("((()*){99999}){99999}a").atoms) == 1


def test_positions_of_all_patterns_together_are_bounded() -> None:
    half = "a" * (MAX_POSITIONS // 2)
    assert len(compile_patterns([half, half])) == 2
    with pytest.raises(ParamsError, match=f"{MAX_POSITIONS + 1} positions together: the limit is {MAX_POSITIONS}"):
        compile_patterns([half, half, "b"])


class Counted(dict[int, int]):
    """Follow sets that count how often they are asked for."""

    num_looks = 0

    def __getitem__(self, position: int) -> int:
        self.num_looks += 1
        return super().__getitem__(position)


@pytest.mark.parametrize(
    "source",
    ["(a?){63}b", "(a|aa|a.|.a)+(a+)+b", "((a+)+)+b", "a{0,62}bz", "(.*a){8}b"],
)
def test_a_character_costs_at_most_one_look_at_each_position(source: str) -> None:
    pattern = compile_pattern(source)
    follow = Counted(enumerate(pattern.follow))
    object.__setattr__(pattern, "follow", follow)
    matcher = StopMatcher((), (pattern,))
    matcher.feed("a" * 500)
    assert 499 <= follow.num_looks <= 500 * len(pattern.atoms)
