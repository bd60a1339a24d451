"""Bytes and texts of single tokens."""

import numpy as np
import pytest

from twostroke.text.byte_alphabet import BYTE_OF_CHAR, CHAR_OF_BYTE, bytes_of
from twostroke.text.special_tokens import SpecialTokens, find_end_tokens
from twostroke.text.vocabulary import PieceStyle, TokenKind, Vocabulary


def one(piece: str, kind: TokenKind, style: PieceStyle) -> Vocabulary:
    return Vocabulary([piece], np.array([kind], dtype=np.int32), style=style)


def test_the_byte_alphabet_has_one_printable_character_per_byte() -> None:
    assert sorted(CHAR_OF_BYTE) == list(range(256))
    assert len(BYTE_OF_CHAR) == 256
    assert all(char.isprintable() and not char.isspace() for char in BYTE_OF_CHAR)
    assert (CHAR_OF_BYTE[0x20], CHAR_OF_BYTE[0x0A], CHAR_OF_BYTE[0x41], CHAR_OF_BYTE[0xAD]) == ("Ġ", "Ċ", "A", "Ń")


def test_a_piece_with_a_foreign_character_is_its_own_text() -> None:
    assert bytes_of("Ġé") == b" \xe9"
    assert bytes_of("Ġ中") == "Ġ中".encode()
    assert bytes_of("a b") == b"a b"


@pytest.mark.parametrize(
    ("piece", "kind", "style", "expected"),
    [
        ("Ġab", TokenKind.NORMAL, PieceStyle.BYTE_LEVEL, b" ab"),
        ("Ã©", TokenKind.NORMAL, PieceStyle.BYTE_LEVEL, "é".encode()),
        ("Ġ<é>", TokenKind.CONTROL, PieceStyle.BYTE_LEVEL, "Ġ<é>".encode()),
        ("Ġx", TokenKind.USER_DEFINED, PieceStyle.BYTE_LEVEL, "Ġx".encode()),
        ("▁ab▁", TokenKind.NORMAL, PieceStyle.SENTENCEPIECE, b" ab "),
        ("<0x0A>", TokenKind.BYTE, PieceStyle.SENTENCEPIECE, b"\n"),
        ("<0xff>", TokenKind.NORMAL, PieceStyle.SENTENCEPIECE, b"\xff"),
        ("<0x0A>", TokenKind.CONTROL, PieceStyle.SENTENCEPIECE, b"<0x0A>"),
        ("<0x0AB>", TokenKind.NORMAL, PieceStyle.SENTENCEPIECE, b"<0x0AB>"),
        ("▁▁", TokenKind.USER_DEFINED, PieceStyle.SENTENCEPIECE, b"  "),
        ("▁", TokenKind.CONTROL, PieceStyle.SENTENCEPIECE, "▁".encode()),
        ("\ufffd", TokenKind.NORMAL, PieceStyle.SENTENCEPIECE, "\ufffd".encode()),
        ("", TokenKind.NORMAL, PieceStyle.BYTE_LEVEL, b""),
    ],
)
def test_a_token_stands_for_these_bytes(piece: str, kind: TokenKind, style: PieceStyle, expected: bytes) -> None:
    vocabulary = one(piece, kind, style)
    assert vocabulary.token_bytes(0) == expected
    assert vocabulary.token_bytes(0) is vocabulary.token_bytes(0)


def test_an_id_beyond_the_tokens_has_no_bytes() -> None:
    assert one("a", TokenKind.NORMAL, PieceStyle.BYTE_LEVEL).token_bytes(1) == b""


def test_unknown_tokens_count_as_control() -> None:
    assert one("<unk>", TokenKind.UNKNOWN, PieceStyle.SENTENCEPIECE).control_ids == {0}


def test_named_end_ids_come_before_known_literals() -> None:
    ids = {"<|im_end|>": 4, "<|eot_id|>": 5, "<|eom_id|>": 6, "<|endoftext|>": 7}
    found = find_end_tokens(ids, named=SpecialTokens(eos_id=1, eot_id=2, end_ids=frozenset({9})))
    assert (found.eot_id, found.eom_id) == (2, 6)
    assert found.end_ids == {1, 2, 4, 5, 6, 7, 9}
    assert find_end_tokens({}, named=SpecialTokens()).end_ids == frozenset()
