"""A program as text and as a dict: ops, shapes, FLOPs and bytes per phase. `twostroke show` prints it.

Two rows stand for the phases: a prefill of n tokens from nothing, a decode of one token at depth d.
Layers whose instrs are the same but for the layer number are shown once. Colours are the caller's.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from twostroke.program.cost import Cost, Row, fold_costs
from twostroke.program.kv_precision import kv_head_bytes
from twostroke.program.op import AttendAttrs, LinearAttrs, Op, RmsNormAttrs, RopeAttrs
from twostroke.program.program import Axis, Instr, Program
from twostroke.program.quant import TENSOR_TYPES

_LAYER = re.compile(r"blk\.\d+\.")
_HEADINGS = ("op", "name", "times", "shape", "weights", "prefill FLOPs", "bytes", "decode FLOPs", "bytes")
_LEFT = 5  # headings that are text, aligned left


@dataclass(frozen=True, slots=True)
class Line:
    """One instr, or equal ones of `times` layers; the costs are of all of them together."""

    op: Op
    name: str
    times: int
    shape: str
    weights: str
    prefill: Cost
    decode: Cost


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything `show` knows about a program."""

    program: Program
    kv_precision: str
    prefill_tokens: int
    decode_depth: int
    lines: tuple[Line, ...]
    prefill: Cost
    decode: Cost


def list_program(program: Program, *, kv_precision: str, prefill_tokens: int, decode_depth: int) -> Listing:
    """Price both phases and fold equal layers."""
    folded = fold_costs(program, kv_precision=kv_precision)
    phases = ([Row(0, prefill_tokens)], [Row(decode_depth, 1)])
    prefill_costs, decode_costs = (folded.per_instr(rows) for rows in phases)
    described: dict[tuple[str, ...], list[int]] = {}
    for index, instr in enumerate(program.instrs):
        key = (instr.op, _LAYER.sub("blk.*.", instr.name), _shape_text(program, instr), _weights_text(program, instr))
        described.setdefault(key, []).append(index)
    lines = [
        Line(
            op=Op(op),
            name=name if len(indices) > 1 else program.instrs[indices[0]].name,
            times=len(indices),
            shape=shape,
            weights=weights,
            prefill=Cost.total([prefill_costs[index] for index in indices]),
            decode=Cost.total([decode_costs[index] for index in indices]),
        )
        for (op, name, shape, weights), indices in described.items()
    ]
    prefill, decode = (folded.step(rows) for rows in phases)
    return Listing(program, kv_precision, prefill_tokens, decode_depth, tuple(lines), prefill, decode)


def listing_text(listing: Listing) -> list[str]:
    """Plain lines: a head, a table, totals, the KV groups."""
    table = [_HEADINGS, *(_table_row(line) for line in listing.lines)]
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEADINGS))]
    return [
        *_head_text(listing.program),
        "",
        *(_aligned(row, widths) for row in table),
        "",
        _total_text(f"prefill of {listing.prefill_tokens} tokens", listing.prefill),
        _total_text(f"decode of 1 token at depth {listing.decode_depth}", listing.decode),
        *_kv_text(listing),
    ]


def listing_dict(listing: Listing) -> dict[str, Any]:
    """The same facts for JSON."""
    program = listing.program
    return {
        "architecture": program.architecture,
        "width": program.width,
        "vocab_size": program.vocab_size,
        "context_length": program.context_length,
        "num_parameters": num_parameters(program),
        "weight_bytes": weight_bytes(program),
        "kv_precision": listing.kv_precision,
        "kv_groups": [
            {
                "layers": list(group.layers),
                "num_kv_heads": group.num_kv_heads,
                "head_dim": group.head_dim,
                "window": group.window,
            }
            for group in program.kv_groups
        ],
        "ops": [
            {
                "op": line.op.value,
                "name": line.name,
                "times": line.times,
                "shape": line.shape,
                "weights": line.weights,
                "prefill": _cost_dict(line.prefill),
                "decode": _cost_dict(line.decode),
            }
            for line in listing.lines
        ],
        "phases": {
            "prefill": {"tokens": listing.prefill_tokens, **_cost_dict(listing.prefill)},
            "decode": {"depth": listing.decode_depth, **_cost_dict(listing.decode)},
        },
    }


def num_parameters(program: Program) -> int:
    """Elements of all weights; a tied matrix counts once."""
    total = 0
    for spec in program.weights.values():
        size = 1
        for length in spec.shape:
            size *= length
        total += size
    return total


def weight_bytes(program: Program) -> int:
    """Stored bytes of all weights; a tied matrix counts once."""
    return sum(TENSOR_TYPES[spec.tensor_type].num_bytes(spec.shape) for spec in program.weights.values())


def count_text(value: int) -> str:
    """1234567 -> "1.23M": three digits and a power of 1000."""
    for power, suffix in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 999.5 * 10 ** (power - 3):  # below it rounds to three digits of the smaller unit
            scaled = value / 10**power
            return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f}{suffix}"
    return str(value)


def size_text(num_bytes: int) -> str:
    """1234567 -> "1.23 MB"."""
    text = count_text(num_bytes)
    return f"{text} B" if text[-1].isdigit() else f"{text[:-1]} {text[-1]}B"


def _shape_text(program: Program, instr: Instr) -> str:
    """Widths in -> widths out, with the attributes that change the sizes."""
    inputs = " ".join(str(program.values[value].width) for value in instr.inputs) or "ids"
    outputs = " ".join(str(program.values[value].width) for value in instr.outputs) or "cache"
    return " ".join(filter(None, [f"{inputs} -> {outputs}", _attrs_text(instr), _axis_text(program, instr)]))


def _attrs_text(instr: Instr) -> str:
    attrs = instr.attrs
    if isinstance(attrs, AttendAttrs):
        window = "" if attrs.window is None else f", window {attrs.window}"
        return f"({attrs.num_heads}/{attrs.num_kv_heads} heads of {attrs.head_dim}{window})"
    if isinstance(attrs, RopeAttrs):
        return f"({attrs.num_heads} heads, {attrs.rotary_dim} of {attrs.head_dim}, {attrs.style})"
    if isinstance(attrs, RmsNormAttrs):
        return f"(groups of {attrs.group})"
    if isinstance(attrs, LinearAttrs) and any(attrs.biases):
        return "(bias)"
    return ""


def _axis_text(program: Program, instr: Instr) -> str:
    is_selected = bool(instr.outputs) and program.values[instr.outputs[0]].axis is Axis.SELECTED
    return "selected" if is_selected else ""


def _weights_text(program: Program, instr: Instr) -> str:
    return " ".join(program.weights[weight].tensor_type for weight in instr.weights)


def _table_row(line: Line) -> tuple[str, ...]:
    costs = (line.prefill, line.decode)
    numbers = [
        count_text(value) for cost in costs for value in (cost.total_flops, cost.bytes_read + cost.kv_written_bytes)
    ]
    return (line.op.value, line.name, str(line.times), line.shape, line.weights, *numbers)


def _aligned(row: Iterable[str], widths: list[int]) -> str:
    cells = [
        text.ljust(width) if column < _LEFT else text.rjust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _head_text(program: Program) -> list[str]:
    num_layers = sum(len(group.layers) for group in program.kv_groups)
    sizes = f"{_counted(num_layers, 'layer')}, width {program.width}, vocabulary {program.vocab_size}"
    return [
        f"{program.architecture}: {sizes}, context {program.context_length}",
        f"{count_text(num_parameters(program))} parameters in {size_text(weight_bytes(program))}",
    ]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _total_text(phase: str, cost: Cost) -> str:
    units = ", ".join(f"{count_text(flops)} {unit}" for unit, flops in cost.flops_by_unit.items() if flops)
    return (
        f"{phase}: {count_text(cost.total_flops)} FLOPs ({units}), {size_text(cost.weight_bytes)} of weights, "
        f"{size_text(cost.kv_bytes)} of KV read, {size_text(cost.kv_written_bytes)} written"
    )


def _kv_text(listing: Listing) -> list[str]:
    lines = []
    for group in listing.program.kv_groups:
        per_token = 2 * len(group.layers) * group.num_kv_heads * kv_head_bytes(listing.kv_precision, group.head_dim)
        sees = "all positions" if group.window is None else f"a window of {group.window}"
        lines.append(
            f"KV group {group.id}: {_counted(len(group.layers), 'layer')}, "
            f"{_counted(group.num_kv_heads, 'head')} of {group.head_dim}, {sees}, "
            f"{size_text(per_token)} per token as {listing.kv_precision}"
        )
    return lines


def _cost_dict(cost: Cost) -> dict[str, Any]:
    return {
        "flops": cost.total_flops,
        "flops_by_unit": {unit.value: flops for unit, flops in cost.flops_by_unit.items()},
        "weight_bytes": cost.weight_bytes,
        "kv_bytes": cost.kv_bytes,
        "kv_written_bytes": cost.kv_written_bytes,
    }
