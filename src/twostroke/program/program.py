"""The program: a model as a flat list of instrs over named values. Built once, never changed, never described twice.

Sizes are symbolic: a value has a width in float32 elements and lives on one of two axes, the tokens
of a step or the tokens selected for logits. So one program serves both phases.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from twostroke._native import Candidates
from twostroke.program.op import Attrs, Op


class Axis(StrEnum):
    TOKENS = "tokens"
    SELECTED = "selected"


@dataclass(frozen=True, slots=True)
class Value:
    """A float32 array [axis, width]; `id` is its index in Program.values. Written by exactly one instr."""

    id: int
    name: str
    width: int
    axis: Axis


@dataclass(frozen=True, slots=True)
class WeightSpec:
    """What the program expects of a weight: rows x cols for a matrix (out x in), rows alone for a vector."""

    name: str
    shape: tuple[int, ...]
    tensor_type: str  # "F32", "Q4_1", ... as stored


@dataclass(frozen=True, slots=True)
class Instr:
    """One use of an op. Value ids in, value ids out, weights by name, attributes of the op's own class."""

    op: Op
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    weights: tuple[str, ...]
    attrs: Attrs
    name: str  # "blk.3.attn_q": for listing, profile and errors


@dataclass(frozen=True, slots=True)
class RopeTable:
    """Angles of one rope flavour: angle(pos, i) = pos * inv_freq[i]; cos and sin are scaled by `magnitude`.

    The product and its cos and sin are taken in float64 and rounded to float32 once.
    """

    name: str
    inv_freq: tuple[float, ...]  # [rotary_dim / 2], each a float32 value
    magnitude: float


@dataclass(frozen=True, slots=True)
class KVGroup:
    """Layers of equal window and KV shape: they share block tables and a store."""

    id: int
    layers: tuple[int, ...]  # model layer numbers; `kv_write` and `attend` name the index in this tuple
    num_kv_heads: int
    head_dim: int
    window: int | None  # a query at p sees keys in (p - window, p]


@dataclass(frozen=True, slots=True)
class Program:
    """The whole model. `weights` is everything the readers need to load."""

    architecture: str
    values: tuple[Value, ...]
    instrs: tuple[Instr, ...]
    weights: Mapping[str, WeightSpec]
    rope_tables: tuple[RopeTable, ...]
    kv_groups: tuple[KVGroup, ...]
    width: int
    vocab_size: int
    context_length: int

    @property
    def has_head(self) -> bool:
        """Whether a step ends in logits; else in the final state of every selected token."""
        return any(instr.op is Op.LOGITS for instr in self.instrs)

    @property
    def output_width(self) -> int:
        """Of what a step brings per selected token."""
        return self.values[self.instrs[-1].outputs[0]].width


@dataclass(frozen=True, slots=True)
class BoundStep:
    """One step as arrays, the only thing a reader's `run` takes.

    Row r holds tokens [row_starts[r], row_starts[r + 1]) at positions row_positions[r], +1, ...
    block_tables[g][r, j] is the block of KV group g that holds positions [j * block_size, ...) of row
    r; -1 where a window left a blank, anything past the row's end. `selected` are token indices, ascending.
    `wanted` has a bit per vocabulary id, id i in bit i % 32 of word i // 32: logits of words without a bit, or past
    their end, are looked at by nobody and need not be computed; None wants all. `candidates` has a row per selected
    token: where less than all logits is wanted of it, none are written and what there is to choose from comes there.
    """

    token_ids: npt.NDArray[np.int32]  # [num_tokens]
    row_starts: npt.NDArray[np.int32]  # [num_rows + 1]
    row_positions: npt.NDArray[np.int32]  # [num_rows]
    block_tables: tuple[npt.NDArray[np.int32], ...]  # per KV group [num_rows, max_blocks]
    selected: npt.NDArray[np.int32]  # [num_selected]
    wanted: npt.NDArray[np.uint32] | None = None
    candidates: Candidates | None = None
