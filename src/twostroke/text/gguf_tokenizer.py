"""Builds a Tokenizer from the metadata of a GGUF file.

Two vocabularies exist in practice: "gpt2" (byte-level BPE with merge rules and a named pre-tokenizer) and
"llama" (SentencePiece BPE with scores and byte fallback). Called when a model is loaded; reads no file.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken

from twostroke._native import BPE
from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.text.byte_alphabet import BYTE_LEVEL_SPELLING
from twostroke.text.control_text import ControlText, ControlToken
from twostroke.text.encoder import PlainEncoder, hidden_key
from twostroke.text.merges import MergeRules, rules_from_scores, rules_from_strings
from twostroke.text.pre_tokenizers import FALLBACK, recipe_for
from twostroke.text.special_tokens import SpecialTokens, end_literals, find_end_tokens
from twostroke.text.spelling import SpaceRule
from twostroke.text.tokenizer import Tokenizer
from twostroke.text.tokenizer_cache import CacheEntry, cached_entry
from twostroke.text.vocabulary import BYTE_PIECE, SPACE_PIECE, PieceStyle, TokenKind, Vocabulary

_PREFIX = "tokenizer.ggml."
_STYLES = {
    "gpt2": PieceStyle.BYTE_LEVEL,
    "llama": PieceStyle.SENTENCEPIECE,
    "gemma": PieceStyle.SENTENCEPIECE,
}
_SPACE_SPELLING = tuple(SPACE_PIECE.encode() if byte == ord(" ") else bytes([byte]) for byte in range(256))
_ID_KEYS = ("bos", "eos", "eot", "eom", "unknown", "padding")


def tokenizer_from_gguf(
    metadata: Mapping[str, Any],
    *,
    file: object = "GGUF metadata",
    cache_directory: Path | None = None,
    fingerprint: str | None = None,
) -> Tokenizer:
    """The tokenizer the `tokenizer.ggml.*` keys describe.

    `fingerprint` names the vocabulary in the cache (the digest of the file's header will do); without
    one the keys themselves are hashed. Raises ModelFileError naming `file` and the key, or
    UnsupportedModelError for another kind of vocabulary.
    """
    fields = _Fields(metadata, file)
    style = _STYLES.get(fields.model)
    if style is None:
        raise UnsupportedModelError(
            f"{file}: tokenizer model {fields.model!r} is not supported; supported are {', '.join(_STYLES)}"
        )
    vocabulary = Vocabulary(fields.tokens, fields.kinds(), style=style)
    if cache_directory is not None and fingerprint is None:
        fingerprint = fields.digest()
    build_rules = fields.spelled_rules if style is PieceStyle.BYTE_LEVEL else fields.scored_rules
    entry = cached_entry(
        cache_directory,
        fingerprint=f"gguf {fingerprint}",
        build=lambda: CacheEntry(build_rules(vocabulary)),
    )
    make = _byte_level if style is PieceStyle.BYTE_LEVEL else _sentencepiece
    return make(fields, vocabulary, entry.rules)


def _byte_level(fields: "_Fields", vocabulary: Vocabulary, rules: MergeRules) -> Tokenizer:
    recipe = recipe_for(fields.text("pre", FALLBACK))
    bpe = BPE(_reachable_keys(vocabulary), rules, spelling=BYTE_LEVEL_SPELLING, ignore_merges=recipe.ignore_merges)
    encoder = PlainEncoder(bpe, added=_added_tokens(vocabulary), normalizer=None, pre_tokenizer=recipe.build())
    return Tokenizer(
        vocabulary,
        encoder=encoder,
        control=_control_text(vocabulary),
        special=fields.special(vocabulary, adds_bos=recipe.add_bos),
        space_rule=SpaceRule.NONE,
    )


def _sentencepiece(fields: "_Fields", vocabulary: Vocabulary, rules: MergeRules) -> Tokenizer:
    """As llama.cpp reads such files: a space before every stretch of plain text, where the file wants one."""
    special = fields.special(vocabulary, adds_bos=True)
    has_prefix = fields.flag("add_space_prefix", True)
    bpe = BPE(
        _reachable_keys(vocabulary),
        rules,
        spelling=_SPACE_SPELLING,
        prefix=SPACE_PIECE if has_prefix else "",
        unk_id=special.unk_id,
        byte_fallback=True,
        fuse_unk=True,
    )
    encoder = PlainEncoder(bpe, added=_added_tokens(vocabulary), normalizer=None, pre_tokenizer=None)
    return Tokenizer(
        vocabulary,
        encoder=encoder,
        control=_control_text(vocabulary),
        special=special,
        space_rule=SpaceRule.STRETCH if has_prefix else SpaceRule.NONE,
    )


def _reachable_keys(vocabulary: Vocabulary) -> list[str]:
    """Pieces as text spells them; control, unknown and empty tokens get names no text can spell."""
    keys = list(vocabulary.tokens)
    for token_id in vocabulary.control_ids:
        keys[token_id] = hidden_key(token_id)
    for token_id in vocabulary.user_defined_ids:
        keys[token_id] = vocabulary.text_of(token_id)
    for token_id in _places(keys, ""):
        keys[token_id] = hidden_key(token_id)
    return keys


def _added_tokens(vocabulary: Vocabulary) -> list[AddedToken]:
    texts = map(vocabulary.text_of, sorted(vocabulary.user_defined_ids))
    return [AddedToken(text, normalized=False, special=False) for text in texts if text]


def _control_text(vocabulary: Vocabulary) -> ControlText:
    return ControlText(ControlToken(token_id, vocabulary.tokens[token_id]) for token_id in vocabulary.control_ids)


class _Fields:
    """Typed access to the tokenizer's keys."""

    def __init__(self, metadata: Mapping[str, Any], file: object) -> None:
        self._metadata = metadata
        self._file = file
        self.model = self.text("model", "")
        tokens = metadata.get(_PREFIX + "tokens")
        if tokens is None or isinstance(tokens, str):
            raise ModelFileError(file, f"key {_PREFIX + 'tokens'!r} is missing: without a vocabulary there is no text")
        self.tokens: list[str] = list(tokens)

    def text(self, name: str, default: str) -> str:
        value = self._metadata.get(_PREFIX + name, default)
        if not isinstance(value, str):
            raise ModelFileError(self._file, f"key {_PREFIX + name!r} is {value!r}; it must be a string")
        return value

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._metadata.get(_PREFIX + name, default))

    def token_id(self, name: str) -> int | None:
        """A special id; None where the file has none or says -1."""
        value = self._metadata.get(f"{_PREFIX}{name}_token_id")
        if value is None or int(value) == -1:
            return None
        if not 0 <= int(value) < len(self.tokens):
            raise ModelFileError(
                self._file, f"key '{_PREFIX}{name}_token_id' is {value}; ids go from 0 to {len(self.tokens) - 1}"
            )
        return int(value)

    def kinds(self) -> npt.NDArray[np.int32]:
        """Kinds of all tokens; what ends or begins a text counts as control whatever the file says."""
        stored = self._metadata.get(_PREFIX + "token_type")
        if stored is None:
            kinds = np.full(len(self.tokens), TokenKind.NORMAL, dtype=np.int32)
        else:
            kinds = np.array(stored, dtype=np.int32)
        self._check_length("token_type", len(kinds))
        ends = end_literals()
        control = {token_id for text in ends.intersection(self.tokens) for token_id in _places(self.tokens, text)}
        control |= {token_id for token_id in map(self.token_id, ("bos", "eos", "eot", "eom")) if token_id is not None}
        kinds[sorted(control)] = TokenKind.CONTROL
        return kinds

    def special(self, vocabulary: Vocabulary, *, adds_bos: bool) -> SpecialTokens:
        """Special ids; `adds_bos` is what this kind of vocabulary wants where the file does not say."""
        ids = {name: self.token_id(name) for name in _ID_KEYS}
        unk_id = ids["unknown"]
        if unk_id is None:
            unknown = np.flatnonzero(vocabulary.kinds == TokenKind.UNKNOWN)
            unk_id = int(unknown[0]) if len(unknown) else None
        named = SpecialTokens(
            bos_id=ids["bos"],
            eos_id=ids["eos"],
            eot_id=ids["eot"],
            eom_id=ids["eom"],
            unk_id=unk_id,
            pad_id=ids["padding"],
            adds_bos=ids["bos"] is not None and self.flag("add_bos_token", adds_bos),
        )
        return find_end_tokens({vocabulary.tokens[i]: i for i in vocabulary.control_ids}, named=named)

    def spelled_rules(self, vocabulary: Vocabulary) -> MergeRules:
        merges = self._metadata.get(_PREFIX + "merges")
        if merges is None:
            raise ModelFileError(self._file, f"key {_PREFIX + 'merges'!r} is missing: byte-level BPE needs merge rules")
        try:
            return rules_from_strings(
                list(merges), id_of=_lowest_ids(vocabulary.tokens), without=vocabulary.control_ids
            )
        except KeyError as error:
            raise ModelFileError(self._file, f"key {_PREFIX + 'merges'!r}: {error.args[0]}") from None

    def scored_rules(self, vocabulary: Vocabulary) -> MergeRules:
        scores = self._metadata.get(_PREFIX + "scores")
        if scores is None:
            raise ModelFileError(self._file, f"key {_PREFIX + 'scores'!r} is missing: SentencePiece needs scores")
        self._check_length("scores", len(scores))
        kinds = vocabulary.kinds.tolist()
        mergeable = {
            text: token_id
            for text, token_id in _lowest_ids(vocabulary.tokens).items()
            if kinds[token_id] == TokenKind.NORMAL and text and not BYTE_PIECE.fullmatch(text)
        }
        return rules_from_scores(np.asarray(scores, dtype=np.float32), id_of=mergeable)

    def digest(self) -> str:
        """Tells vocabularies apart: a hash over everything the rules are made of."""
        digest = hashlib.sha256(self.model.encode())
        digest.update("\0".join(self.tokens).encode("utf-8", "replace"))
        digest.update("\0".join(self._metadata.get(_PREFIX + "merges", ())).encode("utf-8", "replace"))
        for name in ("scores", "token_type"):
            digest.update(np.asarray(self._metadata.get(_PREFIX + name, ()), dtype=np.float32).tobytes())
        return digest.hexdigest()

    def _check_length(self, name: str, length: int) -> None:
        if length != len(self.tokens):
            raise ModelFileError(
                self._file,
                f"key {_PREFIX + name!r} has {length} elements, {_PREFIX + 'tokens'!r} has {len(self.tokens)}",
            )


def _places(tokens: Sequence[str], text: str) -> Iterator[int]:
    """Every id of a text; `index` looks faster than any loop of ours, and texts asked for are few."""
    place = -1
    with contextlib.suppress(ValueError):
        while True:
            place = tokens.index(text, place + 1)
            yield place


def _lowest_ids(tokens: Sequence[str]) -> dict[str, int]:
    return dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))
