"""Gemma 3: windows by pattern, two ropes, norms around both halves, scale and caps."""

import math
from typing import Any

import numpy as np
import pytest

from tests.builders_sources import make_source, tiny_shapes
from twostroke.errors import ModelFileError
from twostroke.model.families import build_program
from twostroke.model.gemma import read_gemma3
from twostroke.program.op import Activation, AttendAttrs, GluAttrs, Op, RopeAttrs, RopeStyle, ScaleAttrs, SoftcapAttrs
from twostroke.program.program import Program


def gemma(num_layers: int = 2, **keys: Any) -> Program:
    metadata = {f"gemma3.{key.replace('__', '.')}": value for key, value in keys.items()}
    if num_layers == 2:
        return build_program(make_source("gemma3", metadata=metadata))
    shapes = {name: shape for name, shape in tiny_shapes("gemma3", num_layers=num_layers).items() if "blk" in name}
    metadata["gemma3.block_count"] = num_layers
    return build_program(make_source("gemma3", metadata=metadata, shapes=shapes))


def windows_of(program: Program) -> list[int | None]:
    return [instr.attrs.window for instr in program.instrs if isinstance(instr.attrs, AttendAttrs)]


def test_the_embedding_is_scaled_by_the_root_of_the_width() -> None:
    embed, scale = gemma().instrs[:2]
    assert (embed.op, scale.op) == (Op.EMBED, Op.SCALE)
    assert scale.attrs == ScaleAttrs(math.sqrt(32))


def test_the_ops_of_a_block_in_order() -> None:
    assert [instr.name.removeprefix("blk.0.") for instr in gemma().instrs[2:19]] == [
        "attn_norm",
        "attn_q+attn_k+attn_v",
        "attn_q_norm",
        "attn_k_norm",
        "rope_q",
        "rope_k",
        "kv_write",
        "attend",
        "attn_output",
        "post_attention_norm",
        "attn_add",
        "ffn_norm",
        "ffn_gate+ffn_up",
        "glu",
        "ffn_down",
        "post_ffw_norm",
        "ffn_add",
    ]


def test_post_norms_come_before_the_residual_is_added() -> None:
    instrs = {instr.name: instr for instr in gemma().instrs}
    assert instrs["blk.0.attn_add"].inputs[1] == instrs["blk.0.post_attention_norm"].outputs[0]
    assert instrs["blk.0.ffn_add"].inputs == (
        instrs["blk.0.attn_add"].outputs[0],
        instrs["blk.0.post_ffw_norm"].outputs[0],
    )


def test_every_sixth_layer_is_global_when_the_file_is_silent() -> None:
    program = gemma(13, attention__sliding_window_pattern=None)
    assert windows_of(program) == ([4] * 5 + [None]) * 2 + [4]
    assert [group.layers for group in program.kv_groups] == [(0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12), (5, 11)]


def test_the_pattern_may_be_a_number_or_a_flag_per_layer() -> None:
    assert windows_of(gemma(4, attention__sliding_window_pattern=3)) == [4, 4, None, 4]
    flags = np.array([False, True, True, False])
    assert windows_of(gemma(4, attention__sliding_window_pattern=flags)) == [None, 4, 4, None]
    with pytest.raises(ModelFileError, match="is an array of 3: it must be one entry for each of the 2 layers"):
        gemma(attention__sliding_window_pattern=flags[:3])
    with pytest.raises(ModelFileError, match="must be an array of bools"):
        gemma(attention__sliding_window_pattern=np.array([1, 0]))


def test_without_a_window_every_layer_is_global() -> None:
    assert windows_of(gemma(attention__sliding_window=None)) == [None, None]


def test_window_layers_have_the_local_rope_and_no_scaling() -> None:
    program = gemma(rope__freq_base=1e6, rope__scaling__type="linear", rope__scaling__factor=8.0)
    used = {}
    for instr in program.instrs:
        if isinstance(instr.attrs, RopeAttrs):
            assert instr.attrs.style is RopeStyle.HALVES
            used[instr.name] = program.rope_tables[instr.attrs.table]
    assert {name: table.name for name, table in used.items()} == {
        "blk.0.rope_q": "local",
        "blk.0.rope_k": "local",
        "blk.1.rope_q": "global",
        "blk.1.rope_k": "global",
    }
    np.testing.assert_allclose(used["blk.0.rope_q"].inv_freq, 10_000.0 ** (-np.arange(4) / 4), rtol=1e-6)
    np.testing.assert_allclose(used["blk.1.rope_q"].inv_freq, 1e6 ** (-np.arange(4) / 4) / 8, rtol=1e-6)


def test_rope_bases_have_gemmas_defaults() -> None:
    config = read_gemma3(make_source("gemma3", metadata={"gemma3.rope.freq_base": None}))
    assert config.global_rope.inv_freq[1] == pytest.approx(1e6**-0.25)
    assert config.local_rope.inv_freq[1] == pytest.approx(1e4**-0.25)
    other = read_gemma3(make_source("gemma3", metadata={"gemma3.rope.freq_base_swa": 500.0}))
    assert other.local_rope.inv_freq[1] == pytest.approx(500**-0.25)


def test_the_attention_scale_is_the_files_or_that_of_the_head() -> None:
    def scales(program: Program) -> set[float]:
        return {instr.attrs.scale for instr in program.instrs if isinstance(instr.attrs, AttendAttrs)}

    assert scales(gemma()) == {8**-0.5}
    assert scales(gemma(attention__scale=0.125)) == {0.125}
    twelve = {"attention__key_length": None, "attention__head_count": 4}
    assert scales(gemma(62, **twelve)) == {(32 / 4) ** -0.5}


def test_caps_are_used_where_the_file_has_them() -> None:
    plain = gemma()
    assert plain.instrs[-1].op is Op.LOGITS
    capped = gemma(final_logit_softcapping=30.0, attn_logit_softcapping=50.0)
    assert capped.instrs[-1].attrs == SoftcapAttrs(30.0)
    assert {instr.attrs.softcap for instr in capped.instrs if isinstance(instr.attrs, AttendAttrs)} == {50.0}
    assert gemma(final_logit_softcapping=0.0).instrs[-1].op is Op.LOGITS


def test_gates_are_gelu() -> None:
    assert {instr.attrs for instr in gemma().instrs if isinstance(instr.attrs, GluAttrs)} == {
        GluAttrs(Activation.GELU_TANH)
    }


@pytest.mark.parametrize("name", ["post_attention_norm", "post_ffw_norm", "attn_q_norm"])
def test_a_missing_norm_is_named(name: str) -> None:
    with pytest.raises(ModelFileError, match=rf"blk\.1\.{name}\.weight"):
        build_program(make_source("gemma3", shapes={f"blk.1.{name}.weight": None}))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("attention.sliding_window", -1, "is -1: it must be from 1"),
        ("attention.sliding_window_pattern", 0, "is 0: it must be from 1"),
        ("attention.scale", float("nan"), "is nan: it must be from 1e-30 to 1e.30"),
        ("rope.freq_base_swa", 0.5, "is 0.5: it must be above 1"),
        ("final_logit_softcapping", -30.0, "is -30: it must be from 1e-30 to 1e.30"),
    ],
)
def test_a_wrong_number_names_its_key(key: str, value: float, message: str) -> None:
    with pytest.raises(ModelFileError, match=message) as caught:
        build_program(make_source("gemma3", metadata={f"gemma3.{key}": value}))
    assert f"gemma3.{key}" in str(caught.value)
