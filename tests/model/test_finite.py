"""NaN and infinity are found in plain weights and in the scales of quantised blocks, and nowhere else."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.cases.make_malformed import GGUF_RECIPES, build_gguf
from twostroke.model.finite import check_finite, is_finite
from twostroke.model.open import open_model
from twostroke.model.source import TensorRef, TensorTable
from twostroke.model.tensor_type import BLOCK_SIZES, SUPPORTED_TYPES

NAN16, INF16, ONE16 = b"\x01\x7e", b"\x00\x7c", b"\x00\x3c"
SCALES = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}


def blocks(tensor_type: str, *, at: int, raw: bytes) -> TensorRef:
    """Three blocks of ones in every byte pair, the second with `raw` at byte `at`."""
    size = BLOCK_SIZES[tensor_type]
    data = np.frombuffer(ONE16 * (3 * size.num_bytes // 2), np.uint8).copy()
    data[size.num_bytes + at : size.num_bytes + at + len(raw)] = np.frombuffer(raw, np.uint8)
    return TensorRef("t", tensor_type, (3, size.num_elements), data)


@pytest.mark.parametrize("tensor_type", [name for name in SUPPORTED_TYPES if name[0] == "Q"])
@pytest.mark.parametrize("raw", [NAN16, INF16])
def test_bad_scale_is_found_and_the_same_bytes_elsewhere_are_not(tensor_type: str, raw: bytes) -> None:
    offsets = SCALES.get(tensor_type, (0,))
    assert is_finite(blocks(tensor_type, at=0, raw=ONE16))
    for at in range(0, BLOCK_SIZES[tensor_type].num_bytes, 2):
        assert is_finite(blocks(tensor_type, at=at, raw=raw)) == (at not in offsets)


@pytest.mark.parametrize(("tensor_type", "bad"), [("F16", NAN16), ("BF16", b"\x80\x7f"), ("F32", b"\x00\x00\xc0\x7f")])
def test_bad_weight_is_found(tensor_type: str, bad: bytes) -> None:
    assert is_finite(blocks(tensor_type, at=0, raw=bytes(len(bad))))
    assert not is_finite(blocks(tensor_type, at=0, raw=bad))


@pytest.mark.parametrize("name", ["g71_w_nan", "g72_w_inf"])
def test_check_names_the_tensor_of_a_file_that_loads(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(GGUF_RECIPES[name](*build_gguf()))
    assert check_finite(open_model(path)).bad == ("blk.0.attn_q.weight",)
    path.write_bytes(build_gguf()[0])
    assert check_finite(open_model(path)).bad == ()


def test_check_tells_how_much_it_read_and_what_it_could_not(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(build_gguf()[0])
    source = open_model(path)
    stored = list(source.tensors.stored())
    checked = check_finite(source)
    assert (checked.num_tensors, checked.unread) == (len(stored), ())
    assert checked.num_weights == sum(int(np.prod(tensor.shape)) for tensor in stored)
    strange = TensorRef("strange", "TQ1_0", (256,), np.zeros(54, np.uint8))
    table = TensorTable(path, {each.name: each for each in (*stored, strange)})
    checked_too = check_finite(replace(source, tensors=table))
    assert checked_too.unread == ("strange",)
    assert (checked_too.num_tensors, checked_too.num_weights) == (checked.num_tensors, checked.num_weights)
