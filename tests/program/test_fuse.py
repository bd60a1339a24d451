"""Grouping of instrs: few phases, each pass removable, never across what must meet."""

import itertools

import numpy as np
import pytest

from tests.builders_sources import make_source
from tests.program.step_builders import make_step
from twostroke.model.families import build_program
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
    assert spelled(program, fuse(program)) == [*first, *layer, "select+rmsnorm+logits"]


def test_norms_of_heads_join_attention_and_norms_after_a_linear_the_next_one() -> None:
    program = build_program(make_source("gemma3"))
    groups = spelled(program, fuse(program))
    assert groups[1] == "rmsnorm+rmsnorm+rope+rope+kv_write+attend"
    assert "rmsnorm+add+rmsnorm+linear+glu" in groups
    assert len(groups) <= 6 * 2 + 1


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
