"""Plain text to ids with the `tokenizers` library; control tokens are out of its reach.

The library sees control tokens under names no text can spell, so whatever a user types, it cannot
produce their ids. Built from a recipe by the GGUF and Hugging Face builders; called by Tokenizer.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from tokenizers import AddedToken, Tokenizer as LibraryTokenizer
from tokenizers.models import BPE, Model
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from twostroke.text.merges import Pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class BPERecipe:
    """A BPE model: `keys` are the pieces by id (hidden ones under unspellable names)."""

    keys: list[str]
    pairs: Pairs
    unk_id: int | None = None
    byte_fallback: bool = False
    fuse_unk: bool = False
    ignore_merges: bool = False

    def build(self) -> Model:
        keys = self.keys
        vocab = dict(zip(keys, range(len(keys)), strict=True))
        if len(vocab) < len(keys):  # of equal keys the lowest id wins
            vocab = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))
        pieces = np.array(keys, dtype=object)
        with collector_paused():
            return BPE(
                vocab=vocab,
                merges=list(zip(pieces[self.pairs[:, 0]], pieces[self.pairs[:, 1]], strict=True)),
                unk_token=None if self.unk_id is None else keys[self.unk_id],
                byte_fallback=self.byte_fallback,
                fuse_unk=self.fuse_unk,
                ignore_merges=self.ignore_merges,
            )


@contextmanager
def collector_paused() -> Iterator[None]:
    """Hundreds of thousands of new tuples, none of them garbage: searching them for cycles takes long."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def hidden_key(token_id: int) -> str:
    """A name for a token that plain text must never become: a lone NUL before it is never looked up whole."""
    return f"\x00{token_id}\x00"


class PlainEncoder:
    """Encodes stretches of plain text.

    `later_pre_tokenizer` serves stretches that do not start the prompt, where a model treats the two
    differently (a space is put before the first word only). `added` are the user-defined tokens,
    found in any text.
    """

    def __init__(
        self,
        model: Model,
        *,
        added: Sequence[AddedToken],
        normalizer: Normalizer | None,
        pre_tokenizer: PreTokenizer | None,
        later_pre_tokenizer: PreTokenizer | None = None,
    ) -> None:
        self._first = _assemble(model, added, normalizer, pre_tokenizer)
        self._later = self._first
        if later_pre_tokenizer is not None:
            self._later = _assemble(model, added, normalizer, later_pre_tokenizer)

    def encode(self, text: str, *, is_first: bool) -> list[int]:
        """Ids of one stretch. Runs with the interpreter lock released."""
        backend = self._first if is_first else self._later
        return list(backend.encode_batch_fast([text], add_special_tokens=False)[0].ids)


def _assemble(
    model: Model,
    added: Sequence[AddedToken],
    normalizer: Normalizer | None,
    pre_tokenizer: PreTokenizer | None,
) -> LibraryTokenizer:
    backend = LibraryTokenizer(model)
    if normalizer is not None:
        backend.normalizer = normalizer
    if pre_tokenizer is not None:
        backend.pre_tokenizer = pre_tokenizer
    if added:
        backend.add_tokens(list(added))
    return backend
