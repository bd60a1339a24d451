"""Cutting by the library's pipeline: pieces stay whole, added tokens are found as the library finds them."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import AddedToken, Tokenizer as LibraryTokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE as LibraryBPE

from tests.examples import examples
from twostroke._native import BPE
from twostroke.text.encoder import PlainEncoder, hidden_key

LETTERS = "ab x▁<>\n1"
FLAGS = [
    dict(zip(("lstrip", "rstrip", "single_word", "normalized"), flags, strict=True))
    for flags in itertools.product([False, True], repeat=4)
]
NO_RULES = np.empty((0, 3), dtype=np.int32)
PIPELINES: list[tuple[Any, Any]] = [
    (None, None),
    (None, pre_tokenizers.Split(" ", behavior="isolated")),
    (None, pre_tokenizers.Metaspace(prepend_scheme="first", split=True)),
    (None, pre_tokenizers.Metaspace(prepend_scheme="always", split=False)),
    (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None),
    (normalizers.Sequence([normalizers.Strip(), normalizers.Replace("x", "")]), pre_tokenizers.Digits()),
]


def letters_encoder(added: list[AddedToken], normalizer: Any = None, pre_tokenizer: Any = None) -> PlainEncoder:
    bpe = BPE([*LETTERS, *(token.content for token in added)], NO_RULES)
    return PlainEncoder(bpe, added=added, normalizer=normalizer, pre_tokenizer=pre_tokenizer)


def library(added: list[AddedToken], normalizer: Any, pre_tokenizer: Any) -> LibraryTokenizer:
    pieces = [*LETTERS, *(token.content for token in added)]
    backend = LibraryTokenizer(
        LibraryBPE(vocab={piece: token_id for token_id, piece in reversed(list(enumerate(pieces)))}, merges=[])
    )
    if normalizer:
        backend.normalizer = normalizer
    if pre_tokenizer:
        backend.pre_tokenizer = pre_tokenizer
    backend.add_tokens(added)
    return backend


@examples(300)
@given(
    st.sampled_from(PIPELINES),
    st.lists(
        st.tuples(st.sampled_from(["<a>", "<a>b", "<", "ab", "  ", "1"]), st.sampled_from(FLAGS)),
        max_size=3,
        unique_by=lambda token: token[0],
    ),
    st.lists(st.sampled_from([*LETTERS, "<a>", "ab", "  ", " "]), min_size=1, max_size=12).map("".join),
)
def test_added_tokens_are_found_as_the_library_finds_them(
    pipeline: tuple[Any, Any], tokens: list[tuple[str, dict[str, bool]]], text: str
) -> None:
    added = [AddedToken(content, special=False, **flags) for content, flags in tokens]
    want = library(added, *pipeline).encode(text, add_special_tokens=False).ids
    assert letters_encoder(added, *pipeline).encode(text, is_first=True) == want


@given(st.text(min_size=1, max_size=50))
def test_a_text_without_a_pipeline_is_one_whole_piece(text: str) -> None:
    bpe = BPE([hidden_key(0), text], NO_RULES, ignore_merges=True)
    encoder = PlainEncoder(bpe, added=[], normalizer=None, pre_tokenizer=None)
    assert encoder.encode(text, is_first=True) == [1]


@pytest.mark.parametrize("text", ["a\x00b", "\x00", "<unk>", "\x000\x00", "a" * 5000, "\ufffd", "\U0010ffff" * 300])
def test_no_text_is_special_to_the_cutter(text: str) -> None:
    bpe = BPE([text], NO_RULES, ignore_merges=True)
    assert PlainEncoder(bpe, added=[], normalizer=None, pre_tokenizer=None).encode(text, is_first=False) == [0]


def test_later_stretches_have_a_pre_tokenizer_of_their_own() -> None:
    first, later = (pre_tokenizers.Metaspace(prepend_scheme=scheme) for scheme in ("always", "never"))
    encoder = PlainEncoder(
        BPE(["a", "▁"], NO_RULES), added=[], normalizer=None, pre_tokenizer=first, later_pre_tokenizer=later
    )
    assert encoder.encode("a", is_first=True) == [1, 0]
    assert encoder.encode("a", is_first=False) == [0]


def test_an_added_token_that_is_no_piece_is_an_error() -> None:
    with pytest.raises(KeyError, match="'<z>'"):
        PlainEncoder(BPE(["a"], NO_RULES), added=[AddedToken("<z>")], normalizer=None, pre_tokenizer=None)


def test_a_hidden_key_is_not_spelled_by_its_own_text() -> None:
    bpe = BPE([hidden_key(0), "\x00", "0"], NO_RULES)
    encoder = PlainEncoder(bpe, added=[], normalizer=None, pre_tokenizer=None)
    assert encoder.encode(hidden_key(0), is_first=True) == [1, 2, 1]
