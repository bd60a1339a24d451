"""Plain text to ids; control tokens are out of its reach.

The `tokenizers` library normalises a text and cuts it into pieces, our native byte-pair model merges each
piece. The model knows control tokens under names no text can spell, so whatever a user types, it cannot
produce their ids. Built by the GGUF and Hugging Face builders; called by Tokenizer.
"""

from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer as LibraryTokenizer
from tokenizers.models import Unigram
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from twostroke._native import BPE

_PIECE = 0  # what the cutter numbers a piece of text; added tokens count from 1


def hidden_key(token_id: int) -> str:
    """A name for a token that plain text must never become: a lone NUL before it is never looked up whole."""
    return f"\x00{token_id}\x00"


class PlainEncoder:
    """Encodes stretches of plain text.

    `later_pre_tokenizer` serves stretches that do not start the prompt, where a model treats the two
    differently (a space is put before the first word only). `added` are the user-defined tokens,
    found in any text; KeyError for one that is no piece of `bpe`.
    """

    def __init__(
        self,
        bpe: BPE,
        *,
        added: Sequence[AddedToken],
        normalizer: Normalizer | None,
        pre_tokenizer: PreTokenizer | None,
        later_pre_tokenizer: PreTokenizer | None = None,
    ) -> None:
        self._bpe = bpe
        self._first = _cutter(added, normalizer, pre_tokenizer)
        self._later = self._first
        if later_pre_tokenizer is not None:
            self._later = _cutter(added, normalizer, later_pre_tokenizer)
        self._added_ids = {self._first.token_to_id(token.content): bpe.id_of(token.content) for token in added}

    def encode(self, text: str, *, is_first: bool) -> list[int]:
        """Ids of one stretch. Cuts and merges with the interpreter lock released."""
        cutter = self._first if is_first else self._later
        cut = cutter.encode_batch([text], add_special_tokens=False)[0]
        pieces: list[str] = cut.tokens
        if not self._added_ids:
            return self._bpe.encode(pieces)
        ids: list[int] = []
        start = 0
        for place, number in enumerate(cut.ids):
            if number != _PIECE:
                ids += self._bpe.encode(pieces[start:place])
                ids.append(self._added_ids[number])
                start = place + 1
        return ids + self._bpe.encode(pieces[start:])


def _cutter(
    added: Sequence[AddedToken], normalizer: Normalizer | None, pre_tokenizer: PreTokenizer | None
) -> LibraryTokenizer:
    """The library's pipeline with a model that leaves pieces whole.

    To a Unigram model without words any piece is one unknown token, and of an unknown token it keeps the text.
    Unlike `pre_tokenize_str` the pipeline runs without the interpreter lock and finds the added tokens itself.
    """
    cutter = LibraryTokenizer(Unigram([("", 0.0)], _PIECE))
    if normalizer is not None:
        cutter.normalizer = normalizer
    if pre_tokenizer is not None:
        cutter.pre_tokenizer = pre_tokenizer
    if added:
        cutter.add_tokens(list(added))
    return cutter
