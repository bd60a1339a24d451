"""Steps and readers for tests of programs: one or several rows over block tables of our choice."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from twostroke.model.families import build_program
from twostroke.model.source import ModelSource
from twostroke.program.program import BoundStep, Program
from twostroke.program.quant import FloatArray
from twostroke.program.reader import KVSpec, Precision
from twostroke.program.reference import ReferenceReader

BLOCK_SIZE = 16


def make_reader(
    source: ModelSource,
    *,
    precision: Precision = "f32",
    num_blocks: int = 8,
    activations: Literal["f32", "a8"] = "f32",
) -> tuple[Program, ReferenceReader]:
    program = build_program(source)
    kv = KVSpec(precision, BLOCK_SIZE, (num_blocks,) * len(program.kv_groups))
    return program, ReferenceReader(program, source.tensors, kv=kv, activations=activations)


def make_step(
    program: Program,
    rows: Sequence[tuple[Sequence[int], int, Sequence[int]]],
    *,
    selected: Sequence[int] | None = None,
) -> BoundStep:
    """Rows of (token ids, first position, blocks); every token is selected unless told."""
    token_ids = [token_id for ids, _, _ in rows for token_id in ids]
    starts = np.cumsum([0, *(len(ids) for ids, _, _ in rows)])
    longest = max(len(blocks) for _, _, blocks in rows)
    table = np.array([[*blocks, *[-1] * (longest - len(blocks))] for _, _, blocks in rows], np.int32)
    return BoundStep(
        token_ids=np.array(token_ids, np.int32),
        row_starts=starts.astype(np.int32),
        row_positions=np.array([position for _, position, _ in rows], np.int32),
        block_tables=(table,) * len(program.kv_groups),
        selected=np.array(range(len(token_ids)) if selected is None else selected, np.int32),
    )


def run_whole(
    program: Program, reader: Any, token_ids: Sequence[int], *, blocks: Sequence[int] | None = None
) -> FloatArray:
    """Logits of every token of one sequence, computed in one step."""
    needed = -(-len(token_ids) // BLOCK_SIZE)
    blocks = range(needed) if blocks is None else blocks
    logits: FloatArray = reader.run(make_step(program, [(token_ids, 0, list(blocks))]))
    return logits
