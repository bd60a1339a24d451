"""Streaming: the joined pieces are the decoded whole, no character is cut, no piece is lost."""

import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.text.text_builders import USER_DEFINED, byte_level_tokenizer, sentencepiece_tokenizer
from twostroke.text.detokenizer import Detokenizer
from twostroke.text.tokenizer import Tokenizer

TOKENIZERS = {
    "byte level": byte_level_tokenizer(user_defined=("<|x|>",)),
    "sentencepiece": sentencepiece_tokenizer(("▁", "▁the", "▁cat", "▁▁", "cat", "é", "▁a"), user_defined=("<x>",)),
    "no prefix": sentencepiece_tokenizer(add_space_prefix=False),
}


def stream(tokenizer: Tokenizer, ids: list[int], **options: Any) -> list[str]:
    detokenizer = Detokenizer(tokenizer, **options)
    return [*map(detokenizer.push, ids), detokenizer.flush()]


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("skip_control", [True, False])
@pytest.mark.parametrize("is_continuation", [True, False])
def test_streamed_pieces_joined_are_the_decoded_list(name: str, skip_control: bool, is_continuation: bool) -> None:
    tokenizer, rng = TOKENIZERS[name], random.Random(8)
    options = {"skip_control": skip_control, "is_continuation": is_continuation}
    for _ in range(200):
        ids = [rng.randrange(tokenizer.vocab_size) for _ in range(rng.randint(1, 50))]
        ids = [rng.choice((1, 2, token_id)) if rng.random() < 0.3 else token_id for token_id in ids]
        assert "".join(stream(tokenizer, ids, **options)) == tokenizer.decode(ids, **options)


@given(st.lists(st.integers(0, 258), max_size=40), st.booleans())
def test_any_bytes_stream_as_they_decode_whole(ids: list[int], skip_control: bool) -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    assert "".join(stream(tokenizer, ids, skip_control=skip_control)) == tokenizer.decode(
        ids, skip_control=skip_control
    )


def test_an_unfinished_character_is_held_until_it_is_whole() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    robot = [3 + byte for byte in "🤖".encode()]
    assert stream(tokenizer, robot) == ["", "", "", "🤖", ""]
    assert stream(tokenizer, robot[:3]) == ["", "", "", "\ufffd"]
    assert stream(tokenizer, [*robot[:2], 3 + ord("a")]) == ["", "", "\ufffda", ""]


def test_stray_bytes_become_replacement_characters_at_once() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    assert stream(tokenizer, [3 + 0x80] * 4) == ["\ufffd"] * 4 + [""]


def test_word_initial_spaces_survive_token_by_token() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    the, cat = tokenizer.vocabulary.tokens.index("▁the"), tokenizer.vocabulary.tokens.index("▁cat")
    assert stream(tokenizer, [the, cat, cat]) == ["the", " cat", " cat", ""]
    assert stream(tokenizer, [the, cat], is_continuation=True) == [" the", " cat", ""]


def test_only_one_space_is_taken_from_the_start() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    two = tokenizer.vocabulary.tokens.index("▁▁")
    one = tokenizer.vocabulary.tokens.index("▁")
    cat = tokenizer.vocabulary.tokens.index("▁cat")
    assert stream(tokenizer, [two, cat]) == [" ", " cat", ""]
    assert stream(tokenizer, [one, cat]) == ["", " cat", ""]
    assert stream(TOKENIZERS["no prefix"], [TOKENIZERS["no prefix"].vocabulary.tokens.index("▁ab")]) == [" ab", ""]


def test_the_space_after_a_marker_is_the_encoders_and_goes_too() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    for text in ("<x>cat", "a<x>cat", "<x> cat", "<x><x>cat", "the cat<x>"):
        assert "".join(stream(tokenizer, tokenizer.encode(text))) == text


def test_control_tokens_are_hidden_or_shown_as_their_literals() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    cat = tokenizer.vocabulary.tokens.index("▁cat")
    assert stream(tokenizer, [1, cat, 2]) == ["", "cat", "", ""]
    assert stream(tokenizer, [1, cat, 2], skip_control=False) == ["<s>", "cat", "</s>", ""]


def test_bytes_around_a_hidden_control_token_still_join() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    first, second = (3 + byte for byte in "é".encode())
    assert "".join(stream(tokenizer, [first, 2, second])) == "é"
    assert "".join(stream(tokenizer, [first, 2, second], skip_control=False)) == "\ufffd</s>\ufffd"


@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 255, 1000])
def test_pieces_of_many_spaces_are_shown_whole(length: int) -> None:
    tokenizer = sentencepiece_tokenizer(("▁" * length,), add_space_prefix=False)
    token_id = tokenizer.vocab_size - 1
    assert stream(tokenizer, [token_id]) == [" " * length, ""]
    assert tokenizer.decode([token_id]) == " " * length
    assert tokenizer.token_bytes(token_id) == b" " * length


def test_a_piece_of_five_thousand_letters_is_shown_whole() -> None:
    tokenizer = sentencepiece_tokenizer(("x" * 5000,))
    assert stream(tokenizer, [tokenizer.vocab_size - 1]) == ["x" * 5000, ""]


def test_ids_beyond_the_tokens_of_a_padded_embedding_are_silent() -> None:
    tokenizer = TOKENIZERS["byte level"]
    assert stream(tokenizer, [tokenizer.vocab_size + 5]) == ["", ""]


def test_user_defined_tokens_are_shown_whatever_the_setting() -> None:
    tokenizer = TOKENIZERS["byte level"]
    marker = tokenizer.vocabulary.tokens.index("<|x|>")
    assert tokenizer.vocabulary.kinds[marker] == USER_DEFINED
    assert stream(tokenizer, [marker]) == ["<|x|>", ""]
