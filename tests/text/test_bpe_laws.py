"""Laws of the byte-pair model over random vocabularies: what must hold whatever the pieces and rules are."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st

from tests.examples import examples
from twostroke._native import BPE
from twostroke.text.byte_alphabet import BYTE_LEVEL_SPELLING, CHAR_OF_BYTE, bytes_of
from twostroke.text.merges import rules_from_scores, rules_from_strings

Rules = npt.NDArray[np.int32]
ALPHABET = [CHAR_OF_BYTE[byte] for byte in range(256)]
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30)
SOME_TEXT = st.text(alphabet="ab é\n🙂", max_size=40)


@st.composite
def byte_level(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str]]]:
    """All bytes and up to 30 pieces of what stands in "ab é\\n🙂"; a rule for each."""
    pieces = list(ALPHABET)
    merges: list[tuple[str, str]] = []
    seeds = [CHAR_OF_BYTE[byte] for byte in "ab é\n🙂".encode()]
    for _ in range(draw(st.integers(0, 30))):
        known = seeds + pieces[256:]
        left, right = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        if left + right not in pieces:
            pieces.append(left + right)
            merges.append((left, right))
    return pieces, draw(st.permutations(merges))


def rules_of(pieces: list[str], merges: list[tuple[str, str]]) -> Rules:
    return rules_from_strings(merges, id_of={piece: token_id for token_id, piece in enumerate(pieces)})


def model_of(vocabulary: tuple[list[str], list[tuple[str, str]]]) -> BPE:
    pieces, merges = vocabulary
    return BPE(pieces, rules_of(pieces, merges), spelling=BYTE_LEVEL_SPELLING)


@examples(50)
@given(byte_level(), SOME_TEXT | ANY_TEXT)
def test_bytes_of_the_ids_are_the_bytes_of_the_text(
    vocabulary: tuple[list[str], list[tuple[str, str]]], text: str
) -> None:
    ids = model_of(vocabulary).encode([text])
    assert b"".join(bytes_of(vocabulary[0][token_id]) for token_id in ids) == text.encode()


@examples(50)
@given(byte_level(), st.lists(SOME_TEXT, max_size=6))
def test_pieces_together_are_the_pieces_one_by_one(
    vocabulary: tuple[list[str], list[tuple[str, str]]], texts: list[str]
) -> None:
    model = model_of(vocabulary)
    assert model.encode(texts) == list(itertools.chain.from_iterable(model.encode([text]) for text in texts))


@examples(50)
@given(byte_level(), SOME_TEXT)
def test_no_rule_is_left_that_joins_two_neighbours(
    vocabulary: tuple[list[str], list[tuple[str, str]]], text: str
) -> None:
    pieces, merges = vocabulary
    ids = model_of(vocabulary).encode([text])
    assert not {(pieces[a], pieces[b]) for a, b in itertools.pairwise(ids)} & set(merges)


@examples(50)
@given(byte_level(), SOME_TEXT, st.randoms(use_true_random=False))
def test_other_numbers_for_the_same_pieces_are_the_same_pieces(
    vocabulary: tuple[list[str], list[tuple[str, str]]], text: str, random: object
) -> None:
    pieces, merges = vocabulary
    shuffled = list(pieces)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    mine, other = model_of(vocabulary).encode([text]), model_of((shuffled, merges)).encode([text])
    assert [pieces[token_id] for token_id in mine] == [shuffled[token_id] for token_id in other]


@examples(50)
@given(byte_level(), SOME_TEXT)
def test_tokens_no_rule_makes_change_nothing(vocabulary: tuple[list[str], list[tuple[str, str]]], text: str) -> None:
    pieces, merges = vocabulary
    more = [*pieces, "aé", "<|end|>", "", "\x00300\x00", "<0x41>"]
    assert model_of((more, merges)).encode([text]) == model_of(vocabulary).encode([text])


@examples(50)
@given(byte_level(), SOME_TEXT)
def test_spelling_is_what_the_caller_could_have_done(
    vocabulary: tuple[list[str], list[tuple[str, str]]], text: str
) -> None:
    pieces, merges = vocabulary
    spelled = "".join(CHAR_OF_BYTE[byte] for byte in text.encode())
    assert BPE(pieces, rules_of(pieces, merges)).encode([spelled]) == model_of(vocabulary).encode([text])


@examples(50)
@given(byte_level(), SOME_TEXT, st.sampled_from(["a", "ab", "Ġ", "Ċa"]))
def test_a_prefix_is_spelled_already_and_put_before_every_piece(
    vocabulary: tuple[list[str], list[tuple[str, str]]], text: str, prefix: str
) -> None:
    pieces, merges = vocabulary
    rules = rules_of(pieces, merges)
    spelled = prefix + "".join(CHAR_OF_BYTE[byte] for byte in text.encode())
    prefixed = BPE(pieces, rules, spelling=BYTE_LEVEL_SPELLING, prefix=prefix)
    assert prefixed.encode([text, text]) == BPE(pieces, rules).encode([spelled, spelled])


@examples(40)
@given(byte_level())
def test_every_piece_a_model_knows_is_found_and_is_itself_where_merges_are_ignored(
    vocabulary: tuple[list[str], list[tuple[str, str]]],
) -> None:
    pieces, merges = vocabulary
    model = BPE(pieces, rules_of(pieces, merges), ignore_merges=True)
    assert model.encode(pieces) == list(range(len(pieces)))
    assert [model.id_of(piece) for piece in pieces] == list(range(len(pieces)))


@pytest.mark.parametrize("num_letters", [1, 2, 3, 7, 8, 9, 70])
def test_vocabularies_of_every_size_find_all_they_hold(num_letters: int) -> None:
    """The index and the table of rules grow as they fill: nothing may be lost on the way."""
    letters = [chr(0x4E00 + number) for number in range(num_letters)]
    pairs = [left + right for left in letters for right in letters]
    pieces = letters + pairs
    model = BPE(pieces, rules_of(pieces, [(pair[0], pair[1]) for pair in pairs]))
    assert model.encode(pieces) == list(range(len(pieces)))
    assert [model.id_of(piece) for piece in pieces] == list(range(len(pieces)))
    for missing in (chr(0x4E00 + num_letters), pairs[-1] * 2, " ", ""):
        with pytest.raises(KeyError):
            model.id_of(missing)


@pytest.mark.parametrize("letter", ["a", "\x7f", "\x80", "é", "߿", "ࠀ", "中", "\uffff", "\U00010000", "\U0010ffff"])
def test_letters_at_the_borders_of_utf8_are_one_letter(letter: str) -> None:
    model = BPE(["x", letter, letter + "x"], np.array([(1, 0, 2)], np.int32))
    assert model.encode([letter, letter + letter, letter + "x", "x" + letter]) == [1, 1, 1, 2, 0, 1]
    assert model.id_of(letter) == 1


def test_text_with_nul_bytes_is_text() -> None:
    model = BPE(["\x00", "a", "\x00a", "a\x00b"], np.array([(0, 1, 2)], np.int32))
    assert model.encode(["\x00a\x00", "a\x00"]) == [2, 0, 1, 0]
    assert model.id_of("a\x00b") == 3


@given(st.lists(st.text("ab", min_size=1, max_size=4), unique=True, max_size=12), st.data())
def test_rules_from_scores_are_every_split_best_first(pieces: list[str], data: st.DataObject) -> None:
    scores = [data.draw(st.integers(-3, 0)) for _ in pieces]
    id_of = {piece: token_id for token_id, piece in enumerate(pieces)}
    rules = rules_from_scores(np.array(scores, np.float32), id_of=id_of).tolist()
    wanted = {
        (id_of[piece[:cut]], id_of[piece[cut:]], id_of[piece])
        for piece in pieces
        for cut in range(1, len(piece))
        if piece[:cut] in id_of and piece[cut:] in id_of
    }
    assert len(rules) == len(wanted)
    assert {tuple(rule) for rule in rules} == wanted
    keys = [(-scores[joint], joint, left) for left, _, joint in rules]
    assert [key[:2] for key in keys] == sorted(key[:2] for key in keys)


@given(st.lists(st.tuples(*[st.sampled_from("abc")] * 2), max_size=10), st.sets(st.integers(0, 5)))
def test_rules_about_tokens_left_out_are_left_out_and_the_others_keep_their_order(
    merges: list[tuple[str, str]], without: set[int]
) -> None:
    pieces = ["a", "b", "c", *map("".join, itertools.product("abc", repeat=2))]
    id_of = {piece: token_id for token_id, piece in enumerate(pieces)}
    every = rules_from_strings(merges, id_of=id_of)
    some = rules_from_strings([f"{left} {right}" for left, right in merges], id_of=id_of, without=without)
    assert some.tolist() == [rule for rule in every.tolist() if not without & set(rule)]
    assert some.dtype == every.dtype == np.int32
