"""Builds a Tokenizer from the tokenizer.json of a Hugging Face folder.

The file's own normalizer, pre-tokenizer and added tokens are used as they are; control tokens are taken
out and handled by Tokenizer. What was parsed is cached, as the file is slow to read. Called when a model
is loaded.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer as LibraryTokenizer
from tokenizers.pre_tokenizers import PreTokenizer

from twostroke._native import BPE
from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.text.control_text import ControlText, ControlToken
from twostroke.text.encoder import PlainEncoder, hidden_key
from twostroke.text.merges import MergeRules, rules_from_strings
from twostroke.text.special_tokens import SpecialTokens, end_literals, find_end_tokens
from twostroke.text.spelling import SpaceRule
from twostroke.text.tokenizer import Tokenizer
from twostroke.text.tokenizer_cache import CacheEntry, cached_entry
from twostroke.text.vocabulary import BYTE_PIECE, SPACE_PIECE, PieceStyle, TokenKind, Vocabulary

_FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
_EMPTY_PIPELINE: Mapping[str, Any] = {
    "version": "1.0",
    "added_tokens": [],
    **dict.fromkeys(("truncation", "padding", "post_processor", "decoder")),
    "model": {"type": "BPE", "vocab": {}, "merges": []},
}


def tokenizer_from_folder(
    tokenizer_json: Path,
    config: Mapping[str, Any],
    *,
    eos_token_ids: Sequence[int] = (),
    cache_directory: Path | None = None,
) -> Tokenizer:
    """The tokenizer of a folder: its tokenizer.json, `config` from tokenizer_config.json.

    `eos_token_ids` are those of generation_config.json; they end answers too. Raises ModelFileError with
    the file and what is wrong in it, UnsupportedModelError where the model in it is not BPE.
    """
    content = tokenizer_json.read_bytes()
    named = json.dumps([config, list(eos_token_ids)], sort_keys=True, default=str)
    fingerprint = hashlib.sha256(content + named.encode()).hexdigest() if cache_directory else ""

    def build() -> CacheEntry:
        return _TokenizerFile(tokenizer_json, content).entry(config, eos_token_ids)

    entry = cached_entry(cache_directory, fingerprint=f"folder {fingerprint}", build=build)
    try:
        return _assemble(entry)
    except Exception as error:  # noqa: BLE001 - the tokenizers library raises nothing narrower
        raise ModelFileError(tokenizer_json, f"no tokenizer can be made of it: {error}") from None


def _assemble(entry: CacheEntry) -> Tokenizer:
    facts = entry.facts
    tokens: list[str] = facts["tokens"]
    kinds = np.full(len(tokens), TokenKind.NORMAL, dtype=np.int32)
    for token_id, kind in facts["kinds"]:
        kinds[token_id] = kind
    vocabulary = Vocabulary(tokens, kinds, style=PieceStyle(facts["style"]))
    flags: dict[str, dict[str, bool]] = facts["flags"]
    keys = list(tokens)
    for token_id in vocabulary.control_ids | set(facts["holes"]):
        keys[token_id] = hidden_key(token_id)
    pipeline = LibraryTokenizer.from_str(facts["pipeline"])
    encoder = PlainEncoder(
        BPE(keys, entry.rules, **facts["model"]),
        added=[AddedToken(text, special=False, **options) for text, options in facts["added"]],
        normalizer=pipeline.normalizer,
        pre_tokenizer=pipeline.pre_tokenizer,
        later_pre_tokenizer=_pre_tokenizer(facts["later_pipeline"]),
    )
    control = [
        ControlToken(token_id, tokens[token_id], **flags.get(str(token_id), {}))
        for token_id in sorted(vocabulary.control_ids)
    ]
    special = dict(facts["special"])
    named = SpecialTokens(**{**special, "end_ids": frozenset(special["end_ids"])})
    return Tokenizer(
        vocabulary,
        encoder=encoder,
        control=ControlText(control),
        special=find_end_tokens({token.text: token.token_id for token in control}, named=named),
        space_rule=SpaceRule(facts["space_rule"]),
        shrink=_shrink(facts),
    )


def _pre_tokenizer(pipeline: str | None) -> PreTokenizer | None:
    return None if pipeline is None else LibraryTokenizer.from_str(pipeline).pre_tokenizer


def _shrink(facts: Mapping[str, Any]) -> int | None:
    """Bytes of text the file's rules may make one byte of; None where they may drop any number.

    NFC composes a Hangul syllable of 3 letters, 9 bytes, into 3; nothing composes better.
    """
    pipeline = json.loads(facts["pipeline"])
    steps = [*_steps(pipeline["normalizer"], "normalizers"), *_steps(pipeline["pre_tokenizer"], "pretokenizers")]
    is_unsure = facts["style"] != PieceStyle.BYTE_LEVEL and not facts["model"]["byte_fallback"]
    swallows = any(options["lstrip"] or options["rstrip"] for _, options in facts["added"])
    if is_unsure or swallows or not all(_keeps_text(step) for step in steps):
        return None
    return 3 if any(step["type"] == "NFC" for step in steps) else 1


def _keeps_text(step: Mapping[str, Any]) -> bool:
    match step.get("type"):
        case "NFC" | "ByteLevel" | "Prepend" | "Digits":
            return True
        case "Metaspace":
            return step.get("replacement") == SPACE_PIECE
        case "Replace":
            return step.get("pattern") == {"String": " "} and step.get("content") == SPACE_PIECE
        case "Split" | "Punctuation":
            return step.get("behavior") != "Removed"
    return False


class _TokenizerFile:
    """A parsed tokenizer.json."""

    def __init__(self, file: Path, content: bytes) -> None:
        self._file = file
        try:
            self._data: dict[str, Any] = json.loads(content)
            self._model: dict[str, Any] = self._data["model"]
            self._vocab: dict[str, int] = self._model["vocab"]
            self._added: list[dict[str, Any]] = self._data.get("added_tokens") or []
        except (ValueError, KeyError, TypeError) as error:
            raise ModelFileError(file, f"not a tokenizer.json: {type(error).__name__}: {error}") from None
        self._check_ids()
        kind = self._model.get("type", "BPE" if "merges" in self._model else "unknown")
        if kind != "BPE" or self._model.get("continuing_subword_prefix") or self._model.get("end_of_word_suffix"):
            raise UnsupportedModelError(
                f"{file}: tokenizer model {kind!r} is not supported; supported is BPE without word prefixes or suffixes"
            )

    def _check_ids(self) -> None:
        vocab: object = self._vocab
        tokens: list[tuple[object, object]] = [*vocab.items()] if isinstance(vocab, dict) else [("vocab", None)]
        tokens += [(token.get("content"), token.get("id")) for token in self._added]
        for text, token_id in tokens:
            if not isinstance(text, str) or not isinstance(token_id, int) or token_id < 0:
                raise ModelFileError(self._file, f"token {text!r} has the id {token_id!r}; it must be a whole number")

    def entry(self, config: Mapping[str, Any], eos_token_ids: Sequence[int]) -> CacheEntry:
        """Everything the tokenizer is made of, for the cache."""
        tokens, holes = self._tokens()
        id_of = {text: token_id for token_id, text in reversed(list(enumerate(tokens)))}
        special = self._special(config, id_of, eos_token_ids)
        kinds = self._kinds(id_of, special)
        unk = self._model.get("unk_token")
        facts = {
            "tokens": tokens,
            "holes": holes,
            "kinds": sorted(kinds.items()),
            "style": self._style(),
            "space_rule": self._space_rule(),
            "pipeline": self._pipeline(later=False),
            "later_pipeline": self._pipeline(later=True) if self._space_rule() is SpaceRule.START else None,
            "model": {
                "unk_id": id_of.get(unk) if unk else None,
                **{name: bool(self._model.get(name)) for name in ("byte_fallback", "fuse_unk", "ignore_merges")},
            },
            "added": self._user_defined(kinds),
            "flags": {str(token["id"]): {name: bool(token.get(name)) for name in _FLAGS[:3]} for token in self._added},
            "special": special,
        }
        return CacheEntry(self._rules(kinds), facts)

    def _tokens(self) -> tuple[list[str], list[int]]:
        """Texts by id, and the ids nothing is named for."""
        texts = {token_id: text for text, token_id in self._vocab.items()}
        texts |= {token["id"]: token["content"] for token in self._added}
        size = max(texts, default=-1) + 1
        if size > 4 * len(texts) + 1024:
            raise ModelFileError(self._file, f"ids go up to {size - 1} with {len(texts)} tokens: too many holes")
        holes = [token_id for token_id in range(size) if not texts.get(token_id)]
        return [texts.get(token_id, "") for token_id in range(size)], holes

    def _rules(self, kinds: Mapping[int, int]) -> MergeRules:
        hidden = {token_id for token_id, kind in kinds.items() if kind in (TokenKind.CONTROL, TokenKind.UNKNOWN)}
        try:
            return rules_from_strings(self._model.get("merges") or [], id_of=self._vocab, without=hidden)
        except KeyError as error:
            raise ModelFileError(self._file, str(error.args[0])) from None
        except (TypeError, ValueError) as error:
            raise ModelFileError(self._file, f"merges must be pairs of pieces: {error}") from None

    def _kinds(self, id_of: Mapping[str, int], special: Mapping[str, Any]) -> dict[int, int]:
        """Kinds of all tokens that are not normal; what begins or ends a text is control whatever the file says."""
        kinds: dict[int, int] = {
            token_id: TokenKind.BYTE for text, token_id in self._vocab.items() if BYTE_PIECE.fullmatch(text)
        }
        for token in self._added:
            kinds[token["id"]] = TokenKind.CONTROL if token.get("special") else TokenKind.USER_DEFINED
        ends = {id_of[text] for text in end_literals() if text in id_of}
        for token_id in (*ends, special["bos_id"], special["eos_id"]):
            if token_id is not None:
                kinds[token_id] = TokenKind.CONTROL
        unk: str = self._model.get("unk_token") or ""
        if unk in id_of:
            kinds[id_of[unk]] = TokenKind.UNKNOWN
        return kinds

    def _user_defined(self, kinds: Mapping[int, int]) -> list[tuple[str, dict[str, bool]]]:
        return [
            (token["content"], {name: bool(token.get(name)) for name in _FLAGS})
            for token in self._added
            if kinds[token["id"]] == TokenKind.USER_DEFINED and token["content"]
        ]

    def _special(
        self, config: Mapping[str, Any], id_of: Mapping[str, int], eos_token_ids: Sequence[int]
    ) -> dict[str, Any]:
        ids = {f"{name}_id": id_of.get(_literal(config.get(f"{name}_token"))) for name in ("bos", "eos", "pad", "unk")}
        first = self._first_of_template()
        if ids["bos_id"] is None and first is not None:
            ids["bos_id"] = id_of.get(first)
        wanted = config.get("add_bos_token")
        adds_bos = first is not None if wanted is None else bool(wanted)
        return {**ids, "adds_bos": adds_bos and ids["bos_id"] is not None, "end_ids": list(eos_token_ids)}

    def _first_of_template(self) -> str | None:
        """The special token the file's post-processor puts before a text."""
        for step in _steps(self._data.get("post_processor"), "processors"):
            single = step.get("single") if step.get("type") == "TemplateProcessing" else None
            if single and "SpecialToken" in single[0]:
                return str(single[0]["SpecialToken"]["id"])
        return None

    def _style(self) -> PieceStyle:
        """By what the encoding side produces: a decoder in the file may say otherwise and be wrong."""
        steps = [*self._pre_tokenizer_steps(), *_steps(self._data.get("normalizer"), "normalizers")]
        is_byte_level = any(step.get("type") == "ByteLevel" for step in steps)
        return PieceStyle.BYTE_LEVEL if is_byte_level else PieceStyle.SENTENCEPIECE

    def _space_rule(self) -> SpaceRule:
        rules = {_space_rule_of(step) for step in self._pre_tokenizer_steps()}
        if any(step.get("type") == "Prepend" for step in _steps(self._data.get("normalizer"), "normalizers")):
            rules.add(SpaceRule.STRETCH)
        return next((rule for rule in (SpaceRule.STRETCH, SpaceRule.START) if rule in rules), SpaceRule.NONE)

    def _pre_tokenizer_steps(self) -> Iterator[dict[str, Any]]:
        return _steps(self._data.get("pre_tokenizer"), "pretokenizers")

    def _pipeline(self, *, later: bool) -> str:
        """The file's normalizer and pre-tokenizer for the library; `later`: no space before the first word."""
        pre_tokenizer = json.loads(json.dumps(self._data.get("pre_tokenizer")))
        if later:
            for step in _steps(pre_tokenizer, "pretokenizers"):
                if step.get("type") == "Metaspace":
                    step.update(prepend_scheme="never", add_prefix_space=False)
        steps = {"normalizer": self._data.get("normalizer"), "pre_tokenizer": pre_tokenizer}
        return json.dumps({**_EMPTY_PIPELINE, **steps})


def _space_rule_of(step: Mapping[str, Any]) -> SpaceRule:
    if step.get("type") == "ByteLevel" and step.get("add_prefix_space"):
        return SpaceRule.STRETCH
    if step.get("type") == "Metaspace":
        scheme = step.get("prepend_scheme") or ("always" if step.get("add_prefix_space", True) else "never")
        return {"always": SpaceRule.STRETCH, "first": SpaceRule.START}.get(scheme, SpaceRule.NONE)
    return SpaceRule.NONE


def _steps(stage: Mapping[str, Any] | None, members: str) -> Iterator[dict[str, Any]]:
    """The stage itself, or the members of a sequence, at any depth."""
    if not stage:
        return
    if stage.get("type") == "Sequence":
        for member in stage.get(members, ()):
            yield from _steps(member, members)
    else:
        yield dict(stage) if not isinstance(stage, dict) else stage


def _literal(token: object) -> str:
    """A special token of tokenizer_config.json: a string, or an object with its content."""
    content = token.get("content") if isinstance(token, Mapping) else token
    return content if isinstance(content, str) else ""
