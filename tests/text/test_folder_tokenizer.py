"""Folders: ids equal the tokenizers library on the untouched tokenizer.json, control text excepted."""

import itertools
import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer as LibraryTokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tests.cases.text_lines import text_lines
from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.text.detokenizer import Detokenizer
from twostroke.text.folder_tokenizer import tokenizer_from_folder
from twostroke.text.tokenizer import Tokenizer

CONTROL = ["<unk>", "<s>", "</s>", "<|user|>"]
CONFIG = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": False}
MARKER_TEXTS = ["<|x|>user", "<|x|> user", "a<|x|>b", "<|x|><|x|>"]


def trained(*, pre_tokenizer: Any = None, normalizer: Any = None, byte_fallback: bool = False) -> LibraryTokenizer:
    backend = LibraryTokenizer(models.BPE(unk_token="<unk>", byte_fallback=byte_fallback, fuse_unk=True))
    if normalizer:
        backend.normalizer = normalizer
    if pre_tokenizer:
        backend.pre_tokenizer = pre_tokenizer
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else []
    trainer = trainers.BpeTrainer(
        vocab_size=1000, special_tokens=CONTROL + byte_tokens, show_progress=False, limit_alphabet=200
    )
    backend.train_from_iterator(text_lines(200, seed=5), trainer)
    data = json.loads(backend.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] not in byte_tokens]
    return LibraryTokenizer.from_str(json.dumps(data))


def byte_level() -> LibraryTokenizer:
    return trained(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False))


def legacy() -> LibraryTokenizer:
    steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    return trained(normalizer=normalizers.Sequence(steps), byte_fallback=True)


def metaspace(scheme: str) -> LibraryTokenizer:
    return trained(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False), byte_fallback=True)


BACKENDS: dict[str, Callable[[], LibraryTokenizer]] = {
    "byte level": byte_level,
    "legacy": legacy,
    "first": lambda: metaspace("first"),
    "always": lambda: metaspace("always"),
}


def opened(
    backend: LibraryTokenizer, folder: Path, *, config: dict[str, Any] | None = None, **options: Any
) -> Tokenizer:
    file = folder / "tokenizer.json"
    backend.save(str(file))
    return tokenizer_from_folder(file, CONFIG if config is None else config, **options)


@pytest.mark.parametrize("name", BACKENDS)
def test_ids_equal_the_library_with_control_text_allowed(name: str, tmp_path: Path) -> None:
    backend = BACKENDS[name]()
    tokenizer = opened(backend, tmp_path)
    for line in [*text_lines(300, seed=1), "<s>a<|user|> b</s>c", " <|user|>\n"]:
        want = backend.encode(line.replace("<unk>", ""), add_special_tokens=False).ids
        assert tokenizer.encode(line.replace("<unk>", ""), allow_control=True) == want, line


@pytest.mark.parametrize("name", BACKENDS)
def test_ids_equal_the_library_with_special_text_encoded(name: str, tmp_path: Path) -> None:
    backend = BACKENDS[name]()
    tokenizer = opened(backend, tmp_path)
    backend.encode_special_tokens = True
    for line in [*text_lines(300, seed=2), "<s>a<|user|> b</s>c"]:
        assert tokenizer.encode(line) == backend.encode(line, add_special_tokens=False).ids, line


@pytest.mark.parametrize("name", ["legacy", "first"])
@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=4)))
def test_text_beside_added_tokens_is_as_in_the_library(name: str, flags: tuple[bool, ...], tmp_path: Path) -> None:
    lstrip, rstrip, single_word, normalized = flags
    backend = BACKENDS[name]()
    backend.add_tokens(
        [
            AddedToken(
                "<|x|>", lstrip=lstrip, rstrip=rstrip, single_word=single_word, normalized=normalized, special=False
            )
        ]
    )
    tokenizer = opened(backend, tmp_path)
    for text in MARKER_TEXTS:
        assert tokenizer.encode(text) == backend.encode(text, add_special_tokens=False).ids, text


@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=3)))
def test_special_tokens_swallow_space_as_the_library_does(flags: tuple[bool, ...], tmp_path: Path) -> None:
    lstrip, rstrip, single_word = flags
    backend = byte_level()
    backend.add_special_tokens([AddedToken("<|y|>", lstrip=lstrip, rstrip=rstrip, single_word=single_word)])
    tokenizer = opened(backend, tmp_path)
    for text in ("a <|y|> b", "a<|y|>b", " <|y|>\n<|y|> ", "<|y|>", "  \n<|y|>a"):
        assert tokenizer.encode(text, allow_control=True) == backend.encode(text, add_special_tokens=False).ids, text


@pytest.mark.parametrize("pattern", ["\\d+", Regex("\\d+")])
def test_a_split_pattern_is_a_literal_or_a_regex_as_the_file_says(pattern: Any, tmp_path: Path) -> None:
    split = pre_tokenizers.Split(pattern, behavior="isolated")
    steps = [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    backend = trained(pre_tokenizer=pre_tokenizers.Sequence(steps))
    tokenizer = opened(backend, tmp_path)
    for text in ("ab12cd", "x\\d+y", "1234567"):
        assert tokenizer.encode(text) == backend.encode(text, add_special_tokens=False).ids


def test_bos_comes_from_the_post_processor_where_the_config_is_silent(tmp_path: Path) -> None:
    backend = byte_level()
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    assert opened(backend, tmp_path, config={}).encode("a")[0] == 1
    assert opened(backend, tmp_path, config={"bos_token": "<s>", "add_bos_token": False}).encode("a")[0] != 1


def test_end_ids_join_config_and_generation_config(tmp_path: Path) -> None:
    assert opened(byte_level(), tmp_path, eos_token_ids=(3,)).end_ids == {2, 3}


def test_the_vocabulary_decides_how_to_decode_not_the_decoder(tmp_path: Path) -> None:
    backend = byte_level()
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer = opened(backend, tmp_path)
    ids = tokenizer.encode("How can I")
    detokenizer = Detokenizer(tokenizer)
    assert tokenizer.decode(ids) == "How can I"
    assert "".join(map(detokenizer.push, ids)) == "How can I"
    assert b"".join(map(tokenizer.token_bytes, ids)) == b"How can I"


@pytest.mark.parametrize("name", BACKENDS)
def test_a_cached_folder_gives_the_same_tokenizer(name: str, tmp_path: Path) -> None:
    backend = BACKENDS[name]()
    backend.add_tokens([AddedToken("<|x|>", special=False)])
    made = [opened(backend, tmp_path, cache_directory=tmp_path / "cache") for _ in range(2)]
    assert len(list((tmp_path / "cache").iterdir())) == 1
    for line in [*text_lines(60), *MARKER_TEXTS]:
        assert made[0].encode(line, allow_control=True) == made[1].encode(line, allow_control=True)
    assert made[0].special == made[1].special
    assert made[0].control_ids == made[1].control_ids


def test_merges_may_be_strings_or_pairs_and_pieces_may_hold_spaces(tmp_path: Path) -> None:
    vocab = {"a": 0, " ": 1, "b": 2, "a ": 3, "a b": 4, "ab": 5}
    file = tmp_path / "tokenizer.json"
    pairs = [["a", " "], ["a ", "b"], ["a", "b"]]
    file.write_text(json.dumps({"model": {"type": "BPE", "vocab": vocab, "merges": pairs}}))
    assert tokenizer_from_folder(file, {}).encode("a bab") == [4, 5]
    file.write_text(json.dumps({"model": {"type": "BPE", "vocab": vocab, "merges": ["a b"]}}))
    assert tokenizer_from_folder(file, {}).encode("a bab") == [0, 1, 2, 5]


@pytest.mark.parametrize("content", ["", "{}", "[]", "not json", '{"model": {}}', '{"model": {"vocab": {}}, "x": 1'])
def test_a_damaged_file_is_named(content: str, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(content)
    with pytest.raises(ModelFileError, match=r"tokenizer\.json"):
        tokenizer_from_folder(file, {})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": {"type": "BPE", "vocab": {"a": "x"}, "merges": []}}, "token 'a' has the id 'x'"),
        ({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}, "token 'a' has the id -1"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}}, "merges must be pairs"),
        ({"added_tokens": [{"content": "x"}]}, "token 'x' has the id None"),
        ({"pre_tokenizer": {"type": "Nonsense"}}, "no tokenizer can be made of it"),
        (
            {"model": {"type": "BPE", "vocab": {"\ud83d": 0}, "merges": []}},
            "no tokenizer can be made of it.*surrogates",
        ),
        ({"added_tokens": [{"content": text, "id": 1} for text in ("<x>", "<y>")]}, "no token is '<x>'"),
        ({"normalizer": {"type": "Replace"}}, "no tokenizer can be made of it"),
    ],
)
def test_a_damaged_part_is_named(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, **changes}))
    with pytest.raises(ModelFileError, match=words):
        tokenizer_from_folder(file, {})


def test_a_merge_about_no_token_is_named(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}))
    with pytest.raises(ModelFileError, match="'a b' needs 'b'"):
        tokenizer_from_folder(file, {})


def test_other_models_are_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({"model": {"type": "WordPiece", "vocab": {"a": 0}}}))
    with pytest.raises(UnsupportedModelError, match="'WordPiece'"):
        tokenizer_from_folder(file, {})
    file.write_text(json.dumps({"model": {"type": "BPE", "vocab": {"a": 10**9}, "merges": []}}))
    with pytest.raises(ModelFileError, match="too many holes"):
        tokenizer_from_folder(file, {})


def most_token_bytes(tmp_path: Path, backend: LibraryTokenizer) -> tuple[Tokenizer, int | None]:
    file = tmp_path / "tokenizer.json"
    backend.save(str(file))
    tokenizer = tokenizer_from_folder(file, CONFIG)
    return tokenizer, tokenizer.most_token_bytes


def whole_bytes(*, normalizer: Any = None, pre_tokenizer: Any = None) -> LibraryTokenizer:
    """A byte-level vocabulary that has every byte."""
    backend = LibraryTokenizer(models.BPE())
    if normalizer:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=CONTROL, show_progress=False, initial_alphabet=alphabet
    )
    backend.train_from_iterator(text_lines(50, seed=5), trainer)
    return backend


def test_the_least_tokens_of_a_text_are_told_where_rules_keep_it(tmp_path: Path) -> None:
    plain, most = most_token_bytes(tmp_path, whole_bytes())
    assert most == plain.vocabulary.longest_token
    composing, most = most_token_bytes(tmp_path, whole_bytes(normalizer=normalizers.NFC()))
    assert most == 3 * composing.vocabulary.longest_token
    assert most_token_bytes(tmp_path, legacy())[1] is not None


def test_nothing_is_told_where_rules_may_drop_text(tmp_path: Path) -> None:
    removing = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    assert most_token_bytes(tmp_path, whole_bytes(pre_tokenizer=removing))[1] is None
    assert most_token_bytes(tmp_path, whole_bytes(normalizer=normalizers.Strip()))[1] is None
    assert most_token_bytes(tmp_path, metaspace("first"))[1] is not None
    swallowing = whole_bytes()
    swallowing.add_tokens([AddedToken("<|x|>", lstrip=True)])
    assert most_token_bytes(tmp_path, swallowing)[1] is None
    unknowing = trained(pre_tokenizer=pre_tokenizers.Metaspace())
    assert most_token_bytes(tmp_path, unknowing)[1] is None


def test_composing_makes_nothing_less_than_a_third() -> None:
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        letter = chr(code)
        apart = unicodedata.normalize("NFD", letter)
        composed = len(unicodedata.normalize("NFC", letter).encode())
        assert 3 * composed >= len(apart.encode()) or unicodedata.normalize("NFC", apart) == apart
        assert 3 * composed >= len(letter.encode())
