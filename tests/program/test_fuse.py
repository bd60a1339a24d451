"""Grouping of instrs: few phases, each pass removable, never across what must meet."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from tests.builders_sources import FILE, make_source
from tests.program.step_builders import make_step
from twostroke.model.families import build_program
from twostroke.model.source import TensorRef, TensorTable
from twostroke.program.build import ProgramBuilder
from twostroke.program.fuse import (
    PASSES,
    Groups,
    fuse,
    fuse_attention,
    fuse_epilogue,
    fuse_prologue,
    unfused,
    verify_groups,
)
from twostroke.program.native import NativeReader
from twostroke.program.op import Op
from twostroke.program.program import Program
from twostroke.program.quant import FloatArray
from twostroke.program.reader import KVSpec

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3")


def spelled(program: Program, groups: Groups) -> list[str]:
    return ["+".join(program.instrs[index].op for index in range(*group)) for group in groups]


def test_llama_meets_five_times_per_layer() -> None:
    program = build_program(make_source("llama"))
    layer = [
        "rmsnorm+linear",
        "rope+rope+kv_write+attend",
        "linear+add",
        "rmsnorm+linear+glu",
        "linear+add",
    ]
    first = ["embed+rmsnorm+linear", *layer[1:]]
    last = [*layer[:2], "select", "select+linear+add", *layer[3:]]
    assert spelled(program, fuse(program)) == [*first, *last, "rmsnorm+logits"]


def test_norms_of_heads_join_attention_and_norms_after_a_linear_the_next_one() -> None:
    program = build_program(make_source("gemma3"))
    groups = spelled(program, fuse(program))
    assert groups[1] == "rmsnorm+rmsnorm+rope+rope+kv_write+attend"
    assert "rmsnorm+add+rmsnorm+linear+glu" in groups
    assert len(groups) <= 6 * 2 + 2


def test_without_passes_every_instr_is_a_phase() -> None:
    program = build_program(make_source("llama"))
    assert fuse(program, ()) == unfused(program)
    assert len(unfused(program)) == len(program.instrs)


def test_attention_takes_only_what_leads_to_it() -> None:
    program = build_program(make_source("qwen3"))
    for group in spelled(program, fuse_attention(program, unfused(program))):
        assert ("attend" in group) == ("+" in group)


def test_epilogues_are_element_wise() -> None:
    program = build_program(make_source("gemma3"))
    for first, last in fuse_epilogue(program, unfused(program)):
        after = [program.instrs[index].op for index in range(first + 1, last)]
        assert set(after) <= {Op.ADD, Op.GLU, Op.SCALE, Op.SOFTCAP}


def test_a_prologue_stops_at_select_and_never_holds_a_kv_write() -> None:
    program = build_program(make_source("llama"))
    groups = fuse_prologue(program, unfused(program))
    before_select = next(index for index, instr in enumerate(program.instrs) if instr.op is Op.SELECT)
    assert any(first == before_select for first, _ in groups)
    for first, last in groups:
        ops = [program.instrs[index].op for index in range(first, last)]
        assert len(ops) == 1 or Op.KV_WRITE not in ops


@pytest.mark.parametrize("groups", [((0, 1),), ((1, 2),), ((0, 0),)])
def test_groups_with_holes_are_a_broken_invariant(groups: Groups) -> None:
    with pytest.raises(AssertionError):
        verify_groups(build_program(make_source("llama")), groups)


def test_two_linears_in_a_group_are_a_broken_invariant() -> None:
    program = build_program(make_source("llama"))
    with pytest.raises(AssertionError, match="holds"):
        verify_groups(program, ((0, len(program.instrs)),))


SHAPES = {"e.weight": (6, 4), "n.weight": (4,), "h.weight": (2,), "a.weight": (4, 4), "b.weight": (2, 4)}


def spell_made(middle: Callable[[ProgramBuilder, int], int]) -> list[str]:
    """The groups of a program that is `middle` between the embedding (width 4) and select and logits."""
    tensors = {
        name: TensorRef(name, "F32", shape, np.zeros(4 * int(np.prod(shape)), np.uint8))
        for name, shape in SHAPES.items()
    }
    b = ProgramBuilder(TensorTable(FILE, tensors), file=FILE, architecture="toy")
    x = middle(b, b.embed("e.weight", vocab_size=6, width=4))
    b.logits(b.select(x), "e.weight", vocab_size=6)
    program = b.finish(vocab_size=6, context_length=10)
    return spelled(program, fuse(program))


def test_what_is_read_after_the_product_is_not_computed_inside_its_group() -> None:
    def middle(b: ProgramBuilder, x: int) -> int:
        scaled = b.scale(x, factor=2.0, name="scale")
        return b.add(b.linear(scaled, {"a": 4})[0], scaled, name="add")

    assert spell_made(middle) == ["embed", "scale", "linear+add", "select+logits"]


def test_what_only_the_product_reads_is_computed_inside_its_group() -> None:
    def middle(b: ProgramBuilder, x: int) -> int:
        scaled = b.scale(x, factor=2.0, name="scale")
        return b.add(b.linear(scaled, {"a": 4})[0], x, name="add")

    assert spell_made(middle) == ["embed", "scale+linear+add", "select+logits"]


def test_outputs_of_unequal_width_have_no_epilogue() -> None:
    def middle(b: ProgramBuilder, x: int) -> int:
        wide, _ = b.linear(x, {"a": 4, "b": 2})
        return b.add(wide, x, name="add")

    assert spell_made(middle) == ["embed+linear", "add", "select+logits"]


def test_an_epilogue_follows_its_results_through_several_ops() -> None:
    def middle(b: ProgramBuilder, x: int) -> int:
        (y,) = b.linear(x, {"a": 4})
        return b.add(b.softcap(b.scale(y, factor=2.0, name="scale"), cap=3.0, name="cap"), x, name="add")

    assert "linear+scale+softcap+add" in spell_made(middle)


def test_an_element_wise_op_on_something_else_ends_the_epilogue() -> None:
    def middle(b: ProgramBuilder, x: int) -> int:
        (y,) = b.linear(x, {"a": 4})
        doubled = b.scale(x, factor=2.0, name="scale")
        return b.add(y, doubled, name="add")

    assert not any("linear" in group and "+scale" in group for group in spell_made(middle))


def attended(b: ProgramBuilder, x: int, *, norm: str, group: int | None, reads_q_again: bool = False) -> int:
    """One head layer: q is the normalised x, k and v come from a linear."""
    cache = b.kv_layer(0, num_kv_heads=1, head_dim=2)
    k, v = b.linear(x, {"b": 2})[0], b.linear(x, {"b": 2})[0]
    q = b.rmsnorm(x, norm, eps=1e-5, group=group)
    b.kv_write(k, v, to=cache, name="kv_write")
    y = b.attend(q, to=cache, scale=0.5, name="attend")
    return b.add(y, q, name="add") if reads_q_again else y


def test_a_norm_of_heads_joins_attention_and_a_norm_of_the_whole_width_does_not() -> None:
    heads = spell_made(lambda b, x: attended(b, x, norm="h.weight", group=2))
    assert "rmsnorm+kv_write+attend" in heads
    whole = spell_made(lambda b, x: attended(b, x, norm="n.weight", group=None))
    assert "kv_write+attend" in whole


def test_a_norm_that_others_read_too_does_not_join_attention() -> None:
    groups = spell_made(lambda b, x: attended(b, x, norm="h.weight", group=2, reads_q_again=True))
    assert "kv_write+attend" in groups
    assert "rmsnorm" in groups


def test_attention_takes_the_write_of_its_own_layer_alone() -> None:
    def middle(b: ProgramBuilder, x: int) -> int:
        own, other = (b.kv_layer(layer, num_kv_heads=1, head_dim=2) for layer in range(2))
        (k,) = b.linear(x, {"b": 2})
        b.kv_write(k, k, to=own, name="own")
        b.kv_write(k, k, to=other, name="other")
        return b.attend(x, to=own, scale=0.5, name="attend")

    groups = spell_made(middle)
    assert groups.count("kv_write") == 2
    assert "attend" in groups


def test_a_group_holds_one_product_and_no_second() -> None:
    program = build_program(make_source("llama"))
    products = [index for index, instr in enumerate(program.instrs) if instr.op is Op.LINEAR]
    first, second = products[2:4]  # gate and up, then down
    last = len(program.instrs)
    start: Groups = tuple((index, index + 1) for index in range(first))
    rest: Groups = tuple((index, index + 1) for index in range(second, last))
    verify_groups(program, (*start, (first, second), *rest))
    with pytest.raises(AssertionError, match="holds"):
        verify_groups(program, (*start, (first, second + 1), *rest[1:]))


@pytest.mark.parametrize("extra", [0, 1])
def test_groups_end_where_the_program_ends(extra: int) -> None:
    program = build_program(make_source("llama"))
    groups = unfused(program)
    if extra:
        with pytest.raises(AssertionError, match="must start at"):
            verify_groups(program, (*groups, (0, 1)))
    else:
        with pytest.raises(AssertionError, match=f"end at {len(groups) - 1} of {len(groups)}"):
            verify_groups(program, groups[:-1])


def run_grouped(architecture: str, groups: Groups, *, threads: int, tensor_type: str = "F32") -> FloatArray:
    source = make_source(architecture, tensor_type=tensor_type)
    program = build_program(source)
    kv = KVSpec("bf16", 16, (8,) * len(program.kv_groups))
    reader = NativeReader(program, source.tensors, kv=kv, threads=threads, max_tokens=64, max_rows=4, groups=groups)
    token_ids = [(7 * index) % 40 for index in range(40)]
    parts = [
        reader.run(make_step(program, [(token_ids[:30], 0, [3, 1, 0])])).copy(),
        reader.run(make_step(program, [(token_ids[30:33], 30, [3, 1, 0])])).copy(),
        reader.run(make_step(program, [(token_ids[33:], 33, [3, 1, 0])])).copy(),
    ]
    return np.concatenate(parts)


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize("tensor_type", ["F32", "Q4_1", "Q5_0"])
def test_fused_bits_are_unfused_bits_for_every_choice_of_passes(architecture: str, tensor_type: str) -> None:
    program = build_program(make_source(architecture, tensor_type=tensor_type))
    wanted = run_grouped(architecture, unfused(program), threads=1, tensor_type=tensor_type)
    for count in (1, 2, 3):
        for passes in itertools.combinations(PASSES, count):
            got = run_grouped(architecture, fuse(program, passes), threads=count, tensor_type=tensor_type)
            assert np.array_equal(got.view(np.uint32), wanted.view(np.uint32)), [run.__name__ for run in passes]
