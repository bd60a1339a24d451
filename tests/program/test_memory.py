"""Places of values: those alive together never overlap, those that stay in their group have none."""

import pytest

from tests.builders_sources import make_source
from twostroke.model.families import build_program
from twostroke.program.fuse import Groups, fuse, unfused
from twostroke.program.memory import ALIAS_FLOATS, IN_LOGITS, LINE_FLOATS, LOCAL, MemoryPlan, plan_memory
from twostroke.program.op import Op
from twostroke.program.program import Program

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3")


def lives(program: Program, groups: Groups) -> dict[int, tuple[int, int]]:
    """Value -> first and last group that touch it, the slow way."""
    found: dict[int, tuple[int, int]] = {}
    for value in program.values:
        touching = [
            group
            for group, (first, last) in enumerate(groups)
            for instr in program.instrs[first:last]
            if value.id in instr.inputs or value.id in instr.outputs
        ]
        found[value.id] = (min(touching), max(touching))
    return found


def assert_nothing_overlaps(program: Program, groups: Groups, plan: MemoryPlan) -> None:
    alive = lives(program, groups)
    placed = [value.id for value in program.values if plan.offsets[value.id] >= 0]
    for index, a in enumerate(placed):
        assert plan.offsets[a] + plan.strides[a] <= plan.floats_per_token
        for b in placed[index + 1 :]:
            together = alive[a][0] <= alive[b][1] and alive[b][0] <= alive[a][1]
            apart = (
                plan.offsets[a] + plan.strides[a] <= plan.offsets[b]
                or plan.offsets[b] + plan.strides[b] <= plan.offsets[a]
            )
            assert apart or not together, f"values {a} and {b} share memory"


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize("is_fused", [False, True])
def test_values_alive_together_never_overlap(architecture: str, is_fused: bool) -> None:
    program = build_program(make_source(architecture))
    groups = fuse(program) if is_fused else unfused(program)
    assert_nothing_overlaps(program, groups, plan_memory(program, groups))


def test_values_that_stay_in_their_group_have_no_place() -> None:
    program = build_program(make_source("llama"))
    groups = fuse(program)
    plan = plan_memory(program, groups)
    for value, (first, last) in lives(program, groups).items():
        is_logits = value == program.instrs[-1].outputs[0]
        assert plan.offsets[value] == (IN_LOGITS if is_logits else LOCAL) if first == last else True


def test_logits_and_what_is_made_of_them_live_in_the_logits_buffer() -> None:
    program = build_program(make_source("gemma3"))
    plan = plan_memory(program, fuse(program))
    start = next(index for index, instr in enumerate(program.instrs) if instr.op is Op.LOGITS)
    for instr in program.instrs[start:]:
        assert all(plan.offsets[value] == IN_LOGITS for value in instr.outputs)


def test_memory_does_not_grow_with_layers() -> None:
    two = build_program(make_source("llama"))
    first = [instr for instr in two.instrs if "blk.1." not in instr.name]
    assert len(first) < len(two.instrs)
    plan = plan_memory(two, fuse(two))
    # the stream and its sum, or the stream and the widest in between: gate * up
    widest = max(plan.strides[value.id] for value in two.values if plan.offsets[value.id] >= 0)
    assert plan.floats_per_token <= 4 * widest


def test_rows_start_on_lines_and_do_not_crowd_into_few_cache_sets() -> None:
    program = build_program(make_source("llama"))
    plan = plan_memory(program, unfused(program))
    for value in program.values:
        stride = plan.strides[value.id]
        assert stride % LINE_FLOATS == 0
        assert stride >= value.width
        assert stride % ALIAS_FLOATS != 0
        assert plan.offsets[value.id] < 0 or plan.offsets[value.id] % LINE_FLOATS == 0


def test_fusing_saves_memory() -> None:
    program = build_program(make_source("llama"))
    fused, plain = (plan_memory(program, groups) for groups in (fuse(program), unfused(program)))
    assert fused.floats_per_token <= plain.floats_per_token
    assert sum(offset >= 0 for offset in fused.offsets) < sum(offset >= 0 for offset in plain.offsets)
