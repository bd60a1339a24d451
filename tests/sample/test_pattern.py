"""Masks of patterns beside llguidance's, place by place, over vocabularies with all sorts of tokens."""

import random
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import llguidance
import numpy as np
import pytest
from hypothesis import given, strategies as st

from twostroke import _native
from twostroke.sample.grammar import LIMITS, MAX_PATTERNS, GrammarCompiler, Words, _LibraryPlace, _PatternPlace
from twostroke.sample.named_characters import named_characters
from twostroke.sample.pattern import FEW_NODES, MAX_POSITIONS, PatternCompiler
from twostroke.structure import Structure, StructureKind

DIGITS = {str(digit).encode() for digit in range(10)}
ALPHABET = ["a", "b", "c", "z", "A", "0", "7", " ", "-", ".", ",", '"', "\n", "_", "é", "ß", "中", "٣", "😀"]


def vocabulary(alphabet: Sequence[str], *, count: int, longest: int, seed: int) -> list[bytes]:
    """All bytes, then texts of characters, some of which begin or end inside one; every text once or twice."""
    rng = random.Random(seed)
    tokens = [bytes([byte]) for byte in range(256)]
    while len(tokens) < count:
        text = "".join(rng.choices(alphabet, k=rng.randint(1, longest))).encode()
        start, end = rng.randrange(2), len(text) - rng.randrange(2)
        tokens.append(text[start:end] if rng.random() < 0.3 and start < end else text)
    return tokens


def words_of(tokens: Sequence[bytes]) -> Words:
    """With two end tokens and another control token behind the others."""
    size = len(tokens)
    spelling = [*tokens, b"<end>", b"<stop>", b"<pad>"]
    return Words(
        spelling,
        control_ids=[size, size + 1, size + 2],
        end_ids=[size, size + 1],
        encode=lambda text: [],  # so it is the longest token that fits, again and again
    )


@cache
def compiler() -> tuple[Words, GrammarCompiler]:
    made = words_of([*vocabulary(ALPHABET, count=3000, longest=6, seed=1), b"", b"ab" * 12, "é中".encode() * 9])
    return made, GrammarCompiler(made)


@cache
def grouping_compiler() -> PatternCompiler:
    """Puts the tokens of the same vocabulary into groups at every place."""
    words, _ = compiler()
    size = len(words.tokens) - len(words.special_token_ids)
    tokens = [token if index < size else b"" for index, token in enumerate(words.tokens)]
    return PatternCompiler(tokens, end_ids=words.end_ids, characters_of=cache(named_characters), few_nodes=0)


@cache
def grouping_pattern(source: str) -> _native.Pattern:
    pattern = grouping_compiler().compile(source)
    assert pattern is not None, "read here"
    return pattern


def words_and_places(source: str) -> tuple[Words, _PatternPlace, _LibraryPlace]:
    words, made = compiler()
    grammar = made.compile(Structure(kind=StructureKind.REGEX, source=source))
    assert isinstance(grammar._place, _PatternPlace), "read here"
    return words, grammar._place, library_place(made, source)


def library_place(made: GrammarCompiler, source: str) -> _LibraryPlace:
    grammar = llguidance.LLMatcher.grammar_from_regex(source)
    return _LibraryPlace(llguidance.LLMatcher(made._tokenizer, grammar, log_level=0, limits=LIMITS))


def ids_of(mask: bytes) -> list[int]:
    return [index for index in range(8 * len(mask)) if mask[index // 8] >> index % 8 & 1]


PATTERNS = [
    "a",
    "",
    "(a|b)*c",
    "(ab|ac|b)+",
    "a{0}b{2}",
    "(a?b?){3}",
    "(a*)*",
    "(a|)+b",
    "(|a){2,4}c",
    "((a|b){2}c?){2,}",
    "[a-z]{3,9}",
    "([a-z]{1,3} ){4}z",
    "([A-Za-z]+ ){3,}[A-Za-z]+\\.",
    "^[^\\n]{1,20}$",
    "^abc$",
    "abc[0-9]abcabc",
    ".{2,5}",
    ".*z",
    "[^a-c]*a",
    "[^中]{2}",
    '"[^"]*", "b"',
    r"\d{2}-\d{2}",
    r"\w+( \w+){2}",
    r"\s?\S+\s",
    r"\W\D[\w-]",
    r"[\d\s]{4}",
    r"[é-中]+",
    r"\u{1F600}|[\x00-\x7f]{3}",
    "[a-b]*a[a-b]{5}",
    "(?:ab)+(?P<rest>c*)",
    r"\.\*\n",
    "a/b",
    "ab?c?|7{3,}",
    "(aaaaaaaa){3}b",
]


@pytest.mark.parametrize("source", PATTERNS)
def test_masks_are_those_of_the_library_wherever_answers_go(source: str) -> None:
    for seed in range(4):
        follow(source, random.Random(seed), most=12)


def follow(source: str, rng: random.Random, *, most: int) -> None:
    """One answer of random tokens that may come."""
    words, ours, library = words_and_places(source)
    grouping = _PatternPlace(_native.PatternPlace(grouping_pattern(source)), library.copy())
    for _ in range(most):
        mask = library.mask()
        for place in (ours, grouping):
            assert mask.startswith(place.mask()), source
        token_id = rng.choice(ids_of(mask))
        for each in (ours, grouping, library):
            each.advance(token_id)
        if token_id in words.end_ids:
            assert set(ids_of(ours.mask())) == set(words.end_ids)
            return


PARTS = st.sampled_from(
    ["a", "b", "7", " ", "-", "é", "中", ".", r"\d", r"\w", r"\s", "[a-c]", "[^a]", r"[\w.]", "[é-ü7]"]
)
REPEATS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,3}", "{2,}"])


@st.composite
def patterns(draw: st.DrawFn, depth: int = 2) -> str:
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        if depth and draw(st.booleans()):
            choices = draw(st.lists(patterns(depth=depth - 1), min_size=1, max_size=3))
            part = f"({'|'.join(choices)})"
        else:
            part = draw(PARTS)
        parts.append(part + draw(REPEATS))
    return "".join(parts)


@given(patterns(), st.integers(0, 2**32))
def test_masks_of_any_pattern_are_those_of_the_library(source: str, seed: int) -> None:
    follow(source, random.Random(seed), most=6)


def test_a_token_that_may_not_come_leaves_nothing() -> None:
    words, ours, library = words_and_places("ab*")
    for place in (ours, library):
        place.advance(words.tokens.index(b"b"))
    for place in (ours, library):
        with pytest.raises(ValueError, match="doesn't satisfy the grammar"):
            place.mask()


def test_an_end_token_ends_only_where_the_pattern_may_end() -> None:
    words, ours, _ = words_and_places("ab*")
    early = ours.copy()
    early.advance(words.end_ids[1])
    with pytest.raises(ValueError, match=r"doesn't satisfy|grammar"):
        early.mask()
    ours.advance(words.tokens.index(b"a"))
    assert set(words.end_ids) < set(ids_of(ours.mask()))


def test_copies_go_their_own_ways() -> None:
    words, here, _ = words_and_places("ab|ac|bd")
    here.advance(words.tokens.index(b"a"))
    there = here.copy()
    there.advance(words.tokens.index(b"b"))
    assert set(ids_of(there.mask())) == set(words.end_ids)
    assert {words.tokens[index] for index in ids_of(here.mask())} == {b"b", b"c"}


def test_copies_spell_forced_text_on_their_own() -> None:
    words, here, library = words_and_places("[ab]cabcabcabc")
    there = here.copy()
    for place, letter in ((here, b"a"), (there, b"b")):
        place.advance(words.tokens.index(letter))
    library.advance(words.tokens.index(b"b"))
    assert there._own.is_forced
    assert library.mask().startswith(there.mask())


def test_behind_an_end_token_only_end_tokens_come() -> None:
    pattern = compile_alone("ab?")
    assert pattern is not None
    place = _native.PatternPlace(pattern)
    place.advance(ord("a"))
    for _ in range(3):
        place.advance(256)
        assert ids_of(place.mask()) == [256]
        assert not place.is_forced
    place.advance(ord("b"))
    with pytest.raises(ValueError, match="no token goes on"):
        place.mask()


@pytest.mark.parametrize("token_id", [256, 257, ord("b")])
def test_what_may_not_come_leaves_a_place_dead(token_id: int) -> None:
    """An end too early, a token without text, another letter."""
    tokens = [*(bytes([byte]) for byte in range(256)), b"", b""]
    pattern = PatternCompiler(tokens, end_ids=[256], characters_of=named_characters).compile("ab?")
    assert pattern is not None
    place = _native.PatternPlace(pattern)
    place.advance(token_id)
    for _ in range(2):
        with pytest.raises(ValueError, match="no token goes on"):
            place.mask()
        place.advance(ord("a"))


def test_forced_text_is_spelled_as_the_tokenizer_would() -> None:
    words, ours, _ = words_and_places("[0-9]abababababababababababab")
    ours.advance(words.tokens.index(b"0"))
    assert ours._own.is_forced
    assert [words.tokens[index] for index in ids_of(ours.mask())] == [b"ab" * 12]


# What is left to the library


def compile_alone(source: str) -> _native.Pattern | None:
    tokens = [*(bytes([byte]) for byte in range(256)), b""]
    return PatternCompiler(tokens, end_ids=[256], characters_of=named_characters).compile(source)


@pytest.mark.parametrize(
    "source",
    [
        "(?i)a",
        "a*?",
        f"a{{{MAX_POSITIONS}}}b",
        f"a{{0,{MAX_POSITIONS // 2}}}b",
        f"a{{{MAX_POSITIONS},}}",
        f"((a{{100}}){{100}}){{{MAX_POSITIONS}}}",
        f"({'a|' * 50}b){{100}}",
        "a" * (MAX_POSITIONS + 1),
        "[^\\x00-\\u{10FFFF}]",
    ],
)
def test_what_is_unread_or_too_much_is_left_to_the_library(source: str) -> None:
    assert compile_alone(source) is None


EVERY_CHARACTER_ANOTHER = "".join(f"[^{chr(0x4E00 + index)}]" for index in range(500))


@pytest.mark.parametrize(
    "source",
    [
        f"a{{{MAX_POSITIONS}}}",
        "([a-z]{3,9} ){250}",
        f"a{{{MAX_POSITIONS - 2},}}",
        "(){1000000000}a",
        "((a{0}){9}){1000000}b",
        "a{0,1000}",
        "(a" + "()|" * 1300 + "){1000}",
        EVERY_CHARACTER_ANOTHER,
    ],
)
def test_what_is_large_but_bearable_is_followed_here(source: str) -> None:
    assert compile_alone(source) is not None


def test_a_pattern_is_kept_with_its_masks_for_the_next_request() -> None:
    _, made = compiler()
    wish = Structure(kind=StructureKind.REGEX, source="[a-c]{2,7}kept")
    made.compile(wish).allowed()
    pattern = made._pattern(wish.source)
    assert pattern is not None
    walked = pattern.num_walked
    made.compile(wish).allowed()
    assert made._pattern(wish.source) is pattern
    assert pattern.num_walked == walked


def test_few_patterns_are_kept() -> None:
    _, made = compiler()
    wishes = [f"[a-c]{{2,{count}}}" for count in range(2, 3 + MAX_PATTERNS)]
    kept = [made._pattern(wish) for wish in wishes[:MAX_PATTERNS]]
    assert [made._pattern(wish) for wish in wishes[:MAX_PATTERNS]] == kept
    made._pattern(wishes[MAX_PATTERNS])
    assert made._pattern(wishes[0]) is not kept[0]


def test_behind_other_text_the_library_follows_a_pattern() -> None:
    words, made = compiler()
    wish = Structure(kind=StructureKind.REGEX, source="b+")
    grammar = made.compile(wish, before='start: "a" @answer')
    assert isinstance(grammar._place, _LibraryPlace)
    assert {words.tokens[index][:1] for index in ids_of(grammar.allowed())} == {b"a"}


# How much is walked over


def words_of_letters(count: int) -> list[bytes]:
    rng = random.Random(5)
    words = {"".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(1, 8))) for _ in range(count)}
    return [text.encode() for word in sorted(words) for text in (word, f" {word}")]


def test_places_that_differ_in_a_count_are_asked_by_groups_alone() -> None:
    tokens = [*words_of_letters(3000), b" ", b"", b"."]
    made = PatternCompiler(tokens, end_ids=[len(tokens) - 2], characters_of=named_characters)
    pattern = made.compile("([a-z]+ ){30}[a-z]+\\.")
    assert pattern is not None
    place, walks = _native.PatternPlace(pattern), []
    for _ in range(12):
        before = pattern.num_walked
        place.mask()
        walks.append(pattern.num_walked - before)
        place.advance(tokens.index(b"a"))
        place.advance(tokens.index(b" "))
    assert walks[0] > FEW_NODES, "there are many, so they are grouped"
    assert max(walks[1:]) <= 2 * 9, "letters by their number, with a blank before them and without"


def test_a_mask_that_was_made_is_not_made_again() -> None:
    tokens = [*words_of_letters(3000), b""]
    made = PatternCompiler(tokens, end_ids=[len(tokens) - 1], characters_of=named_characters)
    pattern = made.compile("[a-z]*")
    assert pattern is not None
    place = _native.PatternPlace(pattern)
    place.mask()
    walked = pattern.num_walked
    place.advance(tokens.index(b"a"))
    place.mask()
    assert pattern.num_walked == walked


# Patterns of very many states


def all_texts(letters: str, longest: int) -> list[bytes]:
    texts = [""]
    for text in texts:
        if len(text) < longest:
            texts += [text + letter for letter in letters]
    return [text.encode() for text in texts[1:]]


def test_what_is_remembered_is_bounded_and_places_outlive_it() -> None:
    """Every text is a state of its own here: some megabytes are made per mask, and forgotten every few masks."""
    tokens = [*all_texts("ab", 10), b""]
    end_id = len(tokens) - 1
    made = PatternCompiler(tokens, end_ids=[end_id], characters_of=named_characters)
    pattern = made.compile("[ab]*a[ab]{200}")
    assert pattern is not None
    place, rng, text = _native.PatternPlace(pattern), random.Random(2), ""
    old, sizes = place.copy(), []
    for _ in range(60):
        allowed = ids_of(place.mask())
        sizes.append(pattern.memory_bytes)
        assert allowed == [*range(end_id), *([end_id] if text[-201:-200] == "a" else [])]
        token_id = rng.randrange(end_id)
        place.advance(token_id)
        text += tokens[token_id].decode()
    assert max(sizes) < 2**23 + max(after - before for before, after in pairwise(sizes))
    assert sum(after < before for before, after in pairwise(sizes)) > 2
    assert ids_of(old.mask()) == list(range(end_id))
    walked = pattern.num_walked
    old.mask()
    assert pattern.num_walked == walked, "known again"


def may_begin(text: str, most: int) -> bool:
    """Whether an answer of `[ab]{1,most}[bc]{1,most}d` may begin with these letters."""
    first_c = text.find("c") % (len(text) + 1)  # or its end
    earliest, latest = max(text.rfind("a") + 1, len(text) - most, 1), min(first_c, most)  # the second part begins
    return text[0] != "c" and earliest <= latest


def test_groups_are_made_anew_after_all_was_forgotten() -> None:
    """A place is up to a thousand at once, and there are thousands: megabytes, but groups of them are few."""
    most, letters = 1000, all_texts("abc", 6)
    tokens = [*letters, b"d", b""]
    made = PatternCompiler(tokens, end_ids=[len(tokens) - 1], characters_of=named_characters, few_nodes=0)
    pattern = made.compile(f"[ab]{{1,{most}}}[bc]{{1,{most}}}d")
    assert pattern is not None
    place, text, sizes = _native.PatternPlace(pattern), "", list[int]()
    while len(text) < 2 * most - 6:
        mask = place.mask()
        sizes.append(pattern.memory_bytes)
        if len(text) % 60 == 0 or sizes[-1] < max(sizes):
            allowed = {tokens[index].decode() for index in ids_of(mask)} - {"d"}
            assert allowed == {letter.decode() for letter in letters if may_begin(text + letter.decode(), most)}
        place.advance(tokens.index(b"bbbbbb"))
        text += "bbbbbb"
    assert any(after < before for before, after in pairwise(sizes)), "all was forgotten"


def test_a_pattern_in_too_many_places_at_once_gives_up_with_the_librarys_words() -> None:
    tokens = [*all_texts("ab", 12), b""]
    end_id = len(tokens) - 1
    source = "[ab]*a[ab]{2000}"
    made = PatternCompiler(tokens, end_ids=[end_id], characters_of=named_characters)
    pattern = made.compile(source)
    assert pattern is not None
    own, rng = _native.PatternPlace(pattern), random.Random(3)
    library = library_place(GrammarCompiler(words_of(tokens[:-1])), source)
    both = _PatternPlace(own, library)
    for _ in range(250):
        both.advance(rng.randrange(end_id))
    with pytest.raises(ValueError, match="too many places at once"):
        own.mask()
    with pytest.raises(ValueError, match="token"):
        both.mask()
    walked = pattern.num_walked
    with pytest.raises(ValueError, match="too many places at once"):
        own.mask()
    assert pattern.num_walked <= walked + 1, "not tried again"


class GivingUp:
    """A place that is over its limits."""

    is_forced = False

    def mask(self) -> bytes:
        raise ValueError("too much")


def test_where_one_of_the_two_gives_up_the_other_goes_on() -> None:
    words, ours, library = words_and_places("ab[0-9]")
    ours.advance(words.tokens.index(b"a"))
    assert ours._own.is_forced
    ours._library = GivingUp()  # type: ignore[assignment]
    assert words.tokens.index(b"b") in ids_of(ours.mask())
    library.advance(words.tokens.index(b"a"))
    library.advance(words.tokens.index(b"b"))
    mixed = _PatternPlace(GivingUp(), library)  # type: ignore[arg-type]
    assert ids_of(mixed.mask()) == [token_id for token_id, token in enumerate(words.tokens) if token in DIGITS]


# The automaton alone


@pytest.mark.parametrize(
    "parts",
    [
        {"positions": [[0, 9, 0]]},
        {"positions": [[1, 0, 0]]},
        {"positions": [[-3, 0, 0]]},
        {"positions": [[-1, 0, 5]]},
        {"positions": []},
        {"first_stages": [7]},
        {"steps": [[0, 1, -1]]},
        {"steps": [[0, 0, -2]]},
        {"steps": [[-1, 0, -1]]},
    ],
)
def test_numbers_that_point_nowhere_are_refused(parts: dict[str, list[list[int]]]) -> None:
    whole = {"positions": [[0, 1, 0], [-2, 0, 0]], "first_stages": [0], "steps": [[0, 0, -1]], **parts}
    with pytest.raises(ValueError, match=r" is -?\d+, of \d+"):
        _native.Pattern(
            _native.PatternVocabulary([b"a"], end_ids=[0]),
            positions=np.array(whole["positions"], np.int32).reshape(-1, 3),
            first_stages=[int(each) for each in np.array(whole["first_stages"]).ravel()],
            steps=np.array(whole["steps"], np.int32).reshape(-1, 3),
            labels=np.ones((1, 256), np.bool_),
            few_nodes=0,
        )


def test_an_end_token_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="end token 3 is not in the vocabulary"):
        _native.PatternVocabulary([b"a"], end_ids=[3])
    pattern = compile_alone("a")
    assert pattern is not None
    with pytest.raises(ValueError, match="token 257 is not in the vocabulary"):
        _native.PatternPlace(pattern).advance(257)


@pytest.mark.parametrize("source", [r"\d{4}-\d{2}", "[^é]{2}", "(yes|no)[.!]?", "é+中"])
def test_whole_answers_are_those_of_pythons_engine(source: str) -> None:
    pattern = compile_alone(source)
    assert pattern is not None
    rng = random.Random(7)
    for _ in range(200):
        text = "".join(rng.choices(["2", "6", "-", "yes", "no", ".", "!", "é", "中", "x"], k=rng.randint(0, 7)))
        place, fits = _native.PatternPlace(pattern), True
        for byte in text.encode():
            fits = fits and byte in ids_of(place.mask())
            if not fits:
                break
            place.advance(byte)
        assert (fits and 256 in ids_of(place.mask())) is bool(re.fullmatch(source, text)), text
