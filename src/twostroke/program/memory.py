"""Where values live while a program runs: offsets in one arena, shared by values that are never alive together.

Groups are the unit of time: all values a group touches are alive while it runs, as its threads are not
in step. The native reader calls it once; nothing here allocates.
"""

from dataclasses import dataclass

from twostroke.program.fuse import Groups
from twostroke.program.op import Op
from twostroke.program.program import Program

LOCAL = -1  # never leaves its group
IN_LOGITS = -2  # the output buffer of the step: logits, or states where there is no head
LINE_FLOATS = 16  # a cache line
ALIAS_FLOATS = 128  # rows a multiple of this apart crowd into few cache sets


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Per value: floats per token before it (or LOCAL, IN_LOGITS) and floats from one token to the next."""

    offsets: tuple[int, ...]
    strides: tuple[int, ...]
    floats_per_token: int


@dataclass(frozen=True, slots=True)
class _Life:
    """Groups from the one that writes a value to the last that reads it."""

    value: int
    first: int
    last: int
    size: int


def plan_memory(program: Program, groups: Groups) -> MemoryPlan:
    """First fit in order of size over the lives of all values that leave their group."""
    offsets = [LOCAL] * len(program.values)
    for value in _output_values(program):
        offsets[value] = IN_LOGITS
    strides = tuple(_stride(value.width) for value in program.values)
    lives = [
        life for life in _lives(program, groups, strides) if life.last > life.first and offsets[life.value] == LOCAL
    ]
    placed: list[_Life] = []
    for life in sorted(lives, key=lambda life: (-life.size, life.first)):
        offsets[life.value] = _first_fit(life, placed, offsets)
        placed.append(life)
    floats = max((offsets[life.value] + life.size for life in placed), default=0)
    return MemoryPlan(tuple(offsets), strides, floats)


def _stride(width: int) -> int:
    stride = -(-width // LINE_FLOATS) * LINE_FLOATS
    return stride + LINE_FLOATS if stride % ALIAS_FLOATS == 0 else stride


def _output_values(program: Program) -> set[int]:
    """The output of `logits` and what is computed from it, in place; without a head the last value."""
    found: set[int] = set() if program.has_head else set(program.instrs[-1].outputs)
    for instr in program.instrs:
        if instr.op is Op.LOGITS or not found.isdisjoint(instr.inputs):
            found.update(instr.outputs)
    return found


def _lives(program: Program, groups: Groups, strides: tuple[int, ...]) -> list[_Life]:
    written: dict[int, int] = {}
    read: dict[int, int] = {}
    for group, (first, last) in enumerate(groups):
        for instr in program.instrs[first:last]:
            written.update((value, group) for value in instr.outputs)
            read.update((value, group) for value in instr.inputs)
    return [_Life(value, group, read.get(value, group), strides[value]) for value, group in written.items()]


def _first_fit(life: _Life, placed: list[_Life], offsets: list[int]) -> int:
    """The lowest offset where `life` overlaps nothing that is alive with it."""
    neighbours = sorted(
        (offsets[other.value], other.size) for other in placed if other.first <= life.last and life.first <= other.last
    )
    offset = 0
    for start, size in neighbours:
        if start >= offset + life.size:
            break
        offset = max(offset, start + size)
    return offset
