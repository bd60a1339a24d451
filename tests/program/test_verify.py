"""Every way a program can be broken is caught, with the numbers; a damaged file is the user's error."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.builders_sources import FILE, make_source
from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.model.families import FAMILIES, build_program
from twostroke.model.source import TensorRef
from twostroke.program.op import AttendAttrs, KVWriteAttrs, LinearAttrs, NoAttrs, Op, RmsNormAttrs, RopeAttrs
from twostroke.program.program import Axis, Instr, Program, WeightSpec
from twostroke.program.verify import verify, verify_weights


def tiny_program() -> Program:
    return build_program(make_source("qwen2"))


def index_of(program: Program, op: Op, *, nth: int = 0) -> int:
    return [index for index, instr in enumerate(program.instrs) if instr.op is op][nth]


def with_instr(program: Program, index: int, **changes: Any) -> Program:
    instrs = list(program.instrs)
    instrs[index] = replace(instrs[index], **changes)
    return replace(program, instrs=tuple(instrs))


def with_attrs(program: Program, op: Op, **changes: Any) -> Program:
    index = index_of(program, op)
    return with_instr(program, index, attrs=replace(program.instrs[index].attrs, **changes))


def with_value(program: Program, index: int, **changes: Any) -> Program:
    values = list(program.values)
    values[index] = replace(values[index], **changes)
    return replace(program, values=tuple(values))


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_family_builds_a_sound_program(architecture: str) -> None:
    verify(build_program(make_source(architecture)))


def swap_first_two(program: Program) -> Program:
    first, second, *rest = program.instrs
    return replace(program, instrs=(second, first, *rest))


def write_twice(program: Program) -> Program:
    return replace(program, instrs=(program.instrs[0], program.instrs[0], *program.instrs[1:]))


def forget_a_value(program: Program) -> Program:
    return replace(program, values=(*program.values, replace(program.values[-1], id=len(program.values))))


def drop_the_kv_write(program: Program) -> Program:
    index = index_of(program, Op.KV_WRITE)
    return replace(program, instrs=program.instrs[:index] + program.instrs[index + 1 :])


def write_the_kv_twice(program: Program) -> Program:
    index = index_of(program, Op.KV_WRITE)
    return replace(program, instrs=(*program.instrs[: index + 1], *program.instrs[index:]))


def point_rope_nowhere(program: Program) -> Program:
    return with_attrs(program, Op.ROPE, table=3)


def shorten_the_rope_table(program: Program) -> Program:
    table = program.rope_tables[0]
    return replace(program, rope_tables=(replace(table, inv_freq=table.inv_freq[1:]),))


def select_twice(program: Program) -> Program:
    index = index_of(program, Op.SELECT)
    selected = program.instrs[index].outputs[0]
    extra = Instr(Op.SELECT, (selected,), (len(program.values),), (), NoAttrs(), "again")
    values = (*program.values, replace(program.values[selected], id=len(program.values)))
    instrs = (*program.instrs[: index + 1], extra, *program.instrs[index + 1 :])
    return replace(program, values=values, instrs=instrs)


def rename_group(program: Program) -> Program:
    return replace(program, kv_groups=(replace(program.kv_groups[0], id=4),))


def lose_a_bias(program: Program) -> Program:
    index = index_of(program, Op.LINEAR)
    return with_instr(program, index, attrs=LinearAttrs(("nowhere.bias", None, None)))


def fewer_biases(program: Program) -> Program:
    return with_instr(program, index_of(program, Op.LINEAR), attrs=LinearAttrs((None,)))


def long_bias(program: Program) -> Program:
    weights = {**program.weights, "blk.0.attn_q.bias": WeightSpec("blk.0.attn_q.bias", (31,), "F32")}
    return replace(program, weights=weights)


def mix_axes(program: Program) -> Program:
    """The last residual is added again to what was selected."""
    index = index_of(program, Op.SELECT)
    before, selected = program.instrs[index].inputs[0], program.instrs[index].outputs[0]
    extra = Instr(Op.ADD, (before, selected), (len(program.values),), (), NoAttrs(), "again")
    values = (*program.values, replace(program.values[before], id=len(program.values)))
    instrs = (*program.instrs[: index + 1], extra, *program.instrs[index + 1 :])
    return replace(program, values=values, instrs=instrs)


def promise_a_third_layer(program: Program) -> Program:
    return replace(program, kv_groups=(replace(program.kv_groups[0], layers=(0, 1, 2)),))


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (mix_axes, "again mixes axes"),
        (promise_a_third_layer, "3 layers in KV groups, 2 written"),
        (lambda p: with_attrs(p, Op.ROPE, table=1), "rope table 1 of 1"),
        (lambda p: with_attrs(p, Op.ROPE, table=-1), "rope table -1 of 1"),
        (lambda p: with_attrs(p, Op.ROPE, rotary_dim=6), "4 angles, 6"),
        (lambda p: with_attrs(p, Op.ROPE, rotary_dim=0), "rotary_dim 0, head_dim 8"),
        (lambda p: with_attrs(p, Op.ATTEND, group=-1), "KV group -1 of 1"),
        (lambda p: with_attrs(p, Op.KV_WRITE, layer=-1), "layer -1 of"),
        (lambda p: with_attrs(p, Op.KV_WRITE, num_kv_heads=1), r"k, v are \(16, 16\), 1 heads x 8"),
        (lambda p: with_instr(p, index_of(p, Op.ADD), inputs=(0,)), "1 inputs, wants 2"),
        (lambda p: with_value(p, len(p.values) - 1, axis=Axis.TOKENS), "should be on the selected axis"),
        (swap_first_two, "reads value 0 before it is written"),
        (write_twice, "writes value 0 a second time"),
        (forget_a_value, r"\d+ values, \d+ written"),
        (lambda p: with_value(p, 3, id=7), "value 3 calls itself 7"),
        (lambda p: with_value(p, 1, width=33), r"outputs are \(33,\) wide, the rmsnorm rule says \(32,\)"),
        (lambda p: with_value(p, 1, axis=Axis.SELECTED), "should be on the tokens axis"),
        (lambda p: with_instr(p, 1, attrs=NoAttrs()), "rmsnorm with NoAttrs"),
        (lambda p: with_instr(p, 1, inputs=(0, 0)), "2 inputs, wants 1"),
        (lambda p: with_instr(p, 1, weights=("nowhere",)), "weight nowhere is not in the program"),
        (lambda p: with_attrs(p, Op.RMSNORM, group=16), r"weight \(32,\) for groups of 16"),
        (lambda p: with_attrs(p, Op.ROPE, num_heads=3), "width 32, 3 heads x 8"),
        (point_rope_nowhere, "rope table 3 of 1"),
        (shorten_the_rope_table, "3 angles, 8"),
        (lambda p: with_attrs(p, Op.ATTEND, num_kv_heads=3), "4 heads, 3 kv heads"),
        (lambda p: with_attrs(p, Op.ATTEND, num_kv_heads=1), r"kv shape \(1, 8\)"),
        (lambda p: with_attrs(p, Op.ATTEND, window=5), "window 5"),
        (lambda p: with_attrs(p, Op.ATTEND, group=1), "KV group 1 of 1"),
        (lambda p: with_attrs(p, Op.ATTEND, layer=2), "layer 2 of"),
        (lambda p: with_attrs(p, Op.KV_WRITE, layer=1), r"reads layer \(0, 0\) before it is written"),
        (drop_the_kv_write, "before it is written"),
        (write_the_kv_twice, r"writes layer \(0, 0\) a second time"),
        (select_twice, "selects from the selected axis"),
        (rename_group, "KV group 0 calls itself 4"),
        (lose_a_bias, "bias nowhere.bias is not in the program"),
        (fewer_biases, "1 biases for 3 weights"),
        (long_bias, r"is \(31,\), wants 32"),
        (lambda p: replace(p, vocab_size=41), "logits have width 40, vocabulary 41"),
    ],
)
def test_a_broken_program_asserts_with_the_numbers(breaks: Callable[[Program], Program], message: str) -> None:
    broken = breaks(tiny_program())
    with pytest.raises(AssertionError, match=message):
        verify(broken)


def test_a_program_that_never_selects_is_refused() -> None:
    program = tiny_program()
    instrs = program.instrs[: index_of(program, Op.SELECT)]
    num_values = 1 + max(value for instr in instrs for value in instr.outputs)
    with pytest.raises(AssertionError, match="on the tokens axis"):
        verify(replace(program, instrs=instrs, values=program.values[:num_values]))


def test_shapes_of_the_file_are_named_beside_those_of_the_model() -> None:
    source = make_source(shapes={"blk.1.attn_k.weight": (32, 16)})
    with pytest.raises(ModelFileError, match=r"blk.1.attn_k.weight has shape \[32, 16\], the model needs \[16, 32\]"):
        build_program(source)


def test_rows_must_be_whole_blocks() -> None:
    program = replace(tiny_program(), weights={"w": WeightSpec("w", (4, 48), "Q8_0")})
    tensor = TensorRef("w", "Q8_0", (4, 48), np.zeros(0, np.uint8))
    with pytest.raises(ModelFileError, match="rows of 48 elements, not a multiple of Q8_0's block of 32"):
        verify_weights(program, {"w": tensor}, file=FILE)


def test_a_type_unknown_to_the_kernels_is_unsupported() -> None:
    program = replace(tiny_program(), weights={"w": WeightSpec("w", (4, 32), "Q3_K")})
    tensor = TensorRef("w", "Q3_K", (4, 32), np.zeros(0, np.uint8))
    with pytest.raises(UnsupportedModelError, match="Q3_K; supported are F32"):
        verify_weights(program, {"w": tensor}, file=FILE)


def test_a_weight_that_left_the_file_is_missed() -> None:
    with pytest.raises(ModelFileError, match=r"tensor token_embd.weight \[40, 32\] is missing"):
        verify_weights(tiny_program(), {}, file=FILE)


def test_attributes_are_what_the_families_meant() -> None:
    program = build_program(make_source("gemma3"))
    attends = [instr.attrs for instr in program.instrs if isinstance(instr.attrs, AttendAttrs)]
    writes = [instr.attrs for instr in program.instrs if isinstance(instr.attrs, KVWriteAttrs)]
    ropes = [instr.attrs for instr in program.instrs if isinstance(instr.attrs, RopeAttrs)]
    norms = [instr.attrs for instr in program.instrs if isinstance(instr.attrs, RmsNormAttrs)]
    assert [attrs.window for attrs in attends] == [4, None]
    assert [(attrs.group, attrs.layer) for attrs in writes] == [(0, 0), (1, 0)]
    assert [attrs.table for attrs in ropes] == [0, 0, 1, 1]
    assert sorted({attrs.group for attrs in norms}) == [8, 32]
