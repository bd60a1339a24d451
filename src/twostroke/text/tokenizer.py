"""Text to token ids and back: the one tokenizer type, whatever file it came from.

Built by `tokenizer_from_gguf` and `tokenizer_from_folder`; used by chat templates, the engine's streams
and `LLM`. It never turns text into a control token unless the caller allows it. Safe to share between threads.
"""

import codecs
import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from twostroke.errors import PromptError
from twostroke.text.control_text import ControlText
from twostroke.text.encoder import PlainEncoder
from twostroke.text.special_tokens import SpecialTokens
from twostroke.text.spelling import SpaceRule, Spelling
from twostroke.text.vocabulary import SPACE_PIECE, PieceStyle, Vocabulary

_SURROGATE = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """Encodes and decodes with one vocabulary.

    Rules: a lone surrogate in a text is read as U+FFFD, as an invalid byte would be (the doors, LLM and the
    server, refuse such text before it comes here). Bytes that are not
    UTF-8 decode to U+FFFD. A space the encoder puts before the first word is taken away again by `decode`.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        encoder: PlainEncoder,
        control: ControlText,
        special: SpecialTokens,
        space_rule: SpaceRule,
        shrink: int | None = 1,
    ) -> None:
        """`shrink`: bytes of text that the encoder's rules may make one byte of; None where there is no limit."""
        self.vocabulary = vocabulary
        self.control = control
        self.special = special
        self.space_rule = space_rule
        self._encoder = encoder
        self._shrink = shrink

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary)

    @property
    def control_ids(self) -> frozenset[int]:
        return self.vocabulary.control_ids

    @property
    def bos_id(self) -> int | None:
        return self.special.bos_id

    @property
    def eos_id(self) -> int | None:
        return self.special.eos_id

    @property
    def end_ids(self) -> frozenset[int]:
        """Every id the vocabulary itself ends an answer with."""
        return self.special.end_ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token; of a control token, its literal's."""
        return self.vocabulary.token_bytes(token_id)

    @cached_property
    def most_token_bytes(self) -> int | None:
        """Most bytes of `text_bytes` one token can stand for, control tokens aside; None where nothing is sure."""
        if self._shrink is None or (self._is_sentencepiece and self.vocabulary.missing_bytes):
            return None  # an unknown token may stand for any number of them
        return self._shrink * self.vocabulary.longest_token

    def text_bytes(self, pieces: Iterable[str | int]) -> int:
        """UTF-8 bytes of the plain texts, as tokens count them.

        SentencePiece spells a space as U+2581, so that one counts as a space; a byte-level encoder drops bytes
        it has no token for, so those count nothing.
        """
        texts = [piece for piece in pieces if isinstance(piece, str)]
        if self._is_sentencepiece:
            return sum(len(text.replace(SPACE_PIECE, " ").encode("utf-8", "replace")) for text in texts)
        dropped = self.vocabulary.missing_bytes
        return sum(len(text.encode("utf-8", "replace").translate(None, dropped)) for text in texts)

    @property
    def _is_sentencepiece(self) -> bool:
        return self.vocabulary.style is PieceStyle.SENTENCEPIECE

    def encode(self, text: str, *, allow_control: bool = False, add_bos: bool | None = None) -> list[int]:
        """Ids of a text.

        `allow_control`: control literals in the text become their tokens; else they stay plain text.
        `add_bos`: True, False, or None for what the model wants. A BOS the text itself begins with is
        not doubled. The ids may be empty; `encode_prompt` refuses that.
        """
        if not isinstance(text, str):
            raise PromptError(f"the prompt is of type {type(text).__name__}: it must be text, token ids or messages")
        text = _SURROGATE.sub("\ufffd", text)
        return self.encode_pieces(self.control.split(text) if allow_control else [text], add_bos=add_bos)

    def encode_inside(self, text: str) -> list[int]:
        """Ids of a text that goes on after another: no BOS, and no space of the encoder's before its first word."""
        return self._encoder.encode(_SURROGATE.sub("\ufffd", text), is_first=False)

    def encode_pieces(self, pieces: Iterable[str | int], *, add_bos: bool | None = None) -> list[int]:
        """Ids of plain texts and control ids in order; BOS as in `encode`."""
        ids: list[int] = []
        is_first = True
        for piece in pieces:
            if isinstance(piece, int):
                ids.append(piece)
            elif piece:
                ids.extend(self._encoder.encode(piece, is_first=is_first))
            is_first = False
        return self._with_bos(ids, self.special.adds_bos if add_bos is None else add_bos)

    def _with_bos(self, ids: list[int], add_bos: bool) -> list[int]:
        bos_id = self.special.bos_id
        if add_bos and bos_id is not None and ids[:1] != [bos_id]:
            return [bos_id, *ids]
        return ids

    def encode_prompt(self, prompt: str | Sequence[int], *, allow_control: bool = False) -> list[int]:
        """Ids of a raw prompt, text or ids; at least one.

        An empty text is BOS alone where the model wants a BOS, else PromptError: there is no token to
        continue from. Ids are taken as they are, and PromptError names one outside the vocabulary.
        """
        ids = self.encode(prompt, allow_control=allow_control) if isinstance(prompt, str) else self._checked(prompt)
        if not ids:
            raise PromptError("the prompt is empty: 0 tokens, and the model needs 1 to continue from; give some text")
        return ids

    def _checked(self, ids: object) -> list[int]:
        if not isinstance(ids, Sequence) or isinstance(ids, bytes | bytearray):
            raise PromptError(f"the prompt is of type {type(ids).__name__}: it must be text, token ids or messages")
        for position, token_id in enumerate(ids):
            if isinstance(token_id, bool) or not isinstance(token_id, int):
                raise PromptError(f"prompt[{position}] is {token_id!r}: a prompt of ids holds whole numbers only")
            if not 0 <= token_id < self.vocab_size:
                raise PromptError(
                    f"prompt[{position}] is {token_id}: the vocabulary has ids 0 to {self.vocab_size - 1}"
                )
        return list(ids)

    def decode(self, ids: Iterable[int], *, skip_control: bool = True, is_continuation: bool = False) -> str:
        """Text of ids. `skip_control` leaves control tokens out; else their literals are shown.

        `is_continuation`: the ids go on after other text, so their first space is theirs and stays.
        """
        spelling = Spelling(
            self.vocabulary, rule=self.space_rule, skip_control=skip_control, is_continuation=is_continuation
        )
        return codecs.decode(b"".join(map(spelling.next_bytes, ids)), "utf-8", "replace")
