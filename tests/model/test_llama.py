"""Llama's program: order of the ops, heads, ropes, tied heads, optional biases, Mistral's window."""

import pytest

from tests.builders_sources import make_source
from twostroke.errors import ModelFileError
from twostroke.model.families import build_program
from twostroke.model.llama import read_llama
from twostroke.program.op import Activation, AttendAttrs, GluAttrs, LinearAttrs, Op, RmsNormAttrs, RopeAttrs, RopeStyle
from twostroke.program.program import Axis, Program

BLOCK = [
    Op.RMSNORM,
    Op.LINEAR,
    Op.ROPE,
    Op.ROPE,
    Op.KV_WRITE,
    Op.ATTEND,
    Op.LINEAR,
    Op.ADD,
    Op.RMSNORM,
    Op.LINEAR,
    Op.GLU,
    Op.LINEAR,
    Op.ADD,
]
OUTPUT = 6  # where a block turns from attention to what each token does alone


def attrs_of(program: Program, kind: type) -> list:  # type: ignore[type-arg]
    return [instr.attrs for instr in program.instrs if isinstance(instr.attrs, kind)]


def test_the_ops_in_order() -> None:
    program = build_program(make_source())
    assert [instr.op for instr in program.instrs] == [
        Op.EMBED,
        *BLOCK,
        *BLOCK[:OUTPUT],
        Op.SELECT,
        Op.SELECT,
        *BLOCK[OUTPUT:],
        Op.RMSNORM,
        Op.LOGITS,
    ]


def test_the_residual_skips_norm_and_half_block() -> None:
    instrs = build_program(make_source()).instrs
    embed, norm = instrs[0], instrs[1]
    first_add, second_norm = instrs[8], instrs[9]
    assert norm.inputs == embed.outputs
    assert first_add.inputs[0] == embed.outputs[0]
    assert second_norm.inputs == first_add.outputs
    assert instrs[13].inputs[0] == first_add.outputs[0]


def test_q_k_and_v_share_one_linear_and_so_do_gate_and_up() -> None:
    program = build_program(make_source())
    linears = [instr for instr in program.instrs if instr.op is Op.LINEAR]
    assert [len(instr.weights) for instr in linears[:4]] == [3, 1, 2, 1]
    assert linears[0].weights == ("blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight")
    assert [instr.name for instr in program.instrs if instr.op is Op.KV_WRITE] == ["blk.0.kv_write", "blk.1.kv_write"]


def test_grouped_heads_and_scale() -> None:
    attends = attrs_of(build_program(make_source()), AttendAttrs)
    assert attends[0] == AttendAttrs(
        group=0, layer=0, num_heads=4, num_kv_heads=2, head_dim=8, scale=8**-0.5, window=None, softcap=None
    )
    assert attends[1].layer == 1


def test_gguf_turns_neighbours_and_folders_turn_halves() -> None:
    assert read_llama(make_source()).rope_style is RopeStyle.PAIRS
    folder = make_source(metadata={"twostroke.rope_style": "halves"})
    ropes = attrs_of(build_program(folder), RopeAttrs)
    assert {attrs.style for attrs in ropes} == {RopeStyle.HALVES}
    assert [attrs.num_heads for attrs in ropes] == [4, 2, 4, 2]


def test_an_explicit_head_dim_goes_everywhere() -> None:
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in (0, 1):
        shapes |= {
            f"blk.{layer}.attn_q.weight": (48, 32),
            f"blk.{layer}.attn_k.weight": (24, 32),
            f"blk.{layer}.attn_v.weight": (24, 32),
            f"blk.{layer}.attn_output.weight": (32, 48),
        }
    keys = {"llama.attention.key_length": 12, "llama.attention.value_length": 12}
    program = build_program(make_source(metadata=keys, shapes=shapes))
    assert program.kv_groups[0].head_dim == 12
    assert attrs_of(program, AttendAttrs)[0].scale == 12**-0.5
    assert {attrs.rotary_dim for attrs in attrs_of(program, RopeAttrs)} == {12}
    assert len(program.rope_tables[0].inv_freq) == 6
    with pytest.raises(ModelFileError, match=r"attn_q.weight has shape \[32, 32\], the model needs \[48, 32\]"):
        build_program(make_source(metadata=keys))


def test_part_of_a_head_may_turn() -> None:
    program = build_program(make_source(metadata={"llama.rope.dimension_count": 4}))
    assert attrs_of(program, RopeAttrs)[0].rotary_dim == 4
    assert list(program.rope_tables[0].inv_freq) == [1.0, pytest.approx(0.01)]


def test_a_head_of_its_own_or_the_embedding() -> None:
    assert build_program(make_source()).instrs[-1].weights == ("output.weight",)
    tied = build_program(make_source(shapes={"output.weight": None}))
    assert tied.instrs[-1].weights == ("token_embd.weight",)
    assert "output.weight" not in tied.weights


def test_biases_are_used_where_the_file_has_them() -> None:
    shapes = {"blk.0.attn_output.bias": (32,), "blk.1.ffn_up.bias": (64,)}
    program = build_program(make_source(shapes=shapes))
    biases = [attrs.biases for attrs in attrs_of(program, LinearAttrs)]
    assert biases == [
        (None, None, None),
        ("blk.0.attn_output.bias",),
        (None, None),
        (None,),
        (None, None, None),
        (None,),
        (None, "blk.1.ffn_up.bias"),
        (None,),
    ]


def test_mistrals_window_holds_for_every_layer() -> None:
    program = build_program(make_source(metadata={"llama.attention.sliding_window": 6}))
    assert [(group.layers, group.window) for group in program.kv_groups] == [((0, 1), 6)]
    without = build_program(make_source(metadata={"llama.attention.sliding_window": 0}))
    assert without.kv_groups[0].window is None


def test_norms_have_the_files_epsilon_and_gates_are_silu() -> None:
    program = build_program(make_source(metadata={"llama.attention.layer_norm_rms_epsilon": 0.25}))
    assert set(attrs_of(program, RmsNormAttrs)) == {RmsNormAttrs(0.25, 32)}
    assert set(attrs_of(program, GluAttrs)) == {GluAttrs(Activation.SILU)}


def test_only_selected_tokens_go_on_behind_the_last_attention() -> None:
    program = build_program(make_source())
    last = len(program.instrs) - 1 - [instr.op for instr in program.instrs[::-1]].index(Op.ATTEND)
    before, after = program.instrs[: last + 1], program.instrs[last + 1 :]
    assert {program.values[value].axis for instr in before for value in instr.outputs} == {Axis.TOKENS}
    assert {program.values[value].axis for instr in after for value in instr.outputs} == {Axis.SELECTED}
    residual, mixed = after[:2]
    assert (residual.op, mixed.op) == (Op.SELECT, Op.SELECT)
    assert residual.inputs == next(instr for instr in before if instr.name == "blk.0.ffn_add").outputs
    assert mixed.inputs == before[-1].outputs


def test_the_last_norm_leads_to_the_head() -> None:
    program = build_program(make_source())
    add, norm, logits = program.instrs[-3:]
    assert norm.inputs == add.outputs
    assert logits.inputs == norm.outputs
    assert program.values[logits.outputs[0]].width == program.vocab_size


@pytest.mark.parametrize(
    ("scaling", "context"),
    [
        ({"type": "yarn", "factor": 4.0, "original_context_length": 64}, 256),
        ({"type": "yarn", "factor": 4.0, "original_context_length": 8}, 64),
        ({"type": "linear", "factor": 2.0}, 64),
        ({"type": "linear", "factor": 2.0, "original_context_length": 64}, 128),
        ({"type": "none"}, 64),
    ],
)
def test_the_context_is_what_the_scaling_reaches(scaling: dict[str, object], context: int) -> None:
    keys = {f"llama.rope.scaling.{key}": value for key, value in scaling.items()}
    assert build_program(make_source(metadata=keys)).context_length == context


def test_an_unknown_rope_style_is_refused() -> None:
    with pytest.raises(ModelFileError, match=r"key 'twostroke.rope_style' is 'x': it must be halves or pairs"):
        build_program(make_source(metadata={"twostroke.rope_style": "x"}))
