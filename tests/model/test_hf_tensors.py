"""Names and values of a checkpoint's tensors in GGUF's vocabulary, without a folder around them."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twostroke.errors import ModelFileError
from twostroke.model import hf_tensors
from twostroke.model.hf_tensors import gguf_name, tie_head, translate_tensors
from twostroke.model.safetensors import StoredTensor
from twostroke.model.source import TensorRef

FILE = Path("model.safetensors")
HEAD, EMBEDDING = "output.weight", "token_embd.weight"


def stored(values: Any, *, dtype: str = "F32") -> StoredTensor:
    array = np.asarray(values, np.float32 if dtype == "F32" else None)
    return StoredTensor(dtype, array.shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def ref(name: str, values: Any, *, tensor_type: str = "F32") -> TensorRef:
    array = np.asarray(values, np.float32)
    return TensorRef(name, tensor_type, array.shape, array.reshape(-1).view(np.uint8))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("model.norm.weight", "output_norm.weight"),
        ("lm_head.weight", "output.weight"),
        ("model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"),
        ("model.layers.31.self_attn.k_proj.bias", "blk.31.attn_k.bias"),
        ("model.layers.7.self_attn.v_proj.weight", "blk.7.attn_v.weight"),
        ("model.layers.7.self_attn.o_proj.weight", "blk.7.attn_output.weight"),
        ("model.layers.7.self_attn.q_norm.weight", "blk.7.attn_q_norm.weight"),
        ("model.layers.7.self_attn.k_norm.weight", "blk.7.attn_k_norm.weight"),
        ("model.layers.7.mlp.gate_proj.weight", "blk.7.ffn_gate.weight"),
        ("model.layers.7.mlp.up_proj.weight", "blk.7.ffn_up.weight"),
        ("model.layers.7.mlp.down_proj.weight", "blk.7.ffn_down.weight"),
        ("model.layers.7.input_layernorm.weight", "blk.7.attn_norm.weight"),
    ],
)
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3"])
def test_names_mean_the_same_in_every_architecture(theirs: str, ours: str, architecture: str) -> None:
    assert gguf_name(theirs, architecture=architecture) == ours


def test_the_norm_after_attention_is_another_place_in_gemma() -> None:
    name = "model.layers.2.post_attention_layernorm.weight"
    assert gguf_name(name, architecture="llama") == "blk.2.ffn_norm.weight"
    assert gguf_name(name, architecture="gemma3") == "blk.2.post_attention_norm.weight"


@pytest.mark.parametrize("name", ["pre_feedforward_layernorm", "post_feedforward_layernorm"])
def test_gemmas_own_norms_mean_nothing_elsewhere(name: str) -> None:
    theirs = f"model.layers.2.{name}.weight"
    assert gguf_name(theirs, architecture="llama") == theirs
    assert gguf_name(theirs, architecture="gemma3") != theirs


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.1234567.mlp.up_proj.weight",
        "model.layers.-1.mlp.up_proj.weight",
        "model.layers.x.mlp.up_proj.weight",
        "model.layers.0.mlp.up_proj.scale",
        "model.layers.0.mlp.up_proj.weight_scale",
        "model.layers.0.mlp.experts.3.up_proj.weight",
        "xmodel.layers.0.mlp.up_proj.weight",
        "model.layers.0.mlp.up_proj.weight\n",
        "lm_head.bias",
        "",
    ],
)
def test_an_unknown_name_is_kept_as_it_is(name: str) -> None:
    assert gguf_name(name, architecture="llama") == name
    assert list(translate_tensors({name: stored([1])}, architecture="llama", file=FILE)) == [name]


def test_leading_zeros_of_a_layer_number_are_dropped() -> None:
    assert gguf_name("model.layers.007.mlp.up_proj.weight", architecture="llama") == "blk.7.ffn_up.weight"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("language_model.model.norm.weight", "output_norm.weight"),
        ("model.language_model.layers.1.mlp.up_proj.weight", "blk.1.ffn_up.weight"),
        ("language_model.lm_head.weight", "output.weight"),
    ],
)
def test_the_text_part_of_an_image_model_loses_its_prefix(theirs: str, ours: str) -> None:
    assert gguf_name(theirs, architecture="gemma3") == ours


@pytest.mark.parametrize(
    "name",
    [
        "vision_tower.encoder.weight",
        "model.vision_tower.encoder.weight",
        "multi_modal_projector.weight",
        "model.multi_modal_projector.weight",
        "model.layers.3.self_attn.rotary_emb.inv_freq",
    ],
)
def test_parts_for_images_and_stored_angles_are_left_out(name: str) -> None:
    tensors = {name: stored([1]), "model.norm.weight": stored([2])}
    assert list(translate_tensors(tensors, architecture="llama", file=FILE)) == ["output_norm.weight"]


def test_a_tensor_keeps_type_shape_and_bytes_and_takes_its_new_name() -> None:
    q = stored([[1, 2], [3, 4], [5, 6]])
    (found,) = translate_tensors(
        {"model.layers.0.self_attn.q_proj.weight": q}, architecture="gemma3", file=FILE
    ).values()
    assert (found.name, found.tensor_type, found.shape) == ("blk.0.attn_q.weight", "F32", (3, 2))
    assert found.data is q.data, "a view of the file, not a copy"


def test_one_tensor_under_two_names_is_refused_by_the_second() -> None:
    names = ("model.norm.weight", "language_model.model.norm.weight")
    with pytest.raises(ModelFileError) as caught:
        translate_tensors({name: stored([1]) for name in names}, architecture="gemma3", file=FILE)
    assert str(caught.value) == f"{FILE}: tensor {names[1]!r} is there twice, under two names"


def test_only_gemmas_norms_get_their_one() -> None:
    tensors = {"model.norm.weight": stored([0.5, -1]), "model.layers.0.mlp.up_proj.bias": stored([0.5, -1])}
    for architecture, norm in (("llama", [0.5, -1]), ("qwen3", [0.5, -1]), ("gemma3", [1.5, 0])):
        found = translate_tensors(tensors, architecture=architecture, file=FILE)
        assert found["output_norm.weight"].data.view(np.float32).tolist() == norm
        assert found["blk.0.ffn_up.bias"].data.view(np.float32).tolist() == [0.5, -1]


def test_a_half_norm_of_gemma_becomes_float32_before_the_one_is_added() -> None:
    half = np.array([0.0004883, -1], np.float16)  # one more bit than float16 has beside a 1
    norm = translate_tensors({"model.norm.weight": stored(half, dtype="F16")}, architecture="gemma3", file=FILE)[
        "output_norm.weight"
    ]
    assert (norm.tensor_type, norm.shape) == ("F32", (2,))
    assert norm.data.view(np.float32).tolist() == [1 + float(half[0]), 0]


@pytest.mark.parametrize(("dtype", "values"), [("F32", [[1, 2], [3, 4]]), ("I32", np.array([1, 2], np.int32))])
def test_a_norm_that_is_none_is_left_to_whoever_takes_it(dtype: str, values: Any) -> None:
    tensor = stored(values, dtype=dtype)
    norm = translate_tensors({"model.norm.weight": tensor}, architecture="gemma3", file=FILE)["output_norm.weight"]
    assert norm.data is tensor.data
    assert norm.tensor_type == dtype


def test_a_head_belongs_to_an_untied_model_alone() -> None:
    whole = {HEAD: ref(HEAD, [[1, 2]]), EMBEDDING: ref(EMBEDDING, [[1, 2]])}
    assert set(tie_head(whole, is_tied=False, file=FILE)) == {HEAD, EMBEDDING}
    assert set(tie_head(whole, is_tied=True, file=FILE)) == {EMBEDDING}
    without = {EMBEDDING: whole[EMBEDDING]}
    assert tie_head(without, is_tied=True, file=FILE) == without
    with pytest.raises(ModelFileError, match=r"'lm_head\.weight' is missing: get the missing file, or set"):
        tie_head(without, is_tied=False, file=FILE)


@pytest.mark.parametrize(
    ("head", "is_warned"),
    [
        (ref(HEAD, [[1, 2], [3, 4]]), False),
        (ref(HEAD, [[1, 2], [3, 5]]), True),
        (ref(HEAD, [[9, 2], [3, 4]]), True),
        (ref(HEAD, [[1, 2, 3, 4]]), True),
        (ref(HEAD, [[1, 2], [3, 4]], tensor_type="I32"), True),
    ],
)
@pytest.mark.parametrize("compare_bytes", [4, 7, 2**24])
def test_a_tied_head_is_compared_to_its_last_byte(
    head: TensorRef,
    is_warned: bool,
    compare_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(hf_tensors, "_COMPARE_BYTES", compare_bytes)
    tensors = {HEAD: head, EMBEDDING: ref(EMBEDDING, [[1, 2], [3, 4]])}
    with caplog.at_level(logging.WARNING, logger="twostroke"):
        assert set(tie_head(tensors, is_tied=True, file=FILE)) == {EMBEDDING}
    assert len(caplog.messages) == is_warned


def test_a_tied_head_without_an_embedding_is_dropped_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    assert tie_head({HEAD: ref(HEAD, [[1]])}, is_tied=True, file=FILE) == {}
    assert caplog.messages == []
