"""All matrices of a program in one arena: no holes, none twice, the bytes each would have by itself."""

import mmap
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.builders_sources import make_source
from twostroke import _native
from twostroke.errors import KernelError
from twostroke.model.families import build_program
from twostroke.program.op import Op
from twostroke.program.packed import pack_matrices, packed_layout, release_pages, stored_tensor
from twostroke.program.quant import TENSOR_TYPES

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3")


def panels(weight: _native.Weight) -> list[bytes]:
    return [weight.packed_panel(panel).tobytes() for panel in range(-(-weight.rows // 32))]


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize("tensor_type", ["F32", "BF16", "Q4_1"])
def test_matrices_follow_each_other_without_holes(architecture: str, tensor_type: str) -> None:
    layout = packed_layout(build_program(make_source(architecture, tensor_type=tensor_type)))
    assert layout[0].offset == 0
    assert all(matrix.offset + matrix.num_bytes == behind.offset for matrix, behind in pairwise(layout))
    assert all(matrix.num_bytes % 64 == 0 for matrix in layout)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_matrix_is_there_once_and_no_vector(architecture: str) -> None:
    program = build_program(make_source(architecture))
    names = [matrix.name for matrix in packed_layout(program)]
    assert len(set(names)) == len(names)
    assert set(names) == {name for name, spec in program.weights.items() if len(spec.shape) == 2}


def test_a_tied_head_has_no_place_of_its_own() -> None:
    program = build_program(make_source("llama", shapes={"output.weight": None}))
    layout = packed_layout(program)
    assert layout[0].name == "token_embd.weight"
    assert next(instr for instr in program.instrs if instr.op is Op.LOGITS).weights == ("token_embd.weight",)
    assert "output.weight" not in {matrix.name for matrix in layout}


def test_matrices_lie_in_the_order_a_step_reads_them() -> None:
    program = build_program(make_source("qwen3"))
    names = [matrix.name for matrix in packed_layout(program)]
    used = [name for instr in program.instrs for name in instr.weights if name in names]
    assert names == list(dict.fromkeys(used))


@pytest.mark.parametrize("tensor_type", sorted(set(TENSOR_TYPES) - {"Q4_K", "Q5_K", "Q6_K"}))
def test_places_in_the_arena_hold_what_each_would_have_by_itself(tensor_type: str) -> None:
    source = make_source("llama", tensor_type=tensor_type)
    weights = pack_matrices(build_program(source), source.tensors, pool=_native.Pool(2))
    for name, weight in weights.items():
        tensor = source.tensors[name]
        alone = _native.pack_weight(tensor.tensor_type, tensor.data, *tensor.shape)
        assert panels(weight) == panels(alone)


def test_weights_outlive_the_arena_they_lie_in() -> None:
    data = np.arange(64 * 32, dtype=np.float32).view(np.uint8)
    arena = _native.WeightArena(2 * 64 * 32 * 4)
    pool = _native.Pool(1)
    first, second = (pool.pack_weight("F32", data, 64, 32, arena, offset) for offset in (0, 64 * 32 * 4))
    del arena
    np.testing.assert_array_equal(second.unpack_row(63), data.view(np.float32)[63 * 32 :])
    assert panels(first) == panels(second)


@pytest.mark.parametrize("offset", [1, 32, 64 * 32 * 4 + 64, 2**63])
def test_a_place_outside_the_arena_or_across_lines_is_refused(offset: int) -> None:
    arena = _native.WeightArena(2 * 64 * 32 * 4)
    with pytest.raises(ValueError, match=f"8192 bytes at {offset} do not fit an arena of 16384"):
        _native.Pool(1).pack_weight("F32", np.zeros(64 * 32 * 4, np.uint8), 64, 32, arena, offset)


@pytest.mark.parametrize("num_bytes", [0, 1, 64, 2**23 - 1, 2**23, 2**23 + 4097, 2**25])
def test_an_arena_has_the_bytes_asked_for_and_all_can_be_written(num_bytes: int) -> None:
    arena = _native.WeightArena(num_bytes)
    assert arena.num_bytes == num_bytes
    size = 64 * 32 * 4
    if num_bytes >= size:
        last = (num_bytes - size) // 64 * 64
        data = np.full(64 * 32, 7, np.float32).view(np.uint8)
        assert _native.Pool(1).pack_weight("F32", data, 64, 32, arena, last).unpack_row(63)[31] == 7


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="asks Linux")
def test_a_large_arena_starts_where_a_huge_page_does_and_asks_for_them() -> None:
    before = huge_areas()
    arena = _native.WeightArena(2**25 + 1)
    (new,) = huge_areas() - before
    start, end = new
    assert start % 2**21 == 0
    assert end - start == 2**25 + mmap.PAGESIZE
    del arena
    assert huge_areas() == before


def huge_areas() -> set[tuple[int, int]]:
    """Start and end of the areas for which huge pages were asked."""
    found, area = set(), (0, 0)
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split()[0]
        if "-" in head and not head.endswith(":"):
            start, end = (int(number, 16) for number in head.split("-"))
            area = start, end
        elif head == "VmFlags:" and "hg" in line.split():
            found.add(area)
    return found


def test_a_tensor_of_another_shape_is_refused_by_name() -> None:
    source = make_source("llama")
    name = "token_embd.weight"
    tensors = {**source.tensors, name: replace(source.tensors[name], shape=(1, 2))}
    with pytest.raises(KernelError, match=rf"{name} has shape \[1, 2\], the program says"):
        stored_tensor(tensors, build_program(source).weights[name])


def test_pages_of_a_mapped_file_are_released_and_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    content = np.arange(5 * mmap.PAGESIZE, dtype=np.uint32).view(np.uint8)
    path.write_bytes(content.tobytes())
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    data = np.frombuffer(mapped, np.uint8)[100:-100]
    release_pages(data)
    assert np.array_equal(data, content[100:-100])


def test_memory_that_is_no_mapping_is_left_alone() -> None:
    release_pages(np.zeros(10, np.uint8))
    release_pages(np.frombuffer(b"abc", np.uint8))
