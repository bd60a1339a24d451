"""What a program costs: a fold over the op list, FLOPs by unit and bytes by kind.

`fold_costs` prices each instr once, symbolically; `ProgramCost.step` and `op_costs` fill in the rows of a
step. Weights are read once per step, KV positions once per row, attention is summed per row. Used for
utilisation and the listing; knows no machine and no time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from twostroke.causal import visible_pairs
from twostroke.program.kv_precision import KV_ARITHMETIC, kv_head_bytes
from twostroke.program.op import OP_TABLE, AttendAttrs, KVWriteAttrs, LinearAttrs, Op, Operands
from twostroke.program.program import Axis, Instr, Program
from twostroke.program.quant import TENSOR_TYPES, Arithmetic


class CostRow(Protocol):
    """What a row of a step must tell to be priced."""

    @property
    def start_pos(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def num_logits(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Row:
    """A row made up for a listing."""

    start_pos: int
    num_tokens: int
    needs_logits: bool = True

    @property
    def num_logits(self) -> int:
        return int(self.needs_logits)


@dataclass(frozen=True, slots=True)
class Cost:
    """Operations by the unit that runs them, and stored bytes read and written."""

    flops_by_unit: Mapping[Arithmetic, int]
    weight_bytes: int
    kv_bytes: int  # read
    kv_written_bytes: int

    @property
    def total_flops(self) -> int:
        return sum(self.flops_by_unit.values())

    @property
    def bytes_read(self) -> int:
        """Weights and KV: what bandwidth utilisation counts."""
        return self.weight_bytes + self.kv_bytes

    def part(self, share: float) -> "Cost":
        """Of its arithmetic and its weights; whole numbers."""
        if share == 1.0:
            return self
        flops = {unit: round(count * share) for unit, count in self.flops_by_unit.items()}
        return replace(self, flops_by_unit=flops, weight_bytes=round(self.weight_bytes * share))

    @staticmethod
    def total(costs: Iterable["Cost"]) -> "Cost":
        """The sum, with every unit named."""
        costs = list(costs)
        return Cost(
            flops_by_unit=_add_flops(cost.flops_by_unit for cost in costs),
            weight_bytes=sum(cost.weight_bytes for cost in costs),
            kv_bytes=sum(cost.kv_bytes for cost in costs),
            kv_written_bytes=sum(cost.kv_written_bytes for cost in costs),
        )


@dataclass(frozen=True, slots=True)
class InstrCost:
    """One instr, priced per token of its axis, per query-key pair, per position seen and per step."""

    axis: Axis
    window: int | None
    is_head: bool
    token_flops: Mapping[Arithmetic, int]
    pair_flops: Mapping[Arithmetic, int]
    step_weight_bytes: int  # read once if the axis has any token
    token_weight_bytes: int  # a row of the weight per token
    position_kv_bytes: int  # read per position a row sees
    token_kv_bytes: int  # written per token


@dataclass(frozen=True, slots=True)
class StepSizes:
    """What the rows of one step add up to. `pairs` and `positions` are per window."""

    num_tokens: int
    num_selected: int
    pairs: Mapping[int | None, int]
    positions: Mapping[int | None, int]

    def on(self, axis: Axis) -> int:
        return self.num_tokens if axis is Axis.TOKENS else self.num_selected


@dataclass(frozen=True, slots=True)
class ProgramCost:
    """A program priced: `instrs` in program order, `totals` the same summed by kind."""

    instrs: tuple[InstrCost, ...]
    totals: tuple[InstrCost, ...]
    windows: frozenset[int | None]

    def step(self, rows: Iterable[CostRow], *, head_share: float = 1.0) -> Cost:
        """The whole step, or with a part of its head. Cheap: its time grows with rows and windows, not with instrs."""
        sizes = step_sizes(rows, windows=self.windows)
        costs = [(part.is_head, _price(part, sizes)) for part in self.totals]
        return Cost.total(cost.part(head_share) if is_head else cost for is_head, cost in costs)

    def per_instr(self, rows: Iterable[CostRow]) -> list[Cost]:
        """The same per instr, in program order."""
        sizes = step_sizes(rows, windows=self.windows)
        return [_price(part, sizes) for part in self.instrs]


def step_cost(program: Program, rows: Iterable[CostRow], *, kv_precision: str) -> Cost:
    """Price one step. Whoever prices many folds the program once: `fold_costs(...).step(rows)`."""
    return fold_costs(program, kv_precision=kv_precision).step(rows)


def fold_costs(program: Program, *, kv_precision: str) -> ProgramCost:
    """Price every instr of a program over a cache of this precision."""
    instrs = tuple(_fold_instr(program, instr, kv_precision) for instr in program.instrs)
    kinds = sorted({_kind(part) for part in instrs}, key=str)
    totals = [_add_instrs([part for part in instrs if _kind(part) == kind]) for kind in kinds]
    return ProgramCost(instrs, tuple(totals), frozenset(group.window for group in program.kv_groups))


def _kind(part: InstrCost) -> tuple[Axis, int | None, bool]:
    return part.axis, part.window, part.is_head


def step_sizes(rows: Iterable[CostRow], *, windows: Iterable[int | None]) -> StepSizes:
    """Add up the rows. A query at p sees min(p + 1, window) keys; a row reads each position it sees once."""
    rows = list(rows)
    return StepSizes(
        num_tokens=sum(row.num_tokens for row in rows),
        num_selected=sum(row.num_logits for row in rows),
        pairs={
            window: sum(visible_pairs(row.start_pos, row.num_tokens, window=window) for row in rows)
            for window in windows
        },
        positions={window: sum(_visible_positions(row, window) for row in rows) for window in windows},
    )


def _visible_positions(row: CostRow, window: int | None) -> int:
    end = row.start_pos + row.num_tokens
    return end if window is None else min(end, row.num_tokens + window - 1)


def _fold_instr(program: Program, instr: Instr, kv_precision: str) -> InstrCost:
    row = OP_TABLE[instr.op]
    axis = program.values[instr.inputs[0]].axis if instr.inputs else Axis.TOKENS
    token_flops: dict[Arithmetic, int] = {}
    pair_flops: dict[Arithmetic, int] = {}
    for unit, operands in _parts(program, instr, kv_precision):
        flops = row.flops(operands)
        token_flops[unit] = token_flops.get(unit, 0) + flops.per_token
        pair_flops[unit] = pair_flops.get(unit, 0) + flops.per_pair
    traffic = row.traffic(_operands(program, instr, instr.weights))
    head_dim = instr.attrs.head_dim if isinstance(instr.attrs, AttendAttrs | KVWriteAttrs) else 1
    head_bytes = kv_head_bytes(kv_precision, head_dim)
    return InstrCost(
        axis=axis,
        window=instr.attrs.window if isinstance(instr.attrs, AttendAttrs) else None,
        is_head=instr.op is Op.LOGITS,
        token_flops=token_flops,
        pair_flops=pair_flops,
        step_weight_bytes=_weight_bytes(program, instr) if traffic.whole_weights else 0,
        token_weight_bytes=_row_bytes(program, instr) if traffic.weight_row else 0,
        position_kv_bytes=traffic.kv_read // head_dim * head_bytes,
        token_kv_bytes=traffic.kv_written // head_dim * head_bytes,
    )


def _parts(program: Program, instr: Instr, kv_precision: str) -> list[tuple[Arithmetic, Operands]]:
    """The instr cut by the unit that runs it: weights of one linear may differ in type."""
    if instr.op is Op.ATTEND:
        return [(KV_ARITHMETIC[kv_precision], _operands(program, instr, instr.weights))]
    if instr.op not in (Op.LINEAR, Op.LOGITS):
        return [(Arithmetic.FP32, _operands(program, instr, instr.weights))]
    parts = []
    for index, weight in enumerate(instr.weights):
        operands = _operands(program, instr, (weight,))
        if isinstance(instr.attrs, LinearAttrs):
            operands = Operands(LinearAttrs((instr.attrs.biases[index],)), operands.widths, operands.weights)
        parts.append((TENSOR_TYPES[program.weights[weight].tensor_type].arithmetic, operands))
    return parts


def _operands(program: Program, instr: Instr, weights: tuple[str, ...]) -> Operands:
    widths = tuple(program.values[value].width for value in instr.inputs)
    return Operands(instr.attrs, widths, tuple(program.weights[weight].shape for weight in weights))


def _weight_bytes(program: Program, instr: Instr) -> int:
    biases = [bias for bias in instr.attrs.biases if bias] if isinstance(instr.attrs, LinearAttrs) else []
    specs = [program.weights[name] for name in (*instr.weights, *biases)]
    return sum(TENSOR_TYPES[spec.tensor_type].num_bytes(spec.shape) for spec in specs)


def _row_bytes(program: Program, instr: Instr) -> int:
    spec = program.weights[instr.weights[0]]
    return TENSOR_TYPES[spec.tensor_type].num_bytes(spec.shape[1:])


def _price(part: InstrCost, sizes: StepSizes) -> Cost:
    num_tokens = sizes.on(part.axis)
    pairs = sizes.pairs.get(part.window, 0)
    units = {*part.token_flops, *part.pair_flops}
    return Cost(
        flops_by_unit={
            unit: num_tokens * part.token_flops.get(unit, 0) + pairs * part.pair_flops.get(unit, 0) for unit in units
        },
        weight_bytes=(part.step_weight_bytes if num_tokens else 0) + num_tokens * part.token_weight_bytes,
        kv_bytes=sizes.positions.get(part.window, 0) * part.position_kv_bytes,
        kv_written_bytes=num_tokens * part.token_kv_bytes,
    )


def _add_flops(parts: Iterable[Mapping[Arithmetic, int]]) -> dict[Arithmetic, int]:
    total = dict.fromkeys(Arithmetic, 0)
    for part in parts:
        for unit, flops in part.items():
            total[unit] += flops
    return total


def _add_instrs(parts: list[InstrCost]) -> InstrCost:
    """Those of one kind."""
    axis, window, is_head = _kind(parts[0])
    return InstrCost(
        axis=axis,
        window=window,
        is_head=is_head,
        token_flops=_add_flops(part.token_flops for part in parts),
        pair_flops=_add_flops(part.pair_flops for part in parts),
        step_weight_bytes=sum(part.step_weight_bytes for part in parts),
        token_weight_bytes=sum(part.token_weight_bytes for part in parts),
        position_kv_bytes=sum(part.position_kv_bytes for part in parts),
        token_kv_bytes=sum(part.token_kv_bytes for part in parts),
    )
