"""The native byte-pair model: equal to the book's slow one and to the library's, unhurt by what is malformed."""

import itertools
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st
from tokenizers.models import BPE as LibraryBPE

from tests.examples import examples
from twostroke._native import BPE
from twostroke.text.byte_alphabet import BYTE_LEVEL_SPELLING, CHAR_OF_BYTE
from twostroke.text.merges import rules_from_strings

LETTERS = "abcdé▁🙂"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
NO_RULES = np.empty((0, 3), dtype=np.int32)


def rules_of(pieces: Sequence[str], merges: Sequence[tuple[str, str]]) -> npt.NDArray[np.int32]:
    return rules_from_strings(merges, id_of={piece: token_id for token_id, piece in reversed(list(enumerate(pieces)))})


def bpe_of(pieces: Sequence[str], merges: Sequence[tuple[str, str]] = (), **options: Any) -> BPE:
    return BPE(list(pieces), rules_of(pieces, merges), **options)


def slow_ids(piece: str, pieces: Sequence[str], merges: Sequence[tuple[str, str]]) -> list[int]:
    """By the book: of all neighbours some rule joins, join those of the best rule, leftmost first."""
    rank_of = {pair: rank for rank, pair in enumerate(merges)}
    symbols = [letter for letter in piece if letter in pieces]
    while True:
        ranked = [(rank_of[pair], place) for place, pair in enumerate(itertools.pairwise(symbols)) if pair in rank_of]
        if not ranked:
            return [pieces.index(symbol) for symbol in symbols]
        place = min(ranked)[1]
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]


@st.composite
def vocabularies(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str]]]:
    """Letters and what random rules make of them; some rules twice, some tokens twice."""
    pieces = list(draw(st.lists(st.sampled_from(LETTERS), min_size=1, max_size=5, unique=True)))
    merges: list[tuple[str, str]] = []
    for _ in range(draw(st.integers(0, 12))):
        left, right = draw(st.sampled_from(pieces)), draw(st.sampled_from(pieces))
        merges.append((left, right))
        pieces.append(left + right)
    return pieces, draw(st.permutations(merges))


texts = st.text(alphabet=LETTERS, max_size=40)


@given(vocabularies(), texts)
def test_ids_equal_the_slow_twin(vocabulary: tuple[list[str], list[tuple[str, str]]], text: str) -> None:
    pieces, merges = vocabulary
    assert bpe_of(pieces, merges).encode([text]) == slow_ids(text, pieces, merges)


@examples(300)
@given(
    vocabularies(),
    st.lists(texts, max_size=4),
    st.sampled_from([None, "a", "<unk>"]),
    st.fixed_dictionaries({name: st.booleans() for name in ("byte_fallback", "fuse_unk", "ignore_merges")}),
    st.sets(st.sampled_from(BYTES[0xA0:] + BYTES[0x60:0x64]), max_size=2),
)
def test_ids_equal_the_library_with_every_option(
    vocabulary: tuple[list[str], list[tuple[str, str]]],
    lines: list[str],
    unk: str | None,
    options: dict[str, bool],
    missing: set[str],
) -> None:
    made, merges = vocabulary
    pieces = ["<unk>", *(piece for piece in BYTES if piece not in missing), *made]
    if unk not in pieces:
        unk = None
    lowest = {piece: token_id for token_id, piece in reversed(list(enumerate(pieces)))}
    library = LibraryBPE(vocab=lowest, merges=list(merges), unk_token=unk, **options)
    native = bpe_of(pieces, merges, unk_id=None if unk is None else lowest[unk], **options)
    want = [token.id for line in lines if line for token in library.tokenize(line)]
    assert native.encode(lines) == want


def test_the_best_rule_goes_first_and_then_the_leftmost() -> None:
    pieces = ["a", "b", "c", "aa", "bc", "ab"]
    merges = [("b", "c"), ("a", "b"), ("a", "a")]
    assert bpe_of(pieces, merges).encode(["abc", "aaa", "ab"]) == [0, 4, 3, 0, 5]


def test_of_two_rules_for_one_pair_the_last_counts_as_in_the_library() -> None:
    pieces, merges = ["a", "b", "ab", "ba"], [("a", "b"), ("b", "a"), ("a", "b")]
    library = LibraryBPE(vocab={piece: token_id for token_id, piece in enumerate(pieces)}, merges=merges)
    assert bpe_of(pieces, merges).encode(["aba"]) == [token.id for token in library.tokenize("aba")] == [0, 3]


def test_of_equal_pieces_the_lowest_id_counts() -> None:
    bpe = bpe_of(["b", "a", "a", "ab", "ab"], [("a", "b")])
    assert bpe.encode(["aab"]) == [1, 3]
    assert bpe.id_of("ab") == 3


def test_letters_outside_the_vocabulary_are_unknown_bytes_or_nothing() -> None:
    assert bpe_of(["a"]).encode(["xaéx"]) == [0]
    assert bpe_of(["a", "?"], unk_id=1).encode(["xéa🙂"]) == [1, 1, 0, 1]
    assert bpe_of(["a", "?"], unk_id=1, fuse_unk=True).encode(["xéa🙂"]) == [1, 0, 1]
    fallback = bpe_of([*BYTES, "a", "?"], unk_id=257, byte_fallback=True)
    assert fallback.encode(["aé\x00"]) == [256, 0xC3, 0xA9, 0]


def test_bytes_outside_the_vocabulary_are_unknown() -> None:
    some_bytes = bpe_of(["<0xC3>", "a", "?"], unk_id=2, byte_fallback=True)
    assert some_bytes.encode(["éa"]) == [2, 1]


def test_a_whole_piece_is_its_token_where_merges_are_ignored() -> None:
    pieces = ["a", "b", "aba", "ab"]
    assert bpe_of(pieces, [("a", "b")]).encode(["aba"]) == [3, 0]
    assert bpe_of(pieces, [("a", "b")], ignore_merges=True).encode(["aba", "abab"]) == [2, 3, 3]


def test_pieces_do_not_merge_with_each_other() -> None:
    assert bpe_of(["a", "b", "ab"], [("a", "b")]).encode(["a", "b", "", "ab"]) == [0, 1, 2]


def test_nothing_makes_nothing() -> None:
    assert bpe_of(["a"]).encode([]) == []
    assert bpe_of(["a"]).encode([""]) == []
    assert BPE([], NO_RULES).encode(["abc"]) == []
    assert bpe_of(["", "a"]).encode(["a"]) == [1]


def test_text_is_written_as_the_vocabulary_spells_it() -> None:
    alphabet = list(BYTE_LEVEL_SPELLING)
    pieces = [CHAR_OF_BYTE[byte] for byte in range(256)]
    assert BPE(pieces, NO_RULES, spelling=alphabet).encode([" é\n"]) == [*" é\n".encode()]
    spaces = [b"_" if byte == ord(" ") else bytes([byte]) for byte in range(256)]
    assert BPE(["_", "é", ">"], NO_RULES, spelling=spaces, prefix=">").encode([" é", ""]) == [2, 0, 1, 2]


def test_a_whole_piece_is_looked_up_as_spelled() -> None:
    bpe = BPE(["a", "Ġa"], NO_RULES, spelling=BYTE_LEVEL_SPELLING, ignore_merges=True)
    assert bpe.encode([" a", "a"]) == [1, 0]


def test_a_piece_that_is_no_token_has_no_id() -> None:
    with pytest.raises(KeyError, match="'b'"):
        bpe_of(["a"]).id_of("b")


@pytest.mark.parametrize("rule", [(0, 2, 0), (-1, 0, 0), (0, 0, 2), (0, 0, -1), (2**31 - 1, 0, 0)])
def test_a_rule_about_no_token_is_an_error(rule: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"an id of merge rule 1 is .*; the vocabulary has 2 tokens"):
        BPE(["a", "b"], np.array([(0, 1, 0), rule], dtype=np.int32))


@pytest.mark.parametrize("unk_id", [-1, 2, 2**31 - 1])
def test_an_unknown_token_outside_the_vocabulary_is_an_error(unk_id: int) -> None:
    with pytest.raises(ValueError, match=f"unk_id is {unk_id}; the vocabulary has 2 tokens"):
        BPE(["a", "b"], NO_RULES, unk_id=unk_id)


def test_a_spelling_of_too_few_bytes_is_an_error() -> None:
    with pytest.raises(ValueError, match="spelling has 1 entries; there are 256 bytes"):
        BPE(["a"], NO_RULES, spelling=[b"a"])


def test_arguments_of_other_kinds_are_errors() -> None:
    malformed: list[tuple[Any, Any]] = [
        (["a", 1], NO_RULES),
        ("ab", NO_RULES),
        (["a"], np.zeros((1, 2), dtype=np.int32)),
        (["a"], np.zeros((1, 3), dtype=np.float32)),
        (["a"], [(0, 0, 0)]),
    ]
    for pieces, rules in malformed:
        with pytest.raises(TypeError):
            BPE(pieces, rules)
    with pytest.raises(UnicodeEncodeError):
        BPE(["\ud83d"], NO_RULES)
    with pytest.raises(UnicodeEncodeError):
        bpe_of(["a"]).encode(["a", "\ud83d"])
    with pytest.raises(TypeError):
        bpe_of(["a"]).encode(["a", None])  # type: ignore[list-item]


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 3), max_size=9), st.text(alphabet="abc", max_size=60))
def test_rules_that_make_no_sense_still_end(rules: list[tuple[int, int, int]], text: str) -> None:
    ids = BPE(["a", "b", "c"], np.array(rules, dtype=np.int32).reshape(-1, 3)).encode([text])
    assert len(ids) <= len(text)


@pytest.mark.parametrize("text", ["a" * 2**18, "ab" * 2**17, "abba" * 2**16, "aab" * 2**16])
def test_a_very_long_piece_takes_time_in_proportion_to_its_length(text: str) -> None:
    pieces, merges = ["a", "b", "ab", "ba"], [("a", "b"), ("b", "a")]
    while len(pieces[-1]) < 1024:  # every power of two of both runs
        for piece in (pieces[-2], pieces[-1]):
            merges.append((piece, piece))
            pieces.append(piece + piece)
    bpe = bpe_of([*pieces, "aa"], [*merges, ("a", "a")])
    start = time.process_time()
    ids = bpe.encode([text])
    assert time.process_time() - start < 2.0
    assert "".join(([*pieces, "aa"])[token_id] for token_id in ids) == text


def test_one_model_serves_many_threads() -> None:
    pieces, merges = ["a", "b", "ab", "abab"], [("a", "b"), ("ab", "ab")]
    bpe = bpe_of(pieces, merges)
    lines = ["ab" * length for length in range(400)]
    alone = bpe.encode(lines)
    results: list[list[int]] = []
    threads = [threading.Thread(target=lambda: results.append(bpe.encode(lines))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [alone] * 4
