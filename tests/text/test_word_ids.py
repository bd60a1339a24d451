import pytest
from hypothesis import given, strategies as st

from tests.text.text_builders import byte_level_tokenizer, sentencepiece_tokenizer
from twostroke.errors import ParamsError
from twostroke.text.word_ids import WordIds

TOKENIZERS = [byte_level_tokenizer(), sentencepiece_tokenizer()]


def test_a_word_is_spelled_as_inside_a_text_and_behind_a_space() -> None:
    for tokenizer in TOKENIZERS:
        plain, spaced = WordIds(tokenizer).of_words(["the"])
        assert tokenizer.decode(plain, is_continuation=True) == "the"
        assert tokenizer.decode(spaced, is_continuation=True) == " the"


def test_ids_are_taken_as_they_are_and_nothing_is_there_twice() -> None:
    words = WordIds(TOKENIZERS[0])
    assert words.of_words([(1, 2), (1, 2), (3,)]) == ((1, 2), (3,))
    assert words.of_words(["a", "a"]) == words.of_words(["a"])
    assert words.of_words([]) == ()


def test_a_mark_is_every_token_that_has_it() -> None:
    for tokenizer in TOKENIZERS:
        found = set(WordIds(tokenizer).of_marks(("e",)))
        for token_id in range(tokenizer.vocab_size):
            assert ((token_id,) in found) == (b"e" in tokenizer.token_bytes(token_id))


@given(st.text("theo \n:é", min_size=1, max_size=4), st.text("theo \n:é", max_size=8))
def test_where_a_mark_was_just_spelled_out_some_sequence_ends(mark: str, before: str) -> None:
    """However the text is cut, as long as its mark's rest is spelled as usual."""
    tokenizer = TOKENIZERS[0]
    ids = tuple(tokenizer.encode_inside(before)) + tuple(tokenizer.encode_inside(mark))
    marks = WordIds(tokenizer).of_marks((mark,))
    assert any(ids[len(ids) - len(each) :] == each for each in marks if len(each) <= len(ids))


def test_marks_and_their_rests_are_those_of_the_definition() -> None:
    for tokenizer in TOKENIZERS:
        words, marks = WordIds(tokenizer), ("the", "to", "e\n")
        expected: set[tuple[int, ...]] = set()
        for token_id in range(tokenizer.vocab_size):
            token = tokenizer.token_bytes(token_id)
            if any(mark.encode() in token for mark in marks):
                expected.add((token_id,))
                continue
            for mark in marks:
                for size in range(1, len(mark)):
                    if token.endswith(mark[:size].encode()):
                        expected.add((token_id, *words.of_words([mark[size:]])[0]))
        assert set(words.of_marks(marks)) == expected


def test_a_long_mark_is_looked_for_no_further_than_tokens_reach() -> None:
    tokenizer = TOKENIZERS[0]
    found = WordIds(tokenizer).of_marks(("the" * 20,) * 64)
    assert len(found) == len(set(found)) <= 3 * tokenizer.vocab_size


class Letters:
    """A vocabulary of a token per byte and `count` more that end with "a"; counts what it encodes."""

    def __init__(self, count: int) -> None:
        self.tokens = [*(bytes([byte]) for byte in range(256)), *(b"%da" % number for number in range(count))]
        self.vocab_size = len(self.tokens)
        self.num_encoded = 0

    def token_bytes(self, token_id: int) -> bytes:
        return self.tokens[token_id]

    def encode_inside(self, text: str) -> list[int]:
        self.num_encoded += 1
        return list(text.encode())


def test_a_rest_is_spelled_once_however_many_tokens_end_with_a_marks_beginning() -> None:
    letters = Letters(1000)
    found = WordIds(letters).of_marks(("abc", "abd"))  # type: ignore[arg-type]
    assert len(found) == 2 * 1001  # every token that ends with "a", twice: before "bc" and before "bd"
    assert letters.num_encoded == 2 * 2  # a line end and the rest behind it


def test_marks_that_begin_in_too_many_tokens_are_refused_before_an_answer_has_to_hold_them() -> None:
    few, many = (WordIds(Letters(count)) for count in (2**14 - 1, 2**14))  # type: ignore[arg-type]
    assert len(few.of_marks(("ab",))) == 2**14
    with pytest.raises(ParamsError, match="in more than 16384 ways, the limit") as refused:
        many.of_marks(("ab",))
    assert refused.value.field == "dry_sequence_breakers"


def test_the_vocabulary_is_looked_through_once_for_the_same_marks() -> None:
    words = WordIds(TOKENIZERS[0])
    assert words.of_marks((":",)) is words.of_marks((":",))
