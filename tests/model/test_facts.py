"""What a file says about itself: sizes, types and metadata in JSON's kinds of values."""

import json
from pathlib import Path

import pytest

from tests.cases.make_malformed import build_gguf
from twostroke.errors import ModelNotFoundError
from twostroke.model.facts import read_facts


def test_a_file_tells_its_kind_sizes_and_types(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(build_gguf()[0])
    facts = read_facts(path)
    assert (facts.format, facts.architecture) == ("gguf", "llama")
    assert facts.num_bytes == path.stat().st_size
    assert facts.modified_s == pytest.approx(path.stat().st_mtime)
    assert facts.num_parameters == sum(_size(tensor.shape) for tensor in facts.tensors)
    assert facts.quantisation in {tensor.tensor_type for tensor in facts.tensors}
    assert len(facts.digest) == 64


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def test_metadata_is_json_and_its_arrays_come_where_they_are_wanted(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(build_gguf()[0])
    short, whole = read_facts(path).metadata, read_facts(path, with_arrays=True).metadata
    assert short["general.architecture"] == "llama"
    arrays = [key for key, value in whole.items() if isinstance(value, list)]
    assert arrays
    assert all(short[key] is None for key in arrays)
    assert json.loads(json.dumps(whole, allow_nan=False)) == whole


def test_an_edit_changes_the_digest(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(build_gguf()[0])
    before = read_facts(path)
    assert before.is_current
    assert read_facts(path).digest == before.digest
    path.write_bytes(path.read_bytes() + b"\0")
    assert not before.is_current
    assert read_facts(path).digest != before.digest
    path.unlink()
    assert not before.is_current


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        read_facts(tmp_path / "gone.gguf")
