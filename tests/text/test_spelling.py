"""The bytes of a walk over tokens: where a space that encoding put there is taken away again, and what is shown."""

import numpy as np
import pytest

from twostroke.text.spelling import SpaceRule, Spelling
from twostroke.text.vocabulary import PieceStyle, TokenKind, Vocabulary

PIECES = ["▁a", "▁b", "c", "<s>", "▁<u>", "", "▁▁d", "<0x20>"]
A, B, C, CONTROL, USER, EMPTY, TWO_SPACES, SPACE = range(8)
KINDS = [TokenKind.NORMAL] * 3 + [TokenKind.CONTROL, TokenKind.USER_DEFINED] + [TokenKind.NORMAL] * 2 + [TokenKind.BYTE]
VOCABULARY = Vocabulary(PIECES, np.array(KINDS, np.int32), style=PieceStyle.SENTENCEPIECE)


def spelled(*token_ids: int, rule: SpaceRule, skip_control: bool = True, **options: object) -> str:
    spelling = Spelling(VOCABULARY, rule=rule, skip_control=skip_control, **options)  # type: ignore[arg-type]
    return b"".join(map(spelling.next_bytes, token_ids)).decode()


@pytest.mark.parametrize(
    ("rule", "text"), [(SpaceRule.NONE, " a b"), (SpaceRule.START, "a b"), (SpaceRule.STRETCH, "a b")]
)
def test_the_first_word_loses_its_space_where_encoding_put_one(rule: SpaceRule, text: str) -> None:
    assert spelled(A, B, rule=rule) == text


@pytest.mark.parametrize("rule", SpaceRule)
def test_an_answer_that_goes_on_keeps_every_space(rule: SpaceRule) -> None:
    assert spelled(A, B, rule=rule, is_continuation=True) == " a b"


@pytest.mark.parametrize("rule", [SpaceRule.START, SpaceRule.STRETCH])
def test_one_space_is_taken_and_only_from_the_first_piece_that_says_something(rule: SpaceRule) -> None:
    assert spelled(TWO_SPACES, B, rule=rule) == " d b"
    assert spelled(C, A, rule=rule) == "c a", "a first piece without a space has used it up"
    assert spelled(EMPTY, EMPTY, A, rule=rule) == "a", "a piece of nothing has not"
    assert spelled(SPACE, A, rule=rule) == " a", "a lone byte is a piece too"


@pytest.mark.parametrize(
    ("rule", "hidden", "shown"),
    [(SpaceRule.NONE, " a b", " a<s> b"), (SpaceRule.START, "a b", "a<s> b"), (SpaceRule.STRETCH, "ab", "a<s>b")],
)
def test_behind_a_control_token_a_new_stretch_begins_for_one_rule_alone(
    rule: SpaceRule, hidden: str, shown: str
) -> None:
    assert spelled(A, CONTROL, B, rule=rule) == hidden
    assert spelled(A, CONTROL, B, rule=rule, skip_control=False) == shown
    assert spelled(A, CONTROL, B, rule=rule, shown_ids={CONTROL}) == shown, "shown whatever skip_control says"


def test_a_hidden_token_before_the_first_word_leaves_it_the_first() -> None:
    assert spelled(CONTROL, A, rule=SpaceRule.START) == "a"
    assert spelled(CONTROL, A, rule=SpaceRule.START, skip_control=False) == "<s> a"


@pytest.mark.parametrize(
    ("rule", "text"), [(SpaceRule.NONE, " <u> a"), (SpaceRule.START, " <u> a"), (SpaceRule.STRETCH, " <u>a")]
)
def test_a_users_own_token_is_text_to_the_letter_and_a_mark_between_stretches(rule: SpaceRule, text: str) -> None:
    assert spelled(USER, A, rule=rule) == text


@pytest.mark.parametrize("rule", SpaceRule)
def test_an_id_of_a_padded_embedding_says_nothing(rule: SpaceRule) -> None:
    assert spelled(A, 10**6, B, rule=rule) == spelled(A, B, rule=rule)
