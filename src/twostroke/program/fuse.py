"""Which instrs run as one phase: passes that join neighbours, so that threads meet a few times per layer only.

A grouping lies beside the program, which stays as it is; every pass takes one and returns one, is
verified after it ran and can be left out. Fused or not, the bits are the same: an op's arithmetic never
depends on its group. The native reader runs what comes out; nobody else asks.
"""

from collections.abc import Callable, Sequence

from twostroke.program.op import KVWriteAttrs, Op, RmsNormAttrs
from twostroke.program.program import Instr, Program

Groups = tuple[tuple[int, int], ...]  # ranges [first, last) of instrs, one after the other
Pass = Callable[[Program, Groups], Groups]

_PRODUCTS = frozenset((Op.LINEAR, Op.LOGITS))
_ELEMENTWISE = frozenset((Op.ADD, Op.GLU, Op.SCALE, Op.SOFTCAP))
_NOT_BEFORE_PRODUCT = frozenset((Op.LINEAR, Op.LOGITS, Op.ATTEND, Op.KV_WRITE))


def unfused(program: Program) -> Groups:
    """Every instr is a phase of its own."""
    return tuple((index, index + 1) for index in range(len(program.instrs)))


def fuse_attention(program: Program, groups: Groups) -> Groups:
    """attend takes in its kv_write and the norms, ropes and scales of heads that lead to the two."""
    joined = list(groups)
    for index, instr in enumerate(program.instrs):
        if instr.op is not Op.ATTEND:
            continue
        first = index
        while first > 0 and _leads_to_attend(program, first - 1, first, index):
            first -= 1
        joined = _join(joined, first, index + 1)
    return tuple(joined)


def fuse_epilogue(program: Program, groups: Groups) -> Groups:
    """A linear takes in the element-wise ops on its outputs that follow: residual, activation, cap."""
    joined = list(groups)
    for index, instr in enumerate(program.instrs):
        if instr.op not in _PRODUCTS or not _has_equal_outputs(program, instr):
            continue
        last = index + 1
        results = set(instr.outputs)
        while last < len(program.instrs) and _continues(program.instrs[last], results):
            results.update(program.instrs[last].outputs)
            last += 1
        joined = _join(joined, index, last)
    return tuple(joined)


def fuse_prologue(program: Program, groups: Groups) -> Groups:
    """A linear takes in the row ops before it: every thread prepares its own input, or its share of the tokens."""
    joined = list(groups)
    for first, last in groups:
        product = next((index for index in range(first, last) if program.instrs[index].op in _PRODUCTS), None)
        if product != first:
            continue
        start = first
        while start > 0 and _may_precede(program, joined, start, last):
            start -= 1
        joined = _join(joined, start, last)
    return tuple(joined)


PASSES: tuple[Pass, ...] = (fuse_attention, fuse_epilogue, fuse_prologue)


def fuse(program: Program, passes: Sequence[Pass] = PASSES) -> Groups:
    """Runs the passes one after the other, from one phase per instr."""
    groups = unfused(program)
    for run_pass in passes:
        groups = run_pass(program, groups)
        verify_groups(program, groups)
    return groups


def verify_groups(program: Program, groups: Groups) -> None:
    """Asserts that the groups cover the program in order, with one product or attend in each at most."""
    expected = 0
    for first, last in groups:
        assert first == expected < last, f"group [{first}, {last}) must start at {expected}"
        expected = last
        heavy = [program.instrs[index].name for index in range(first, last) if program.instrs[index].op in _HEAVY]
        assert len(heavy) <= 1, f"group [{first}, {last}) holds {heavy}"
    assert expected == len(program.instrs), f"groups end at {expected} of {len(program.instrs)} instrs"


_HEAVY = frozenset((Op.LINEAR, Op.LOGITS, Op.ATTEND))


def _join(groups: Sequence[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    """Groups inside [first, last) become one."""
    before = [group for group in groups if group[1] <= first]
    after = [group for group in groups if group[0] >= last]
    return [*before, (first, last), *after]


def _readers(program: Program, value: int) -> list[int]:
    return [index for index, instr in enumerate(program.instrs) if value in instr.inputs]


def _leads_to_attend(program: Program, candidate: int, first: int, attend: int) -> bool:
    """Whether instr `candidate` belongs to the chains of the group [first, attend]."""
    instr = program.instrs[candidate]
    attrs = program.instrs[attend].attrs
    if instr.op is Op.KV_WRITE:
        assert isinstance(instr.attrs, KVWriteAttrs)
        is_alone = all(program.instrs[index].op is not Op.KV_WRITE for index in range(first, attend))
        return is_alone and (instr.attrs.group, instr.attrs.layer) == (
            getattr(attrs, "group", None),
            getattr(attrs, "layer", None),
        )
    works_on_heads = instr.op in (Op.ROPE, Op.SCALE) or (
        isinstance(instr.attrs, RmsNormAttrs) and instr.attrs.group == getattr(attrs, "head_dim", None)
    )
    if not works_on_heads:
        return False
    readers = _readers(program, instr.outputs[0])
    return len(readers) == 1 and first <= readers[0] <= attend


def _has_equal_outputs(program: Program, instr: Instr) -> bool:
    return len({program.values[value].width for value in instr.outputs}) == 1


def _continues(instr: Instr, results: set[int]) -> bool:
    return instr.op in _ELEMENTWISE and not results.isdisjoint(instr.inputs)


def _may_precede(program: Program, groups: Sequence[tuple[int, int]], start: int, last: int) -> bool:
    """Whether instr start - 1, a phase of its own, can be computed with the input of the product in [start, last)."""
    instr = program.instrs[start - 1]
    if instr.op in _NOT_BEFORE_PRODUCT or (start - 1, start) not in groups:
        return False
    if program.instrs[start].op is Op.SELECT:  # what is before it is on the other axis
        return False
    product = next(index for index in range(start, last) if program.instrs[index].op in _PRODUCTS)
    is_read_after = any(
        not set(instr.outputs).isdisjoint(program.instrs[index].inputs) for index in range(product + 1, last)
    )
    return not is_read_after
