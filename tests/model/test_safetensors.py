"""The safetensors reader: what is in a good file, and every way a bad one is refused."""

import json
import random
import resource
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.cases.make_malformed import (
    EMBED,
    HEAD,
    NORM,
    SAFETENSORS_RECIPES,
    build_safetensors,
    pack_safetensors,
    put,
    safetensors_header,
    safetensors_tensors,
)
from twostroke.errors import ModelFileError, ModelNotFoundError
from twostroke.model.safetensors import MAX_HEADER_BYTES, SafetensorsFile, read_safetensors

BASE = build_safetensors()
HEADER_END = len(BASE) - sum(len(data) for _, _, _, data in safetensors_tensors())

REFUSED = {
    "s01_empty": "too short: 0 bytes",
    "s02_7bytes": "too short: 7 bytes",
    "s03_hlen_zero": r"the header starts with b''",
    "s04_hlen_gt_file": r"the header length is \d+, \d+ bytes follow",
    "s05_hlen_max": "the header length is 18446744073709551615",
    "s06_hlen_minus1": "the header is not JSON",
    "s07_cut_data": f"tensor '{HEAD}' ends at 33856, the file has 33855 bytes of data",
    "s08_trailing": f"16 bytes follow the last tensor '{HEAD}'",
    "s09_not_json": "the header is not JSON",
    "s10_json_array": "must be a JSON object",
    "s11_bom": "must be a JSON object",
    "s12_dup_key": f"the header has '{NORM}' twice",
    "s13_begin_gt_end": f"tensor '{NORM}' has data_offsets \\[64, 0\\]",
    "s14_neg_offset": f"tensor '{NORM}' has data_offsets \\[-64, 0\\]",
    "s15_off_huge": f"tensor '{NORM}' .* data_offsets \\[0, 9223372036854775808\\]",
    "s16_off_float": f"tensor '{NORM}' has data_offsets \\[0.0, 64.0\\]",
    "s17_hole": f"tensor '{NORM}' begins at 16960 and leaves a hole after '{EMBED}'|overlaps",
    "s18_overlap": "overlaps",
    "s19_shape_size": f"tensor '{NORM}' of shape \\[17\\] and dtype F32 needs 68 bytes, .* hold 64",
    "s20_shape_wrap": f"tensor '{NORM}' of shape .* needs 7.3786976294838\\d*e\\+19 bytes",
    "s22_shape_neg": f"tensor '{NORM}' has the shape \\[-16\\]",
    "s24_dtype_unknown": f"tensor '{NORM}' has the unknown dtype 'F33'",
    "s25_dtype_case": f"tensor '{NORM}' has the unknown dtype 'f32'",
    "s27_meta_nonstr": "__metadata__ must map strings to strings",
    "s28_meta_only": "it holds no tensors",
    "s30_missing_field": f"tensor '{NORM}' has no dtype",
    "s39_lfs_pointer": "Git LFS pointer, the weights were not downloaded",
    "s40_html": "not a safetensors file: it is an HTML page",
}
LOADED = sorted(SAFETENSORS_RECIPES.keys() - REFUSED.keys())


def read(folder: Path, data: bytes, *, name: str = "model.safetensors") -> SafetensorsFile:
    path = folder / name
    path.write_bytes(data)
    return read_safetensors(path)


def test_good_file_offers_its_tensors(tmp_path: Path) -> None:
    file = read(tmp_path, BASE)
    assert {
        name: (tensor.dtype, list(tensor.shape), tensor.data.tobytes()) for name, tensor in file.tensors.items()
    } == {name: (dtype, shape, data) for name, dtype, shape, data in safetensors_tensors()}
    assert not file.tensors[NORM].data.flags.writeable


@pytest.mark.parametrize("name", REFUSED)
def test_malformed_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelFileError, match=REFUSED[name]) as caught:
        read(tmp_path, SAFETENSORS_RECIPES[name](BASE), name=f"{name}.safetensors")
    assert f"{name}.safetensors" in str(caught.value)


@pytest.mark.parametrize("name", LOADED)
def test_odd_file_is_read(tmp_path: Path, name: str) -> None:
    assert read(tmp_path, SAFETENSORS_RECIPES[name](BASE)).tensors


def test_escaped_name_is_the_same_tensor_and_an_extra_field_changes_nothing(tmp_path: Path) -> None:
    for name in ("s31_name_escape", "s29_extra_field"):
        tensor = read(tmp_path, SAFETENSORS_RECIPES[name](BASE)).tensors[NORM]
        assert tensor.data.tobytes() == safetensors_tensors()[1][3]


def test_malformed_files_cost_no_memory(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in REFUSED:
        with pytest.raises(ModelFileError):
            read(tmp_path, SAFETENSORS_RECIPES[name](BASE))
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 100e6
    assert read(tmp_path, BASE).tensors


def test_header_above_the_limit_gives_both_numbers(tmp_path: Path) -> None:
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 101_000_000))
        file.truncate(8 + 101_000_000)  # sparse: the reader must not look
    with pytest.raises(ModelFileError, match=f"the header has 101000000 bytes; the limit is {MAX_HEADER_BYTES}"):
        read_safetensors(path)


def test_deeply_nested_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="the header is not JSON"):
        read(tmp_path, pack_safetensors(b'{"a":' * 100_000, b""))


def test_huge_number_in_the_header_is_refused(tmp_path: Path) -> None:
    header = json.dumps(safetensors_header()).replace("16896", "9" * 5000).encode()
    with pytest.raises(ModelFileError, match="the header is not JSON"):
        read(tmp_path, pack_safetensors(header))


def test_a_name_that_is_there_twice_is_found_in_one_pass(tmp_path: Path) -> None:
    """Looking for each name among all others would take hours here; the time limit of a test is the judge."""
    names = "".join(f'"t{index}":0,' for index in range(300_000))
    with pytest.raises(ModelFileError, match="the header has 't299999' twice"):
        read(tmp_path, pack_safetensors(f'{{{names}"t299999":0}}'.encode()))


def test_bool_is_no_size(tmp_path: Path) -> None:
    header = safetensors_header()
    header[NORM]["shape"] = [True, 16]
    with pytest.raises(ModelFileError, match=f"tensor '{NORM}' has the shape"):
        read(tmp_path, pack_safetensors(header))


def test_shape_with_too_many_dimensions_is_refused(tmp_path: Path) -> None:
    header = safetensors_header()
    header[NORM]["shape"] = [1] * 9 + [16]
    with pytest.raises(ModelFileError, match="up to 8 whole numbers"):
        read(tmp_path, pack_safetensors(header))


def test_entry_that_is_no_object_is_refused(tmp_path: Path) -> None:
    header = safetensors_header() | {"x": 3}
    with pytest.raises(ModelFileError, match="tensor 'x' is described by 3"):
        read(tmp_path, pack_safetensors(header))


def test_missing_file_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        read_safetensors(tmp_path / "none.safetensors")


@pytest.mark.parametrize(
    "lengths",
    [
        [*range(32), *range(32, HEADER_END, 7), *range(HEADER_END, 4097, 211)],
        pytest.param(range(4097), marks=pytest.mark.slow),
    ],
    ids=["sample", "all"],
)
def test_prefixes_are_refused(tmp_path: Path, lengths: list[int]) -> None:
    for length in lengths:
        with pytest.raises(ModelFileError):
            read(tmp_path, BASE[:length])


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_flipped_bytes_never_crash(tmp_path: Path, count: int) -> None:
    randomness = random.Random(count)
    for _ in range(count):
        position = randomness.randrange(HEADER_END)
        data = put(BASE, position, bytes([BASE[position] ^ randomness.randrange(1, 256)]))
        with suppress(ModelFileError):
            for tensor in read(tmp_path, data).tensors.values():
                tensor.data.sum()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 2**65) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries({}, optional={key: json_values for key in ("dtype", "shape", "data_offsets")}), json_values
)
def test_any_entry_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, entry: object, extra: object) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(pack_safetensors({"x": entry, "__metadata__": extra}, b"\0" * 8))
    with suppress(ModelFileError):
        read_safetensors(path)


@pytest.mark.oracle
def test_at_least_as_strict_as_the_reference(tmp_path: Path) -> None:
    """What the reference refuses, we refuse; what we read, it reads alike."""
    safetensors = pytest.importorskip("safetensors")
    for name, recipe in SAFETENSORS_RECIPES.items():
        data = recipe(BASE)
        try:
            theirs = dict(safetensors.deserialize(data))
        except safetensors.SafetensorError:
            assert name in REFUSED
            continue
        if name not in REFUSED:
            ours = read(tmp_path, data).tensors
            assert {key: bytes(value["data"]) for key, value in theirs.items()} == {
                key: tensor.data.tobytes() for key, tensor in ours.items()
            }
