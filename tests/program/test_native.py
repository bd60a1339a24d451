"""The native reader: what the reference computes, the same bits however a step is cut, batched or threaded."""

from typing import Any

import numpy as np
import pytest

from tests.builders_sources import make_source
from tests.program.step_builders import make_step
from twostroke import _native
from twostroke.errors import ConfigError, KernelError
from twostroke.model.families import build_program
from twostroke.model.source import ModelSource
from twostroke.program.native import NativeReader
from twostroke.program.program import Program
from twostroke.program.quant import FloatArray
from twostroke.program.reader import KVSpec, Precision
from twostroke.program.reference import ReferenceReader

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3")
PRECISIONS: tuple[Precision, ...] = ("f32", "f16", "bf16", "int8")
ISAS = _native.usable_isas()
IDS = [(11 * index + 5) % 40 for index in range(60)]
# One rounding of a stored or multiplied number that falls the other way, seen through two layers.
TOLERANCE = {"f32": 2e-4, "f16": 5e-3, "bf16": 3e-2, "int8": 3e-2}


def make_native(
    source: ModelSource,
    *,
    precision: Precision = "f32",
    threads: int = 1,
    block_size: int = 16,
    isa: str | None = None,
    **options: Any,
) -> tuple[Program, NativeReader]:
    program = build_program(source)
    kv = KVSpec(precision, block_size, (16,) * len(program.kv_groups))
    reader = NativeReader(
        program,
        source.tensors,
        kv=kv,
        threads=threads,
        isa=isa,
        **{"max_tokens": 128, "max_rows": 8, **options},
    )
    return program, reader


def whole(
    program: Program, reader: NativeReader | ReferenceReader, *, blocks: tuple[int, ...] = (3, 0, 2, 1)
) -> FloatArray:
    return reader.run(make_step(program, [(IDS, 0, blocks)])).copy()


def same_bits(a: FloatArray, b: FloatArray) -> bool:
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("tensor_type", ["F32", "BF16", "Q8_0"])
def test_logits_are_the_references(architecture: str, isa: str, precision: Precision, tensor_type: str) -> None:
    source = make_source(architecture, tensor_type=tensor_type)
    program, reader = make_native(source, precision=precision, isa=isa, threads=2)
    kv = KVSpec(precision, 16, (16,) * len(program.kv_groups))
    reference = ReferenceReader(program, source.tensors, kv=kv, activations="a8")
    got, wanted = whole(program, reader), whole(program, reference)
    tolerance = TOLERANCE[precision] if tensor_type == "F32" else 0.15
    assert np.abs(got - wanted).max() < tolerance * np.abs(wanted).max()
    assert np.abs(got - wanted).mean() < tolerance / 10 * np.abs(wanted).mean()


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("tensor_type", ["F32", "Q4_0", "Q5_0"])
def test_chunked_bits_are_whole_bits(architecture: str, isa: str, tensor_type: str) -> None:
    source = make_source(architecture, tensor_type=tensor_type)
    program, reader = make_native(source, precision="bf16", isa=isa)
    wanted = whole(program, reader)
    for sizes in ([1] * 60, [7, 1, 1, 20, 4, 5, 22], [59, 1], [1, 59]):
        position, parts = 0, []
        for size in sizes:
            step = make_step(program, [(IDS[position : position + size], position, [9, 8, 7, 6])])
            parts.append(reader.run(step).copy())
            position += size
        assert same_bits(np.concatenate(parts), wanted)


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize("isa", ISAS)
def test_batched_bits_are_the_bits_of_each_alone(architecture: str, isa: str) -> None:
    source = make_source(architecture, tensor_type="Q4_1")
    program, alone = make_native(source, precision="bf16", isa=isa)
    wanted = whole(program, alone)
    _, reader = make_native(source, precision="bf16", isa=isa, threads=2)
    tables = [[0, 1, 2, 3], [4, 5], [6, 7], [8, 9, 10]]
    starts = (39, 0, 16, 33)
    for start, blocks in zip(starts, tables, strict=True):
        if start:
            reader.run(make_step(program, [(IDS[:start], 0, blocks)]))
    ends = (40, 25, 19, 34)
    rows = [(IDS[start:end], start, blocks) for start, end, blocks in zip(starts, ends, tables, strict=True)]
    got = reader.run(make_step(program, rows))
    expected = np.concatenate([wanted[start:end] for start, end in zip(starts, ends, strict=True)])
    assert same_bits(got, expected)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_threads_and_block_sizes_change_no_bit(isa: str, precision: Precision) -> None:
    source = make_source("gemma3", tensor_type="Q8_0")
    program, reader = make_native(source, precision=precision, isa=isa)
    wanted = whole(program, reader)
    for threads, block_size in ((2, 16), (3, 32), (5, 16), (1, 32)):
        program, other = make_native(source, precision=precision, isa=isa, threads=threads, block_size=block_size)
        assert same_bits(whole(program, other), wanted)


def test_only_selected_tokens_get_logits() -> None:
    program, reader = make_native(make_source("llama"))
    every = whole(program, reader)
    step = make_step(program, [(IDS, 0, [3, 0, 2, 1])], selected=[0, 17, 59])
    assert same_bits(reader.run(step).copy(), every[[0, 17, 59]])


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", [[59, 1], [30, 30], [5, 3, 44, 8]])
def test_tokens_without_logits_still_leave_their_keys_and_values(
    architecture: str, threads: int, sizes: list[int]
) -> None:
    source = make_source(architecture, tensor_type="Q8_0")
    program, reader = make_native(source, precision="bf16", threads=threads)
    wanted = whole(program, reader)
    position = 0
    for size in sizes:
        ids, is_last = IDS[position : position + size], position + size == len(IDS)
        selected = [size // 2, size - 1] if is_last and size > 1 else [size - 1] if is_last else []
        got = reader.run(make_step(program, [(ids, position, [9, 8, 7, 6])], selected=selected)).copy()
        assert same_bits(got, wanted[[position + index for index in selected]])
        position += size
    assert position == len(IDS)


def test_more_selected_tokens_than_before_get_a_larger_buffer() -> None:
    program, reader = make_native(make_source("llama"))
    assert reader.run(make_step(program, [(IDS[:1], 0, [0])])).shape == (1, 40)
    assert reader.run(make_step(program, [(IDS[:9], 0, [0])])).shape == (9, 40)
    assert reader.memory_bytes > 0


def test_memory_counts_the_attention_partials_a_longer_context_needs() -> None:
    def memory_of(context: int) -> int:
        source = make_source("llama", metadata={"llama.context_length": context})
        return make_native(source)[1].memory_bytes

    chunk = 256
    partial = 4 * 2 * (8 + 2) * 4  # split tokens x heads per kv head x (head_dim, maximum, sum) x float: at least
    assert memory_of(9 * chunk) - memory_of(chunk) >= 8 * partial * 2  # for each of 2 kv heads


def test_an_unknown_isa_names_those_of_this_machine() -> None:
    with pytest.raises(ConfigError, match=r"ISA 'mmx' cannot run.*portable"):
        make_native(make_source("llama"), isa="mmx")


def test_the_fastest_isa_is_taken_by_default() -> None:
    _, reader = make_native(make_source("llama"))
    assert reader.isa == ISAS[0]


def test_a_store_for_other_groups_is_refused() -> None:
    source = make_source("gemma3")
    program = build_program(source)
    with pytest.raises(KernelError, match="1 block counts for 2 KV groups"):
        NativeReader(program, source.tensors, kv=KVSpec("f32", 16, (8,)), threads=1, max_tokens=8, max_rows=1)


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"max_tokens": 0}, {"max_rows": 0}, {"block_size": 8}])
def test_settings_out_of_range_are_kernel_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(KernelError, match="cannot run here"):
        make_native(make_source("llama"), **wrong)


def test_a_closed_reader_lets_go_of_everything() -> None:
    _, reader = make_native(make_source("llama"))
    reader.close()
    assert not hasattr(reader, "_bound")
