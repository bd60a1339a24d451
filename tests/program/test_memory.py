"""Places of values: those alive together never overlap, those that stay in their group have none."""

import pytest

from tests.builders_sources import make_source
from twostroke.model.families import build_program
from twostroke.program.fuse import Groups, fuse, unfused
from twostroke.program.memory import ALIAS_FLOATS, IN_LOGITS, LINE_FLOATS, LOCAL, MemoryPlan, plan_memory
from twostroke.program.op import NoAttrs, Op
from twostroke.program.program import Axis, Instr, Program, Value

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


def make_chain(*widths: int, reads: tuple[tuple[int, ...], ...], ops: tuple[Op, ...] = ()) -> Program:
    """Instr i writes value i of width widths[i] and reads the values reads[i]; only what a plan looks at."""
    ops = ops or (Op.ADD,) * len(widths)
    return Program(
        architecture="toy",
        values=tuple(Value(index, f"v{index}", width, Axis.TOKENS) for index, width in enumerate(widths)),
        instrs=tuple(
            Instr(op, inputs, (index,), (), NoAttrs(), f"i{index}")
            for index, (op, inputs) in enumerate(zip(ops, reads, strict=True))
        ),
        weights={},
        rope_tables=(),
        kv_groups=(),
        width=widths[0],
        vocab_size=widths[-1],
        context_length=1,
    )


@pytest.mark.parametrize(
    ("width", "stride"),
    [
        (1, 16),
        (16, 16),
        (17, 32),
        (96, 96),
        (112, 112),
        (113, 144),  # 128 is where rows crowd
        (128, 144),
        (129, 144),
        (144, 144),
        (241, 272),
        (256, 272),
        (576, 576),
        (1536, 1552),
    ],
)
def test_a_row_is_whole_lines_and_one_more_where_rows_would_crowd(width: int, stride: int) -> None:
    program = make_chain(width, 16, reads=((), (0,)))
    plan = plan_memory(program, unfused(program))
    assert plan.strides == (stride, 16)
    assert plan.floats_per_token == stride


def test_a_chain_needs_the_room_of_two_neighbours() -> None:
    program = make_chain(16, 16, 16, 16, 16, reads=((), (0,), (1,), (2,), (3,)))
    plan = plan_memory(program, unfused(program))
    assert plan.offsets == (0, 16, 0, 16, IN_LOGITS)  # the last of a program without a head is its output
    assert plan.floats_per_token == 32


def test_the_widest_value_is_placed_first() -> None:
    program = make_chain(16, 64, 16, reads=((), (0,), (0, 1)))
    plan = plan_memory(program, unfused(program))
    assert plan.offsets == (64, 0, IN_LOGITS)
    assert plan.floats_per_token == 80


def test_a_value_read_late_keeps_its_place_until_then() -> None:
    program = make_chain(16, 16, 16, 16, reads=((), (0,), (1,), (0, 2)))
    plan = plan_memory(program, unfused(program))
    assert plan.offsets == (0, 16, 32, IN_LOGITS)
    assert plan.floats_per_token == 48


def test_a_gap_of_the_right_size_is_filled_and_one_too_small_is_not() -> None:
    # v0 ends when v2 begins; v1 lives beside both
    reads: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (1, 2))
    fits = make_chain(32, 32, 32, 16, reads=reads)
    plan = plan_memory(fits, unfused(fits))
    assert (plan.offsets, plan.floats_per_token) == ((0, 32, 0, IN_LOGITS), 64)
    too_small = make_chain(16, 32, 32, 16, reads=reads)
    plan = plan_memory(too_small, unfused(too_small))
    assert (plan.offsets, plan.floats_per_token) == ((32, 0, 32, IN_LOGITS), 64)


def test_one_group_for_everything_needs_no_memory() -> None:
    program = make_chain(16, 16, 16, reads=((), (0,), (1,)))
    plan = plan_memory(program, ((0, 3),))
    assert plan.offsets == (LOCAL, LOCAL, IN_LOGITS)
    assert plan.floats_per_token == 0


def test_a_value_is_alive_through_the_whole_of_its_groups() -> None:
    program = make_chain(16, 16, 16, 16, reads=((), (0,), (1,), (2,)))
    plan = plan_memory(program, ((0, 2), (2, 4)))
    assert plan.offsets == (LOCAL, 0, LOCAL, IN_LOGITS)
    assert plan.floats_per_token == 16


def test_logits_take_no_part_in_the_arena_however_late_they_are_read() -> None:
    ops = (Op.EMBED, Op.LOGITS, Op.SCALE, Op.SOFTCAP)
    program = make_chain(16, 40, 40, 40, reads=((), (0,), (1,), (2,)), ops=ops)
    plan = plan_memory(program, unfused(program))
    assert plan.offsets == (0, IN_LOGITS, IN_LOGITS, IN_LOGITS)
    assert plan.floats_per_token == 16
