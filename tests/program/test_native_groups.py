"""Readers over several KV groups: each has its own blocks, tables and copies; weights are packed once and checked."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.builders_sources import make_source
from tests.program.step_builders import make_step
from twostroke import _native
from twostroke.errors import KernelError
from twostroke.model.families import build_program
from twostroke.program.kv_precision import kv_head_bytes
from twostroke.program.native import NativeReader
from twostroke.program.program import BoundStep, Program
from twostroke.program.quant import FloatArray
from twostroke.program.reader import KVSpec, Precision

PRECISIONS: tuple[Precision, ...] = ("f32", "f16", "bf16", "int8")
EVERY_PRECISION = pytest.mark.parametrize("precision", PRECISIONS)
EVERY_ISA = pytest.mark.parametrize("isa", _native.usable_isas())
IDS = [(7 * index + 3) % 40 for index in range(33)]
NUM_BLOCKS = (9, 6)  # of gemma3's two groups


def make_reader(
    *, precision: Precision = "f32", isa: str | None = None, **changed: Any
) -> tuple[Program, NativeReader]:
    source = make_source("gemma3")
    program = build_program(source)
    kv = KVSpec(precision, changed.pop("block_size", 16), NUM_BLOCKS)
    tensors = changed.pop("tensors", source.tensors)
    options = {"threads": 2, "max_tokens": 64, "max_rows": 4, **changed}
    return program, NativeReader(program, tensors, kv=kv, isa=isa, **options)


def step_over(program: Program, ids: list[int], position: int, tables: list[list[int]]) -> BoundStep:
    step = make_step(program, [(ids, position, tables[0])])
    return replace(step, block_tables=tuple(np.array([table], np.int32) for table in tables))


def same_bits(a: FloatArray, b: FloatArray) -> bool:
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


def last_logits(program: Program, reader: NativeReader, tables: list[list[int]]) -> FloatArray:
    return reader.run(step_over(program, IDS[-1:], 32, tables)).copy()


@EVERY_PRECISION
@EVERY_ISA
def test_groups_may_keep_a_sequence_in_different_blocks(precision: Precision, isa: str) -> None:
    program, reader = make_reader(precision=precision, isa=isa)
    wanted = reader.run(step_over(program, IDS, 0, [[0, 1, 2], [0, 1, 2]])).copy()
    assert same_bits(reader.run(step_over(program, IDS, 0, [[8, 3, 5], [1, 5, 4]])), wanted)


@EVERY_PRECISION
@EVERY_ISA
@pytest.mark.parametrize("group", [0, 1])
def test_a_copy_moves_every_layer_of_its_group_and_nothing_of_the_other(
    precision: Precision, isa: str, group: int
) -> None:
    program, reader = make_reader(precision=precision, isa=isa)
    tables = [[0, 1, 2], [0, 1, 2]]
    wanted = reader.run(step_over(program, IDS, 0, tables))[-1:].copy()
    last = NUM_BLOCKS[group] - 1
    for source, target in ((0, last), (1, last - 1), (2, 3)):
        reader.copy_block(group, source, target)
    moved = [list(table) for table in tables]
    moved[group] = [last, last - 1, 3]
    assert same_bits(last_logits(program, reader, moved), wanted)
    assert same_bits(last_logits(program, reader, tables), wanted)


@pytest.mark.parametrize("group", [0, 1])
def test_what_overwrites_a_block_is_seen_by_those_who_read_it(group: int) -> None:
    """The counterpart: copies do move something."""
    program, reader = make_reader()
    tables = [[0, 1, 2], [0, 1, 2]]
    wanted = reader.run(step_over(program, IDS, 0, tables))[-1:].copy()
    reader.run(step_over(program, IDS[::-1], 0, [[3, 4, 5], [3, 4, 5]]))
    for source, target in ((3, 0), (4, 1), (5, 2)):
        reader.copy_block(group, source, target)
    assert not same_bits(last_logits(program, reader, tables), wanted)


def test_each_group_has_its_own_number_of_blocks() -> None:
    program, reader = make_reader()
    for group, count in enumerate(NUM_BLOCKS):
        tables = [[0], [0]]
        tables[group] = [count - 1]
        reader.run(step_over(program, IDS[:1], 0, tables))
        tables[group] = [count]
        with pytest.raises(
            KernelError, match=rf"row 0, KV group {group}: block 0 of its table is {count}, .* {count}$"
        ):
            reader.run(step_over(program, IDS[:1], 0, tables))
        with pytest.raises(KernelError, match=rf"copy of a KV block: block {count} is not in \[0, {count}\)"):
            reader.copy_block(group, 0, count)
    with pytest.raises(KernelError, match=r"copy of a KV block: KV group 2 is not in \[0, 2\)"):
        reader.copy_block(2, 0, 0)


@pytest.mark.parametrize("num_tables", [0, 1, 3])
def test_a_step_needs_a_table_per_group(num_tables: int) -> None:
    program, reader = make_reader()
    step = step_over(program, IDS[:1], 0, [[0], [0]])
    tables = (step.block_tables * 2)[:num_tables]
    with pytest.raises(KernelError, match=f"^step has {num_tables} block tables, must have 2$"):
        reader.run(replace(step, block_tables=tables))


@EVERY_PRECISION
@pytest.mark.parametrize("block_size", [16, 32])
def test_bytes_of_a_block_count_the_layers_of_its_group(precision: Precision, block_size: int) -> None:
    program, reader = make_reader(precision=precision, block_size=block_size)
    assert reader.kv_bytes_per_block == tuple(
        2 * len(group.layers) * group.num_kv_heads * block_size * kv_head_bytes(precision, group.head_dim)
        for group in program.kv_groups
    )


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.0.attn_q.weight", "output_norm.weight"])
def test_a_tensor_of_another_shape_is_refused_by_name(name: str) -> None:
    source = make_source("gemma3")
    tensor = source.tensors[name]
    wrong = replace(tensor, shape=(*tensor.shape[:-1], tensor.shape[-1] + 1))
    with pytest.raises(KernelError, match=rf"{name} has shape \[.*\], the program says \[.*\]"):
        make_reader(tensors={**source.tensors, name: wrong})


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.1.ffn_down.weight"])
def test_a_tensor_with_bytes_missing_is_refused_with_both_numbers(name: str) -> None:
    source = make_source("gemma3")
    tensor = source.tensors[name]
    with pytest.raises(KernelError, match=rf"needs {len(tensor.data)} bytes, got {len(tensor.data) - 4}"):
        make_reader(tensors={**source.tensors, name: replace(tensor, data=tensor.data[:-4])})


def test_a_closed_reader_may_be_closed_again_and_cannot_run() -> None:
    program, reader = make_reader()
    assert reader.pool.num_threads == 2
    reader.close()
    reader.close()
    with pytest.raises(AttributeError):
        reader.run(step_over(program, IDS[:1], 0, [[0], [0]]))


def test_logits_of_a_run_are_a_view_that_the_next_run_overwrites() -> None:
    program, reader = make_reader()
    first = reader.run(step_over(program, IDS[:3], 0, [[0], [0]]))
    kept = first.copy()
    second = reader.run(step_over(program, IDS[3:5], 0, [[1], [1]]))
    assert np.shares_memory(first, second)
    assert not same_bits(first, kept)
    assert same_bits(reader.run(step_over(program, IDS[:3], 0, [[0], [0]])), kept)


@pytest.mark.parametrize("part", ["token_ids", "row_starts", "row_positions", "selected"])
def test_arrays_of_too_many_dimensions_are_refused_and_the_next_step_runs(part: str) -> None:
    program, reader = make_reader()
    good = step_over(program, IDS, 0, [[0, 1, 2], [0, 1, 2]])
    wanted = reader.run(good).copy()
    with pytest.raises(KernelError, match="step did not run"):
        reader.run(replace(good, **{part: getattr(good, part)[np.newaxis]}))
    with pytest.raises(KernelError, match="step did not run"):
        reader.run(replace(good, block_tables=(good.block_tables[0], good.block_tables[1][0])))
    assert same_bits(reader.run(good), wanted)
