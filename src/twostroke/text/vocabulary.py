"""What each token id stands for: its text, its kind and its bytes.

Built by the GGUF and Hugging Face builders; read by Tokenizer and Detokenizer. Bytes of a token are
computed when first asked and kept, so a vocabulary of any size costs nothing to open. It never encodes.
"""

import re
from collections.abc import Sequence
from enum import IntEnum, StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from twostroke.text.byte_alphabet import bytes_of

SPACE_PIECE = "▁"  # how SentencePiece writes a space
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenKind(IntEnum):
    """Kinds of a token, with the numbers GGUF stores."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class PieceStyle(StrEnum):
    """How a normal piece spells its bytes."""

    BYTE_LEVEL = "byte_level"  # one alphabet character per byte
    SENTENCEPIECE = "sentencepiece"  # text with U+2581 for a space, <0xNN> for a lone byte


class Vocabulary:
    """Token texts and kinds by id.

    `kinds` is an int array of TokenKind numbers, one per token. Unknown tokens count as control: text
    never becomes one and `skip_control` hides them.
    """

    def __init__(self, tokens: Sequence[str], kinds: npt.NDArray[np.int32], *, style: PieceStyle) -> None:
        assert len(tokens) == len(kinds), (len(tokens), len(kinds))
        self.tokens = tokens
        self.kinds = kinds
        self.style = style
        self._bytes: list[bytes | None] = [None] * len(tokens)
        hidden = (kinds == TokenKind.CONTROL) | (kinds == TokenKind.UNKNOWN)
        self.control_ids = frozenset(np.flatnonzero(hidden).tolist())
        self.user_defined_ids = frozenset(np.flatnonzero(kinds == TokenKind.USER_DEFINED).tolist())

    def __len__(self) -> int:
        return len(self.tokens)

    def text_of(self, token_id: int) -> str:
        """The literal a control or user-defined token is written as; the raw piece of any other."""
        text = self.tokens[token_id]
        if token_id in self.user_defined_ids and self.style is PieceStyle.SENTENCEPIECE:
            return text.replace(SPACE_PIECE, " ")
        return text

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes this token adds to the output; none for an id of a padded embedding beyond the tokens."""
        if token_id >= len(self.tokens):
            return b""
        known = self._bytes[token_id]
        if known is None:
            known = self._bytes[token_id] = self._compute_bytes(token_id)
        return known

    @cached_property
    def longest_token(self) -> int:
        """Bytes of the longest token that plain text may become."""
        longest = 1
        for token_id, piece in enumerate(self.tokens):
            if 4 * len(piece) > longest and token_id not in self.control_ids:  # a character has 4 bytes at most
                longest = max(longest, len(self.token_bytes(token_id)))
        return longest

    @cached_property
    def missing_bytes(self) -> bytes:
        """Bytes without a token of their own: an encoder drops them or makes them unknown."""
        single = (
            self.token_bytes(token_id)
            for token_id, piece in enumerate(self.tokens)
            if (len(piece) == 1 if self.style is PieceStyle.BYTE_LEVEL else BYTE_PIECE.fullmatch(piece))
            and token_id not in self.control_ids
        )
        return bytes(set(range(256)).difference(*single))

    def _compute_bytes(self, token_id: int) -> bytes:
        if token_id in self.control_ids or token_id in self.user_defined_ids:
            return self.text_of(token_id).encode("utf-8", "replace")
        piece = self.tokens[token_id]
        if self.style is PieceStyle.BYTE_LEVEL:
            return bytes_of(piece)
        byte = BYTE_PIECE.fullmatch(piece)
        if byte:
            return bytes([int(byte[1], 16)])
        return piece.replace(SPACE_PIECE, " ").encode("utf-8", "replace")
