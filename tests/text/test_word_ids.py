from hypothesis import given, strategies as st

from tests.text.text_builders import byte_level_tokenizer, sentencepiece_tokenizer
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


def test_the_vocabulary_is_looked_through_once_for_the_same_marks() -> None:
    words = WordIds(TOKENIZERS[0])
    assert words.of_marks((":",)) is words.of_marks((":",))
