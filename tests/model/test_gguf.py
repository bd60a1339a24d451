"""The GGUF reader: what is in a good file, and every way a bad one is refused."""

import logging
import os
import random
import re
import resource
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.cases.make_malformed import (
    GGUF_RECIPES,
    T_ARR,
    T_BOOL,
    T_F64,
    T_I8,
    T_I64,
    T_STR,
    T_U8,
    T_U16,
    T_U32,
    T_U64,
    KeyValue,
    Offsets,
    build_gguf,
    encode_string,
    encode_value,
    key_values,
    put,
    tensors,
    u64,
    vocab,
    with_keys,
)
from tests.examples import examples
from twostroke.core.clock import WallClock
from twostroke.errors import ModelFileError, ModelNotFoundError, TwostrokeError, UnsupportedModelError
from twostroke.model.gguf import read_gguf
from twostroke.model.metadata import Metadata, StringArray
from twostroke.model.open import open_model
from twostroke.model.source import ModelSource

BASE, OFFSETS = build_gguf()
MAX_RSS_GROWTH_BYTES = 100e6

# Recipe -> what the message says. Structure and vocabulary are judged when the file is opened.
REFUSED = {
    "g01_empty": "too short: 0 bytes",
    "g02_magic_only": "truncated header: 4 bytes",
    "g03_cut_header": "truncated header: 20 bytes",
    "g04_cut_in_kv": "key 'tokenizer.ggml.tokens' has 264 strings of at least 8 bytes; 888 bytes are left",
    "g05_cut_in_tinfo": "tensor 'blk.0.attn_q.weight' dimensions needs 8 bytes",
    "g06_cut_data": "tensor 'output.weight' needs 16896 bytes",
    "g07_cut_1": "tensor 'output.weight' needs 16896 bytes",
    "g10_bad_magic": "starts with b'GGML'",
    "g11_version0": "unsupported GGUF version 0; supported are 2 and 3",
    "g12_version99": "unsupported GGUF version 99",
    "g13_big_endian": "big-endian",
    "g14_tcount_huge": "2305843009213693952 tensors",
    "g15_tcount_neg": "18446744073709551615 tensors",
    "g16_kvcount_huge": "1152921504606846976 keys",
    "g17_kvcount_plus1": "tensor 1|key 18|tensor",
    "g19_keylen_huge": "key 1 of 17 has a name of 9223372036854775808 bytes; the limit is 1 to 65535",
    "g20_key_empty": "name of 0 bytes",
    "g21_key_nul": re.escape(r"b'gen\x00\xff\xfe.x'"),
    "g23_strlen_huge": "key 'general.architecture' needs 1099511627776 bytes",
    "g24_type_unknown": "key 'llama.block_count' has the unknown value type 255",
    "g35_align0": "'general.alignment' is 0",
    "g36_align_odd": "'general.alignment' is 33; it must be a power of two from 1 to 65536",
    "g37_align_big": "'general.alignment' is 2147483648",
    "g39_arr_cnt_huge": "key 'tokenizer.ggml.tokens' has 288230376151711744 strings",
    "g41_scores_u8": "'tokenizer.ggml.scores' must be an array of float32; the file has an array of 264 uint8",
    "g42_scores_short": "'tokenizer.ggml.scores' has 263 elements, key 'tokenizer.ggml.tokens' has 264",
    "g50_bos_range": "'tokenizer.ggml.bos_token_id' is the id 100000; the vocabulary has 264 tokens",
    "g52_ndims0": "tensor 'token_embd.weight' has 0 dimensions; the limit is 1 to 4",
    "g53_ndims_huge": "tensor 'token_embd.weight' has 2147483648 dimensions",
    "g54_dim_zero": r"tensor 'token_embd.weight' has the dimensions \(16, 0\)",
    "g55_dim_neg": "tensor 'token_embd.weight' of dimensions .* needs 19479761741837286505440 bytes: size overflow",
    "g56_dim_wrap": "tensor 'token_embd.weight' of dimensions .* needs 18446744073709551616 bytes: size overflow",
    "g61_dtype_block": "rows of 16 elements, not a multiple of the 256 in a Q4_K block",
    "g62_off_past_end": "tensor 'blk.0.attn_q.weight' needs 1024 bytes",
    "g64_off_unaligned": "the offset 3, not a multiple of 32",  # stated choice: refused
    "g65_off_overlap": "overlaps 'token_embd.weight'|overlaps 'blk.0.attn_q.weight'",  # stated choice: refused
    "g66_name_dup": "tensor 'blk.0.attn_q.weight' is there twice",
    "g73_arch_unknown": "'frobnicator' is not supported; supported are gemma3, llama, qwen2, qwen3",
    "g74_no_arch": "key 'general.architecture' is missing",
    "g75_split_keys": "part 2 of 3 of a split model; open part 1",
}
# Opened here; families, tokenizers or the run judge the rest.
OPENED = sorted(GGUF_RECIPES.keys() - REFUSED.keys())


def write(folder: Path, data: bytes, *, name: str = "model.gguf") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def open_recipe(folder: Path, name: str) -> ModelSource:
    return open_model(write(folder, GGUF_RECIPES[name](BASE, OFFSETS), name=f"{name}.gguf"))


def open_keys(folder: Path, *extra: KeyValue) -> Metadata:
    return open_model(write(folder, build_gguf([*key_values(), *extra])[0])).metadata


def test_good_file_offers_its_keys_and_tensors(tmp_path: Path) -> None:
    source = open_model(write(tmp_path, BASE))
    assert (source.format, source.architecture, source.eos_token_ids) == ("gguf", "llama", (2,))
    assert source.metadata.integer("llama.block_count") == 1
    assert source.metadata.number("llama.attention.layer_norm_rms_epsilon") == pytest.approx(1e-5)
    assert source.metadata.texts("tokenizer.ggml.tokens") == [text for text, _, _ in vocab()]
    assert source.metadata.numbers("tokenizer.ggml.scores").tolist() == [score for _, score, _ in vocab()]
    assert source.metadata.integers("tokenizer.ggml.token_type").tolist() == [kind for _, _, kind in vocab()]
    assert list(source.tensors) == [name for name, _, _, _ in tensors()]
    for name, dims, _, data in tensors():
        tensor = source.tensors[name]
        assert (tensor.name, tensor.tensor_type, tensor.shape) == (name, "F32", dims[::-1])
        assert tensor.data.tobytes() == data


def test_tensor_data_cannot_be_written(tmp_path: Path) -> None:
    tensor = open_model(write(tmp_path, BASE)).tensors["output.weight"]
    with pytest.raises(ValueError, match="read-only"):
        tensor.data[0] = 1


def test_version_2_loads(tmp_path: Path) -> None:
    assert len(open_model(write(tmp_path, put(BASE, 4, struct.pack("<I", 2)))).tensors) == len(tensors())


@pytest.mark.parametrize("name", REFUSED)
def test_malformed_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises((ModelFileError, UnsupportedModelError), match=REFUSED[name]) as caught:
        open_recipe(tmp_path, name)
    assert f"{name}.gguf" in str(caught.value)


@pytest.mark.parametrize("name", OPENED)
def test_odd_file_is_opened(tmp_path: Path, name: str) -> None:
    assert open_recipe(tmp_path, name).architecture == "llama"


def test_malformed_files_cost_no_memory_and_leave_the_process_able(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in REFUSED:
        with pytest.raises(TwostrokeError):
            open_recipe(tmp_path, name)
    growth_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert growth_bytes < MAX_RSS_GROWTH_BYTES
    assert len(open_model(write(tmp_path, BASE)).tensors) == len(tensors())


@pytest.mark.parametrize("exponent", range(40, 64))
def test_huge_dimension_names_the_tensor(tmp_path: Path, exponent: int) -> None:
    data = put(BASE, OFFSETS["dim:token_embd.weight"] + 8, u64(2**exponent))
    with pytest.raises(ModelFileError, match=r"tensor 'token_embd.weight' .*needs \d+ bytes"):
        open_model(write(tmp_path, data))


def test_smallest_file_with_a_zero_dimension_is_refused(tmp_path: Path) -> None:
    data = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + encode_string("x") + struct.pack("<IQQIQ", 2, 2, 0, 0, 0)
    with pytest.raises(ModelFileError, match=r"tensor 'x' has the dimensions \(2, 0\); none may be 0"):
        open_model(write(tmp_path, data))


def test_cut_inside_a_string_names_key_and_string(tmp_path: Path) -> None:
    key = "tokenizer.ggml.tokens"
    data = put(BASE, OFFSETS["kvval:" + key] + 12, u64(2**50))
    with pytest.raises(ModelFileError, match=f"key '{key}': string 1 of 264 at byte .* runs past the end"):
        open_model(write(tmp_path, data))


def test_refused_file_names_wanted_and_found_array_type(tmp_path: Path) -> None:
    size = len(vocab())
    data = with_keys({"tokenizer.ggml.token_type": (T_ARR, (T_U8, [1] * size))})
    with pytest.raises(ModelFileError, match=r"token_type' must be an array of int32 or uint32; .* 264 uint8"):
        open_model(write(tmp_path, data))
    heads = "llama.attention.head_count_kv"
    metadata = open_model(write(tmp_path, with_keys({heads: (T_ARR, (T_STR, ["2"]))}))).metadata
    with pytest.raises(ModelFileError, match=f"{heads}' must be a whole number; the file has an array of 1 strings"):
        metadata.integer(heads)
    with pytest.raises(ModelFileError, match="must be an array of whole numbers"):
        metadata.integers(heads)


def test_missing_token_types_are_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="twostroke"):
        open_recipe(tmp_path, "g43_types_missing")
    assert ["token_type' is missing" in message for message in caplog.messages] == [True]


def test_negative_end_id_means_none_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="twostroke"):
        source = open_recipe(tmp_path, "g51_eos_neg")
    assert source.eos_token_ids == ()
    assert "tokenizer.ggml.eos_token_id" not in source.metadata
    assert ["eos_token_id' is -1" in message for message in caplog.messages] == [True]


@pytest.mark.parametrize("name", ["g59_dtype_unknown", "g60_dtype_removed"])
def test_unsupported_type_matters_only_when_the_tensor_is_taken(tmp_path: Path, name: str) -> None:
    source = open_recipe(tmp_path, name)
    assert "blk.0.attn_q.weight" in source.tensors
    assert source.tensors["blk.0.attn_k.weight"].tensor_type == "F32"
    with pytest.raises(UnsupportedModelError, match=r"'blk.0.attn_q.weight' has type number \d+, .* Q6_K"):
        source.tensors["blk.0.attn_q.weight"]


def test_known_but_unsupported_type_is_named(tmp_path: Path) -> None:
    weights = [*tensors(), ("extra", (256,), 23, b"\0" * 136)]
    source = open_model(write(tmp_path, build_gguf(None, weights)[0]))
    with pytest.raises(UnsupportedModelError, match="'extra' has type IQ4_XS"):
        source.tensors["extra"]


def test_integers_of_any_width_are_whole_numbers(tmp_path: Path) -> None:
    metadata = open_keys(
        tmp_path, ("a", T_U8, 200), ("b", T_I8, -3), ("c", T_U64, 2**64 - 1), ("d", T_I64, -(2**63)), ("e", T_U16, 9)
    )
    assert [metadata.integer(key) for key in "abcde"] == [200, -3, 2**64 - 1, -(2**63), 9]
    assert metadata.number("b") == -3.0


def test_accessors_name_key_wanted_and_found_type(tmp_path: Path) -> None:
    metadata = open_keys(tmp_path, ("yes", T_BOOL, True), ("half", T_F64, 0.5), ("words", T_ARR, (T_STR, ["a", "b"])))
    assert (metadata.boolean("yes"), metadata.number("half"), metadata.texts("words")) == (True, 0.5, ["a", "b"])
    with pytest.raises(ModelFileError, match="'yes' must be a whole number; the file has the bool True"):
        metadata.integer("yes")
    with pytest.raises(ModelFileError, match=r"'half' must be a string; the file has the number 0\.5"):
        metadata.text("half")
    with pytest.raises(ModelFileError, match="'words' must be true or false; the file has an array of 2 strings"):
        metadata.boolean("words")
    with pytest.raises(ModelFileError, match="'yes' must be an array of strings"):
        metadata.texts("yes")
    with pytest.raises(ModelFileError, match="key 'nope' is missing"):
        metadata.integer("nope")
    assert metadata.integer("nope", default=7) == 7


def test_array_of_arrays_is_read_and_its_depth_limited(tmp_path: Path) -> None:
    inner = (T_U32, [1, 2])
    metadata = open_keys(tmp_path, ("nested", T_ARR, (T_ARR, [inner, inner])))
    nested = metadata["nested"]
    assert isinstance(nested, tuple)
    assert [array.tolist() for array in nested] == [[1, 2], [1, 2]]
    deep: tuple[int, list[object]] = (T_U32, [1])
    for _ in range(5):
        deep = (T_ARR, [deep])
    with pytest.raises(ModelFileError, match="arrays in arrays 5 deep; the limit is 4"):
        open_keys(tmp_path, ("deep", T_ARR, deep))


def test_bool_byte_other_than_0_and_1_is_refused(tmp_path: Path) -> None:
    data, at = build_gguf([*key_values(), ("flag", T_BOOL, True)])
    with pytest.raises(ModelFileError, match="key 'flag' is a bool with the byte 7"):
        open_model(write(tmp_path, put(data, at["kvval:flag"], b"\x07")))


def test_string_value_that_is_not_utf8_is_refused_and_a_token_is_replaced(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"key 'general.name' is not UTF-8 at byte 1 of 2"):
        open_keys(tmp_path, ("general.name", T_STR, b"a\xff"))
    assert open_recipe(tmp_path, "g46_tok_badutf8").metadata.texts("tokenizer.ggml.tokens")[261] == "�"


def test_key_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"key 'llama.block_count' is there twice"):
        open_keys(tmp_path, ("llama.block_count", T_U32, 1))


@pytest.mark.parametrize("num_bytes", [1, 31, 32, 64])
def test_trailing_bytes_are_ignored(tmp_path: Path, num_bytes: int) -> None:
    good = open_model(write(tmp_path, BASE, name="good.gguf"))
    longer = open_model(write(tmp_path, BASE + b"\x55" * num_bytes, name="longer.gguf"))
    assert list(longer.tensors) == list(good.tensors)
    assert all(np.array_equal(longer.tensors[name].data, good.tensors[name].data) for name in good.tensors)


@pytest.mark.parametrize(
    ("data", "meaning"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html>", "HTML page"),
        (b"PK\x03\x04zip", "ZIP archive"),
        (b'{"error": "not found"}', "JSON"),
    ],
)
def test_file_that_is_no_model_is_recognised(tmp_path: Path, data: bytes, meaning: str) -> None:
    with pytest.raises(ModelFileError, match=f"not a GGUF file.*{meaning}"):
        open_model(write(tmp_path, data))


def test_missing_file_and_pipe_are_typed_errors(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"none\.gguf"):
        read_gguf(tmp_path / "none.gguf")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ModelFileError, match="not a regular file"):
        open_model(pipe)


def test_a_fingerprint_stays_as_long_as_the_file_does(tmp_path: Path) -> None:
    path = write(tmp_path, BASE)
    assert open_model(path).fingerprint == open_model(path).fingerprint
    assert open_model(path).fingerprint != open_model(write(tmp_path, BASE, name="copy.gguf")).fingerprint


def test_an_edit_in_place_changes_the_fingerprint_even_with_its_time_set_back(tmp_path: Path) -> None:
    path = write(tmp_path, BASE)
    before, status = open_model(path).fingerprint, path.stat()
    with path.open("r+b") as file:
        file.seek(OFFSETS["td:output.weight"])
        file.write(b"\1\2\3\4")
    wait_for_the_next_tick(path, status)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (status.st_size, status.st_mtime_ns, status.st_ino)
    assert open_model(path).fingerprint != before


def wait_for_the_next_tick(path: Path, status: os.stat_result) -> None:
    """Older kernels stamp files with a clock of a few milliseconds: writes of one tick cannot be told apart."""
    while path.stat().st_ctime_ns == status.st_ctime_ns:
        path.chmod(0o600)


def refuses_or_opens(path: Path, data: bytes) -> None:
    """No crash, no other exception: that is the property. What opens is read whole."""
    path.write_bytes(data)
    try:
        source = open_model(path)
        for value in source.metadata.values():
            len(value.texts()) if isinstance(value, StringArray) else None
        for tensor in source.tensors.stored():
            tensor.data.sum()
    except (ModelFileError, UnsupportedModelError):
        pass


def flip(data: bytes, randomness: random.Random) -> bytes:
    position = randomness.randrange(len(data))
    return put(data, position, bytes([data[position] ^ randomness.randrange(1, 256)]))


HEADER_END = OFFSETS["data"]


def test_prefixes_are_refused(tmp_path: Path) -> None:
    for length in [*range(128), *range(128, 4097, 31), HEADER_END - 1, HEADER_END]:
        with pytest.raises(ModelFileError):
            open_model(write(tmp_path, BASE[:length]))


@pytest.mark.slow
def test_every_prefix_is_refused(tmp_path: Path) -> None:
    for length in range(4097):
        with pytest.raises(ModelFileError):
            open_model(write(tmp_path, BASE[:length]))


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_flipped_bytes_never_crash(tmp_path: Path, count: int) -> None:
    randomness = random.Random(count)
    for _ in range(count):
        part = BASE[:HEADER_END] if randomness.random() < 0.8 else BASE
        refuses_or_opens(tmp_path / "flip.gguf", flip(part, randomness) + BASE[len(part) :])


@given(st.binary(max_size=200))
def test_any_bytes_after_the_counts_never_crash(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    refuses_or_opens(tmp_path_factory.getbasetemp() / "junk.gguf", b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + junk)


names = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z", "Cf", "Cn", "Co"]), min_size=1, max_size=20)


@examples(50)
@given(st.dictionaries(names, st.integers(0, 2**64 - 1) | st.text() | st.floats(allow_nan=False) | st.booleans()))
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, values: dict[str, object]) -> None:
    kinds: dict[type, int] = {int: T_U64, str: T_STR, float: T_F64, bool: T_BOOL}
    path = tmp_path_factory.getbasetemp() / "written.gguf"
    values = {f"a.{key}": value for key, value in values.items()}  # not one of the keys that mean something
    keys = [(key, kinds[type(value)], value) for key, value in values.items()]
    path.write_bytes(build_gguf(keys, [])[0])
    assert dict(read_gguf(path).metadata) == values


def test_header_of_a_large_vocabulary_is_opened_fast_and_lazily(tmp_path: Path) -> None:
    """256 000 tokens: the time of a good file must not grow with the checks. The bound is five times what is needed."""
    tokens = [f"token{index}" for index in range(256_000)]
    keys: list[KeyValue] = [("general.architecture", T_STR, "llama"), ("list", T_ARR, (T_STR, tokens))]
    path = write(tmp_path, build_gguf(keys, [])[0])
    clock = WallClock()
    start_s = clock.now()
    array = read_gguf(path).metadata["list"]
    assert clock.now() - start_s < 0.3
    assert isinstance(array, StringArray)
    assert array._texts is None
    assert array[255_999] == "token255999"


@pytest.mark.oracle
def test_equal_to_the_public_reader(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    path = write(tmp_path, build_gguf([*key_values(), ("z", T_ARR, (T_I8, [-1, 5]))])[0])
    reader, source = gguf.GGUFReader(path), open_model(path)
    assert {tensor.name: tuple(reversed(tensor.shape.tolist())) for tensor in reader.tensors} == {
        name: source.tensors[name].shape for name in source.tensors
    }
    for tensor in reader.tensors:
        assert tensor.data.tobytes() == source.tensors[tensor.name].data.tobytes()
    for key in source.metadata:
        value, wanted = source.metadata[key], reader.fields[key].contents()
        if isinstance(value, StringArray | np.ndarray):
            assert list(value) == wanted
        else:
            assert value == wanted


def test_offsets_of_the_recipes_are_those_of_the_base_file() -> None:
    at: Offsets = OFFSETS
    assert BASE[at["kvval:llama.block_count"] :].startswith(encode_value(T_U32, 1))
