"""What must be equal of two vocabularies for one model to guess for the other, and how a difference is told."""

import pytest

from tests.text.text_builders import CHATML, byte_level_tokenizer, sentencepiece_tokenizer
from twostroke.text.same_vocabulary import vocabulary_difference
from twostroke.text.tokenizer import Tokenizer

OWN = byte_level_tokenizer()


def test_a_vocabulary_is_the_same_as_itself_whichever_file_it_came_from() -> None:
    assert vocabulary_difference(OWN, byte_level_tokenizer()) is None


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (byte_level_tokenizer(user_defined=["<tool>"]), "vocabulary has 904 tokens, not 903"),
        (
            byte_level_tokenizer(control=(*CHATML[:2], "<|eot_id|>")),
            "token 2 is control token '<|eot_id|>', not control token '<|im_end|>'",
        ),
        (
            byte_level_tokenizer(eos_token_id=0),
            "EOS is 0, control token '<|endoftext|>', not 2, control token '<|im_end|>'",
        ),
    ],
)
def test_the_first_difference_is_told(other: Tokenizer, told: str) -> None:
    assert vocabulary_difference(OWN, other) == told


def test_a_control_token_is_not_the_same_as_its_text() -> None:
    own, other = byte_level_tokenizer(control=(*CHATML, "<x>")), byte_level_tokenizer(user_defined=("<x>",))
    assert vocabulary_difference(own, other) == "token 3 is '<x>', not control token '<x>'"


def test_pieces_are_compared_by_their_bytes() -> None:
    own = sentencepiece_tokenizer(("▁", "a"))
    assert vocabulary_difference(own, sentencepiece_tokenizer(("▁", "a"))) is None
    assert vocabulary_difference(own, sentencepiece_tokenizer(("▁", "b"))) == "token 260 is 'b', not 'a'"
