"""The bytes a run of tokens adds up to, one token at a time.

Owns the rule for the space an encoder puts before words and a decoder takes away again. `decode` and the
streaming detokenizer both walk tokens with it, so they cannot differ.
"""

from collections.abc import Collection
from enum import StrEnum

from twostroke.text.vocabulary import Vocabulary


class SpaceRule(StrEnum):
    """Where encoding puts a space of its own before the text, hence where decoding takes one away."""

    NONE = "none"
    START = "start"  # before the first word of the prompt
    STRETCH = "stretch"  # also after every control or user-defined token


class Spelling:
    """State of one walk over tokens: whether the next piece may lose its first space."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        rule: SpaceRule,
        skip_control: bool,
        is_continuation: bool = False,
        shown_ids: Collection[int] = (),
    ) -> None:
        """`shown_ids` are control tokens that are never skipped."""
        self._vocabulary = vocabulary
        self._rule = rule
        self._skip_control = skip_control
        self._shown_ids = shown_ids
        self._takes_space = rule is not SpaceRule.NONE and not is_continuation

    def next_bytes(self, token_id: int) -> bytes:
        """What this token adds to the output."""
        vocabulary = self._vocabulary
        if token_id in vocabulary.control_ids:
            is_shown = not self._skip_control or token_id in self._shown_ids
            self._after_marker(is_shown=is_shown)
            return vocabulary.token_bytes(token_id) if is_shown else b""
        piece = vocabulary.token_bytes(token_id)
        if self._rule is SpaceRule.NONE:
            return piece
        if token_id in vocabulary.user_defined_ids:
            self._after_marker(is_shown=True)
        elif self._takes_space and piece:
            self._takes_space = False
            return piece.removeprefix(b" ")
        return piece

    def _after_marker(self, *, is_shown: bool) -> None:
        if self._rule is SpaceRule.STRETCH:
            self._takes_space = True
        elif is_shown:
            self._takes_space = False
