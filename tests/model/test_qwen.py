"""What Qwen 2 and 3 change in Llama's blocks."""

import pytest

from tests.builders_sources import make_source
from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.model.families import build_program
from twostroke.model.qwen import read_qwen2, read_qwen3
from twostroke.program.op import LinearAttrs, Op, RmsNormAttrs, RopeAttrs, RopeStyle


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_halves_turn_together_in_both_formats(architecture: str) -> None:
    program = build_program(make_source(architecture))
    assert {instr.attrs.style for instr in program.instrs if isinstance(instr.attrs, RopeAttrs)} == {RopeStyle.HALVES}


def test_qwen2_adds_biases_to_q_k_and_v_alone() -> None:
    program = build_program(make_source("qwen2"))
    biases = [instr.attrs.biases for instr in program.instrs if isinstance(instr.attrs, LinearAttrs)]
    assert biases[:4] == [
        ("blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias"),
        (None,),
        (None, None),
        (None,),
    ]


@pytest.mark.parametrize("name", ["attn_q", "attn_k", "attn_v"])
def test_qwen2_without_one_of_its_biases_is_damaged(name: str) -> None:
    with pytest.raises(ModelFileError, match=rf"blk\.1\.{name}\.bias \[\d+\] is missing"):
        build_program(make_source("qwen2", shapes={f"blk.1.{name}.bias": None}))


def test_qwen3_norms_each_head_of_q_and_k_before_the_rope() -> None:
    program = build_program(make_source("qwen3"))
    names = [instr.name for instr in program.instrs[1:7]]
    assert names == [
        "blk.0.attn_norm",
        "blk.0.attn_q+attn_k+attn_v",
        "blk.0.attn_q_norm",
        "blk.0.attn_k_norm",
        "blk.0.rope_q",
        "blk.0.rope_k",
    ]
    assert [instr.attrs for instr in program.instrs[3:5]] == [RmsNormAttrs(1e-5, 8)] * 2
    assert program.instrs[5].inputs == program.instrs[3].outputs
    assert program.instrs[6].inputs == program.instrs[4].outputs


def test_qwen3_without_its_norms_is_damaged() -> None:
    with pytest.raises(ModelFileError, match=r"blk\.0\.attn_k_norm\.weight \[8\] is missing"):
        build_program(make_source("qwen3", shapes={"blk.0.attn_k_norm.weight": None}))


def test_v_is_stored_as_projected() -> None:
    program = build_program(make_source("qwen3"))
    qkv = program.instrs[2]
    (write,) = [instr for instr in program.instrs if instr.name == "blk.0.kv_write"]
    assert write.op is Op.KV_WRITE
    assert write.inputs[1] == qkv.outputs[2]
    assert write.inputs[0] != qkv.outputs[1]


def test_only_qwen2_needs_biases_and_only_qwen3_norms() -> None:
    second, third = read_qwen2(make_source("qwen2")), read_qwen3(make_source("qwen3"))
    assert (second.needs_qkv_bias, second.has_qk_norm) == (True, False)
    assert (third.needs_qkv_bias, third.has_qk_norm) == (False, True)
    assert second.window is third.window is None


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_a_window_in_some_layers_is_unsupported_and_0_is_none(architecture: str) -> None:
    key = f"{architecture}.attention.sliding_window"
    with pytest.raises(UnsupportedModelError, match=rf"'{key}' is 16: supported are Qwen models with full attention"):
        build_program(make_source(architecture, metadata={key: 16}))
    assert build_program(make_source(architecture, metadata={key: 0})).kv_groups[0].window is None


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_tied_heads_use_the_embedding(architecture: str) -> None:
    program = build_program(make_source(architecture, shapes={"output.weight": None}))
    assert program.instrs[-1].weights == ("token_embd.weight",)
