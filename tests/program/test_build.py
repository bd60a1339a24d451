"""The verbs of the builder: what they append, what they ask of the file."""

import numpy as np
import pytest

from tests.builders_sources import FILE, make_source
from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.model.families import build_program
from twostroke.model.source import TensorRef, TensorTable
from twostroke.program.build import ProgramBuilder
from twostroke.program.op import (
    Activation,
    AttendAttrs,
    GluAttrs,
    KVWriteAttrs,
    LinearAttrs,
    NoAttrs,
    Op,
    RmsNormAttrs,
    RopeAttrs,
    RopeStyle,
    ScaleAttrs,
    SoftcapAttrs,
)
from twostroke.program.program import Axis, KVGroup, RopeTable

SHAPES = {"e.weight": (6, 4), "n.weight": (4,), "a.weight": (4, 4), "b.weight": (2, 4), "b.bias": (2,)}


def make_builder(**changes: tuple[int, ...]) -> ProgramBuilder:
    shapes = {**SHAPES, **{name.replace("_", "."): shape for name, shape in changes.items()}}
    tensors = {
        name: TensorRef(name, "F32", shape, np.zeros(4 * int(np.prod(shape)), np.uint8))
        for name, shape in shapes.items()
    }
    return ProgramBuilder(TensorTable(FILE, tensors), file=FILE, architecture="toy")


def test_the_smallest_program_is_embed_select_logits() -> None:
    b = make_builder()
    x = b.embed("e.weight", vocab_size=6, width=4)
    b.logits(b.select(x), "e.weight", vocab_size=6)
    program = b.finish(vocab_size=6, context_length=10)
    assert [instr.op for instr in program.instrs] == [Op.EMBED, Op.SELECT, Op.LOGITS]
    assert [(value.width, value.axis) for value in program.values] == [
        (4, Axis.TOKENS),
        (4, Axis.SELECTED),
        (6, Axis.SELECTED),
    ]
    assert list(program.weights) == ["e.weight"]
    assert (program.width, program.vocab_size, program.context_length) == (4, 6, 10)
    assert program.kv_groups == ()


def test_a_linear_with_several_weights_is_one_instr_with_one_value_each() -> None:
    b = make_builder()
    x = b.embed("e.weight", vocab_size=6, width=4)
    first, second = b.linear(x, {"a": 4, "b": 2})
    b.logits(b.select(b.add(x, first, name="add")), "e.weight", vocab_size=6)
    program = b.finish(vocab_size=6, context_length=10)
    instr = program.instrs[1]
    assert instr.outputs == (first, second)
    assert instr.weights == ("a.weight", "b.weight")
    assert instr.attrs == LinearAttrs((None, "b.bias"))
    assert instr.name == "a+b"
    assert [program.values[value].name for value in instr.outputs] == ["a", "b"]
    assert [program.values[value].width for value in instr.outputs] == [4, 2]


def test_a_bias_is_used_where_the_file_has_one_and_missed_where_it_is_needed() -> None:
    b = make_builder()
    x = b.embed("e.weight", vocab_size=6, width=4)
    with pytest.raises(ModelFileError, match=r"tiny.gguf: tensor a.bias \[4\] is missing: a toy model needs it"):
        b.linear(x, {"a": 4}, needs_bias=True)


def test_a_missing_weight_names_file_tensor_and_shape() -> None:
    b = make_builder()
    with pytest.raises(ModelFileError, match=r"tiny.gguf: tensor zz.weight \[6, 4\] is missing"):
        b.embed("zz.weight", vocab_size=6, width=4)


def test_a_norm_spans_the_width_unless_told_a_group() -> None:
    b = make_builder(q_weight=(2,))
    x = b.embed("e.weight", vocab_size=6, width=4)
    x = b.rmsnorm(x, "n.weight", eps=0.5)
    x = b.rmsnorm(x, "q.weight", eps=0.5, group=2)
    b.logits(b.select(x), "e.weight", vocab_size=6)
    program = b.finish(vocab_size=6, context_length=10)
    assert [instr.attrs for instr in program.instrs[1:3]] == [RmsNormAttrs(0.5, 4), RmsNormAttrs(0.5, 2)]


def test_equal_rope_tables_are_one() -> None:
    b = make_builder()
    table = RopeTable("rope", (1.0, 0.5), 1.0)
    assert b.rope_table(table) == 0
    assert b.rope_table(RopeTable("other", (1.0, 0.5), 1.0)) == 1
    assert b.rope_table(RopeTable("rope", (1.0, 0.5), 1.0)) == 0


def test_layers_of_equal_window_and_kv_shape_share_a_group() -> None:
    b = make_builder()
    places = [b.kv_layer(layer, num_kv_heads=2, head_dim=2, window=8 if layer % 2 else None) for layer in range(4)]
    assert [(place.group, place.index) for place in places] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert b.kv_layer(4, num_kv_heads=1, head_dim=2).group == 2


def test_attend_takes_heads_from_the_width_of_q() -> None:
    b = make_builder()
    x = b.embed("e.weight", vocab_size=6, width=4)
    k, v = b.linear(x, {"b": 2, "a": 4})[0], b.linear(x, {"b": 2})[0]
    cache = b.kv_layer(0, num_kv_heads=1, head_dim=2)
    b.kv_write(k, v, to=cache, name="kv_write")
    b.attend(x, to=cache, scale=0.5, name="attend")
    instr = b._instrs[-1]
    assert (instr.attrs.num_heads, instr.attrs.num_kv_heads, instr.attrs.head_dim) == (2, 1, 2)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (lambda b, x, narrow: b.add(x, narrow, name="add"), r"widths \(4, 2\)"),
        (lambda b, x, narrow: b.glu(narrow, x, activation=Activation.SILU, name="glu"), r"widths \(2, 4\)"),
        (
            lambda b, x, narrow: b.rope(narrow, head_dim=2, rotary_dim=1, style=RopeStyle.PAIRS, table=0, name="rope"),
            "rotary_dim 1 is odd",
        ),
        (
            lambda b, x, narrow: b.rope(x, head_dim=2, rotary_dim=4, style=RopeStyle.PAIRS, table=0, name="rope"),
            "rotary_dim 4, head_dim 2",
        ),
        (
            lambda b, x, narrow: b.kv_write(x, narrow, to=b.kv_layer(0, num_kv_heads=1, head_dim=2), name="kv"),
            r"k, v are \(4, 2\)",
        ),
    ],
)
def test_widths_that_disagree_are_a_broken_invariant_at_once(verb, message) -> None:  # type: ignore[no-untyped-def]
    b = make_builder()
    x = b.embed("e.weight", vocab_size=6, width=4)
    (narrow,) = b.linear(x, {"b": 2})
    with pytest.raises(AssertionError, match=message):
        verb(b, x, narrow)


def test_one_weight_cannot_have_two_shapes() -> None:
    b = make_builder()
    x = b.embed("e.weight", vocab_size=6, width=4)
    with pytest.raises(AssertionError, match=r"e\.weight is used as"):
        b.logits(b.select(x), "e.weight", vocab_size=5)


def test_the_program_is_frozen() -> None:
    program = build_program(make_source())
    with pytest.raises(AttributeError):
        program.width = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        program.weights["x"] = None  # type: ignore[index]
    assert isinstance(program.instrs, tuple)
    assert program.instrs[0].attrs == NoAttrs()


def test_a_tensor_type_we_cannot_compute_is_unsupported_not_damaged() -> None:
    tensors = {"e.weight": TensorRef("e.weight", "IQ2_S", (6, 256), np.zeros(6 * 82, np.uint8))}
    b = ProgramBuilder(TensorTable(FILE, tensors), file=FILE, architecture="toy")
    with pytest.raises(UnsupportedModelError, match=r"e\.weight.*IQ2_S.*Q4_K"):
        b.embed("e.weight", vocab_size=6, width=256)


def test_every_verb_carries_its_attributes_and_its_name() -> None:
    b = make_builder()
    x = b.embed("e.weight", vocab_size=6, width=4)
    table = b.rope_table(RopeTable("rope", (1.0,), 1.0))
    q = b.rope(x, head_dim=2, rotary_dim=2, style=RopeStyle.HALVES, table=table, name="rope_q")
    (k,) = b.linear(x, {"b": 2})
    cache = b.kv_layer(5, num_kv_heads=1, head_dim=2, window=3)
    b.kv_write(k, k, to=cache, name="kv_write")
    y = b.attend(q, to=cache, scale=0.5, softcap=30.0, name="attend")
    y = b.glu(y, x, activation=Activation.GELU_TANH, name="glu")
    y = b.add(b.scale(y, factor=4.0, name="scale"), x, name="add")
    b.softcap(b.logits(b.select(y), "e.weight", vocab_size=6), cap=7.0, name="cap")
    program = b.finish(vocab_size=6, context_length=10)
    assert [(instr.op.value, instr.name) for instr in program.instrs] == [
        ("embed", "e"),
        ("rope", "rope_q"),
        ("linear", "b"),
        ("kv_write", "kv_write"),
        ("attend", "attend"),
        ("glu", "glu"),
        ("scale", "scale"),
        ("add", "add"),
        ("select", "select"),
        ("logits", "logits"),
        ("softcap", "cap"),
    ]
    assert [program.instrs[index].attrs for index in (1, 3, 4, 5, 6, 10)] == [
        RopeAttrs(num_heads=2, head_dim=2, rotary_dim=2, style=RopeStyle.HALVES, table=0),
        KVWriteAttrs(group=0, layer=0, num_kv_heads=1, head_dim=2),
        AttendAttrs(group=0, layer=0, num_heads=2, num_kv_heads=1, head_dim=2, scale=0.5, window=3, softcap=30.0),
        GluAttrs(Activation.GELU_TANH),
        ScaleAttrs(4.0),
        SoftcapAttrs(7.0),
    ]
    assert program.kv_groups == (KVGroup(id=0, layers=(5,), num_kv_heads=1, head_dim=2, window=3),)
    assert program.rope_tables == (RopeTable("rope", (1.0,), 1.0),)


def test_values_are_numbered_as_they_are_written_and_the_order_of_operands_is_kept() -> None:
    b = make_builder()
    x = b.embed("e.weight", vocab_size=6, width=4)
    y, narrow = b.linear(x, {"a": 4, "b": 2})
    total = b.add(y, x, name="add")
    assert (x, y, narrow, total) == (0, 1, 2, 3)
    assert b._instrs[-1].inputs == (y, x)
    assert b._instrs[-1].outputs == (total,)


def test_all_that_follows_select_is_on_its_axis() -> None:
    b = make_builder()
    x = b.select(b.embed("e.weight", vocab_size=6, width=4))
    x = b.rmsnorm(x, "n.weight", eps=0.5)
    x = b.linear(x, {"a": 4})[0]
    b.logits(b.scale(x, factor=2.0, name="scale"), "e.weight", vocab_size=6)
    axes = [value.axis for value in b.finish(vocab_size=6, context_length=10).values]
    assert axes == [Axis.TOKENS] + [Axis.SELECTED] * 5


def test_a_weight_is_known_once_however_often_it_is_used() -> None:
    b = make_builder()
    x = b.embed("e.weight", vocab_size=6, width=4)
    for _ in range(2):
        x = b.linear(x, {"a": 4})[0]
    b.linear(x, {"b": 2})
    b.logits(b.select(x), "e.weight", vocab_size=6)
    program = b.finish(vocab_size=6, context_length=10)
    assert list(program.weights) == ["e.weight", "a.weight", "b.weight", "b.bias"]
    assert program.weights["b.bias"].shape == (2,)


def test_the_stem_of_every_later_weight_is_what_its_layer_leaves() -> None:
    shapes = {"e.weight": (6, 4), "blk.3.attn_q.weight": (4, 4), "blk.3.attn_k.weight": (2, 4)}
    tensors = {
        name: TensorRef(name, "F32", shape, np.zeros(4 * int(np.prod(shape)), np.uint8))
        for name, shape in shapes.items()
    }
    b = ProgramBuilder(TensorTable(FILE, tensors), file=FILE, architecture="toy")
    assert b.has("blk.3.attn_q.weight")
    assert not b.has("blk.3.attn_q.bias")
    b.linear(b.embed("e.weight", vocab_size=6, width=4), {"blk.3.attn_q": 4, "blk.3.attn_k": 2})
    assert b._instrs[-1].name == "blk.3.attn_q+attn_k"


def test_a_needed_bias_that_is_there_is_used() -> None:
    b = make_builder()
    x = b.embed("e.weight", vocab_size=6, width=4)
    b.linear(x, {"b": 2}, needs_bias=True)
    assert b._instrs[-1].attrs == LinearAttrs(("b.bias",))


def test_the_vocabulary_the_program_promises_is_the_width_of_its_logits() -> None:
    b = make_builder()
    b.logits(b.select(b.embed("e.weight", vocab_size=6, width=4)), "e.weight", vocab_size=6)
    with pytest.raises(AssertionError, match="logits have width 6, vocabulary 7"):
        b.finish(vocab_size=7, context_length=10)
