"""GGUF metadata to tokenizers: slow twins, damaged fields, default rules."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases.text_lines import text_lines
from tests.text.text_builders import (
    BYTE,
    NORMAL,
    byte_level_metadata,
    byte_level_tokenizer,
    sentencepiece_metadata,
    sentencepiece_tokenizer,
)
from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.text.gguf_tokenizer import tokenizer_from_gguf

PIECES = ("▁", "a", "b", "c", "▁a", "ab", "bc", "▁ab", "abc", "aa", "aaa", "é", "▁▁", "▁▁▁", "ca", "bca")


def slow_pieces(text: str, scores: dict[str, float]) -> list[str]:
    """SentencePiece BPE by the book: join the best scored neighbours, leftmost first, until none is left."""
    symbols = list(text)
    while True:
        best = None
        for index in range(len(symbols) - 1):
            score = scores.get(symbols[index] + symbols[index + 1])
            if score is not None and (best is None or score > best[0]):
                best = (score, index)
        if best is None:
            return symbols
        symbols[best[1] : best[1] + 2] = [symbols[best[1]] + symbols[best[1] + 1]]


def test_sentencepiece_ids_equal_the_slow_twin() -> None:
    tokenizer = sentencepiece_tokenizer(PIECES)
    scores = {piece: -1.0 - rank for rank, piece in enumerate(PIECES)}
    ids = {text: token_id for token_id, text in enumerate(tokenizer.vocabulary.tokens)}
    rng = np.random.default_rng(4)
    for _ in range(1500):
        text = "".join(rng.choice(list("aabbc  éz\n"), size=rng.integers(1, 14)))
        want: list[int] = []
        for symbol in slow_pieces("▁" + text.replace(" ", "▁"), scores):
            want += [ids[symbol]] if symbol in scores else [3 + byte for byte in symbol.encode()]
        assert tokenizer.encode(text, add_bos=False) == want, text


def test_byte_level_ids_equal_the_slow_twin() -> None:
    metadata = byte_level_metadata(pre="gpt-2")
    tokenizer = tokenizer_from_gguf(metadata)
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    scores = {left + right: -float(rank) for rank, (left, right) in reversed(list(enumerate(merges)))}
    ids = {text: token_id for token_id, text in enumerate(tokenizer.vocabulary.tokens)}
    for word in ("the", "running", "ABBA", "nonsense", "aaaaaaa", "Straße", "привет", "🙂🙂", "e", "....", "====="):
        spelled = "".join(tokenizer.vocabulary.tokens[ids[char]] for char in byte_chars(word))
        assert tokenizer.encode(word) == [ids[symbol] for symbol in slow_pieces(spelled, scores)], word


def byte_chars(word: str) -> str:
    from twostroke.text.byte_alphabet import CHAR_OF_BYTE

    return "".join(CHAR_OF_BYTE[byte] for byte in word.encode())


@pytest.mark.parametrize("byte_kind", [BYTE, NORMAL])
def test_byte_pieces_are_bytes_whatever_their_kind(byte_kind: int) -> None:
    tokenizer = sentencepiece_tokenizer(byte_kind=byte_kind)
    assert tokenizer.decode([3 + ord("\n")]) == "\n"
    assert 3 + ord("\n") in tokenizer.encode("\n")
    assert tokenizer.decode(tokenizer.encode("a\n<0x0A>")) == "a\n<0x0A>"


def test_a_missing_byte_token_is_the_unknown_token() -> None:
    metadata = sentencepiece_metadata()
    metadata["tokenizer.ggml.tokens"][3 + ord("\n")] = "zz"
    metadata["tokenizer.ggml.token_type"][3 + ord("\n")] = NORMAL
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.encode("a\n", add_bos=False)[-1] == 0
    assert tokenizer.encode("\t", add_bos=False)[-1] == 3 + ord("\t")


def test_of_two_tokens_with_one_text_the_lowest_id_wins() -> None:
    tokenizer = sentencepiece_tokenizer(("▁", "a", "b", "ab", "ab"), add_space_prefix=False)
    assert tokenizer.encode("ab", add_bos=False) == [262]
    assert tokenizer.decode([263]) == "ab"


def test_an_empty_token_is_never_found_and_shows_nothing() -> None:
    tokenizer = sentencepiece_tokenizer(("▁", "a", "", "ab"), user_defined=("",))
    assert tokenizer.decode([259, 262]) == ""
    assert tokenizer.decode(tokenizer.encode("aab")) == "aab"


def test_missing_kinds_are_taken_for_normal_text() -> None:
    tokenizer = sentencepiece_tokenizer(token_type=None)
    assert tokenizer.control_ids == {1, 2}  # named by bos and eos
    assert tokenizer.decode(tokenizer.encode("ab\n")) == "ab\n"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scores": np.zeros(3, dtype=np.float32)}, r"'tokenizer.ggml.scores' has 3 elements"),
        ({"scores": None}, r"'tokenizer.ggml.scores' is missing"),
        ({"tokens": None}, r"'tokenizer.ggml.tokens' is missing"),
        ({"token_type": np.ones(5, dtype=np.int32)}, r"'tokenizer.ggml.token_type' has 5 elements"),
        ({"bos_token_id": 100000}, r"'tokenizer.ggml.bos_token_id' is 100000; ids go from 0 to 263"),
        ({"eos_token_id": -7}, r"eos_token_id' is -7"),
        ({"pre": 3, "model": "gpt2", "merges": []}, r"'tokenizer.ggml.pre' is 3; it must be a string"),
    ],
)
def test_a_damaged_field_is_named_with_its_value(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelFileError, match=words) as caught:
        tokenizer_from_gguf(sentencepiece_metadata(**changes), file="tiny.gguf")
    assert caught.value.file == "tiny.gguf"


@pytest.mark.parametrize("merges", [["a"], ["Q zz"], [""], ["a b c"]])
def test_a_merge_about_no_token_is_named(merges: list[str]) -> None:
    with pytest.raises(ModelFileError, match="which is no token"):
        byte_level_tokenizer(merges=merges)


def test_merges_never_make_a_control_token() -> None:
    metadata = byte_level_metadata()
    tokens = metadata["tokenizer.ggml.tokens"]
    the = tokens.index(metadata["tokenizer.ggml.merges"][0].replace(" ", ""))
    metadata["tokenizer.ggml.eos_token_id"] = the  # a piece other pieces are made of
    tokenizer = tokenizer_from_gguf(metadata)
    for line in text_lines(100):
        assert the not in tokenizer.encode(line)
        assert tokenizer.decode(tokenizer.encode(line)) == line


@pytest.mark.timeout(10)
def test_a_vocabulary_of_empty_tokens_is_read_in_no_time() -> None:
    size = 100_000
    tokenizer = byte_level_tokenizer(user_defined=("",) * size)
    assert tokenizer.vocab_size > size
    assert tokenizer.decode(tokenizer.encode("ab")) == "ab"


def test_byte_level_needs_merges() -> None:
    with pytest.raises(ModelFileError, match=r"'tokenizer.ggml.merges' is missing"):
        byte_level_tokenizer(merges=None)


def test_other_vocabularies_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'t5' is not supported; supported are gpt2, llama, gemma"):
        tokenizer_from_gguf(sentencepiece_metadata(model="t5"))


def test_an_id_of_minus_one_means_none() -> None:
    assert sentencepiece_tokenizer(eos_token_id=-1).eos_id is None


def test_end_ids_are_eos_eot_eom_and_the_known_literals() -> None:
    control = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|pad|>")
    tokenizer = byte_level_tokenizer(control=control, eos_token_id=5)
    assert tokenizer.end_ids == {0, 2, 3, 4, 5}
    assert (tokenizer.special.eot_id, tokenizer.special.eom_id) == (2, 4)
    assert byte_level_tokenizer(control=control, eot_token_id=1, eom_token_id=3).end_ids == {0, 1, 2, 3, 4}


def test_an_end_literal_is_control_even_where_the_file_calls_it_text() -> None:
    tokenizer = byte_level_tokenizer(user_defined=("<end_of_turn>",))
    assert 3 in tokenizer.control_ids
    assert 3 not in tokenizer.encode("<end_of_turn>")
    assert tokenizer.encode("<end_of_turn>", allow_control=True) == [3]


def test_user_defined_tokens_are_found_in_any_text() -> None:
    tokenizer = byte_level_tokenizer(user_defined=("<think>", "   "))
    assert tokenizer.encode("<think>") == [3]
    assert tokenizer.encode("   ") == [4]
    assert tokenizer.decode(tokenizer.encode("a   <think>b")) == "a   <think>b"


def test_a_user_defined_run_of_spaces_may_be_spelled_with_the_space_piece() -> None:
    tokenizer = sentencepiece_tokenizer(user_defined=("▁▁▁",), add_space_prefix=False)
    assert tokenizer.encode("   ", add_bos=False) == [259]
    assert tokenizer.decode([259]) == "   "


def test_bytes_no_token_stands_for_are_dropped_as_the_library_does() -> None:
    metadata = byte_level_metadata()
    position = metadata["tokenizer.ggml.tokens"].index("Ć")  # byte 0x06
    metadata["tokenizer.ggml.tokens"][position] = "unreachable"
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.decode(tokenizer.encode("a\x06b")) == "ab"


def test_a_cached_vocabulary_gives_the_same_ids(tmp_path: Path) -> None:
    for metadata in (byte_level_metadata(), sentencepiece_metadata(PIECES)):
        made = [tokenizer_from_gguf(metadata, cache_directory=tmp_path) for _ in range(2)]
        for line in text_lines(80, seed=9):
            assert made[0].encode(line) == made[1].encode(line)
    assert len(list(tmp_path.iterdir())) == 2


def test_the_cache_tells_vocabularies_apart(tmp_path: Path) -> None:
    for metadata in (sentencepiece_metadata(PIECES), sentencepiece_metadata(PIECES[::-1]), byte_level_metadata()):
        tokenizer_from_gguf(metadata, cache_directory=tmp_path)
    tokenizer_from_gguf(byte_level_metadata(), cache_directory=tmp_path, fingerprint="given")
    assert len(list(tmp_path.iterdir())) == 4


def test_nothing_is_logged_for_a_good_file(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="twostroke"):
        byte_level_tokenizer()
        sentencepiece_tokenizer()
    assert not caplog.records
