"""The ways a step is cut for attention - tiles, whole rows, chunks of a row - give the same bits for every shape.

A row of more than a tile is computed in tiles, smaller ones where threads would have too little to share; few short
rows over many keys are split into chunks of 256; more rows than there is work to share stay whole. The mode follows
from the company a row keeps, so a token must not show it.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.native.program_builders import AttentionModel, Heads, Row, make_step
from twostroke import _native
from twostroke.errors import KernelError
from twostroke.program.native import NativeReader
from twostroke.program.quant import FloatArray
from twostroke.program.reader import Precision

ISAS = _native.usable_isas()
PRECISIONS: tuple[Precision, ...] = ("f32", "f16", "bf16", "int8")
EVERY_ISA = pytest.mark.parametrize("isa", ISAS)
EVERY_PRECISION = pytest.mark.parametrize("precision", PRECISIONS)
CHUNK = 256
SHAPES = [
    Heads(1, 1, 2),
    Heads(4, 2, 18, window=40),
    Heads(3, 1, 64, window=270, softcap=1.5),
    Heads(4, 2, 2, window=270),
    Heads(7, 1, 18, softcap=1.5),
    Heads(1, 1, 64, window=40, softcap=1.5),
    Heads(3, 3, 24, window=1),
    Heads(2, 1, 80, softcap=1.5),
]
LENGTH = CHUNK + 39


def same_bits(a: FloatArray, b: FloatArray) -> bool:
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


def blocks_of(length: int, *, first: int = 0) -> list[int]:
    return list(range(first, first - (-length // 16)))


def last_tokens(
    model: AttentionModel, reader: NativeReader, ids: Sequence[int], *, new: int, company: int
) -> FloatArray:
    """What attend gives for the last `new` tokens beside other rows of one token each."""
    old = len(ids) - new
    rows: list[Row] = [(ids[old:], old, blocks_of(len(ids)))]
    rows += [([row], 0, [63 - row]) for row in range(company)]
    return model.run(reader, rows)[:new]


@EVERY_ISA
@EVERY_PRECISION
@pytest.mark.parametrize("new", [7, 8, 15, 16, 26, 97, 130])
def test_tiles_cut_for_more_threads_have_the_same_bits(isa: str, precision: Precision, new: int) -> None:
    model = AttentionModel(Heads(3, 1, 18, window=40), num_ids=LENGTH)
    ids, old = list(range(LENGTH)), LENGTH - new
    found = []
    for threads in (1, 2, 3):
        reader = model.make_reader(precision=precision, isa=isa, threads=threads)
        model.run(reader, [(ids[:old], 0, blocks_of(LENGTH))])
        found.append(model.run(reader, [(ids[old:], old, blocks_of(LENGTH))]))
    assert same_bits(found[0], found[1])
    assert same_bits(found[0], found[2])


@EVERY_ISA
@EVERY_PRECISION
@pytest.mark.parametrize("heads", SHAPES, ids=str)
def test_split_whole_and_tiled_rows_have_the_same_bits(isa: str, precision: Precision, heads: Heads) -> None:
    model = AttentionModel(heads, num_ids=LENGTH)
    ids = list(range(LENGTH))
    tiled = model.run(model.make_reader(precision=precision, isa=isa), [(ids, 0, blocks_of(LENGTH))])
    reader = model.make_reader(precision=precision, isa=isa, threads=2)
    model.run(reader, [(ids, 0, blocks_of(LENGTH))])
    for new, company in ((1, 0), (1, 15), (4, 0), (5, 0), (13, 1)):
        got = last_tokens(model, reader, ids, new=new, company=company)
        assert same_bits(got, tiled[-new:]), (new, company)


@EVERY_ISA
@EVERY_PRECISION
@pytest.mark.parametrize("length", [CHUNK - 1, CHUNK, CHUNK + 1])
@pytest.mark.parametrize("window", [None, CHUNK, CHUNK + 1])
def test_rows_that_end_at_the_border_of_a_chunk(
    isa: str, precision: Precision, length: int, window: int | None
) -> None:
    model = AttentionModel(Heads(3, 1, 8, window=window), num_ids=CHUNK + 1)
    ids = list(range(length))
    reader = model.make_reader(precision=precision, isa=isa, threads=2)
    tiled = model.run(reader, [(ids, 0, blocks_of(length))])
    for new in (1, 2, 4):
        assert same_bits(last_tokens(model, reader, ids, new=new, company=0), tiled[-new:])


@EVERY_ISA
@EVERY_PRECISION
@pytest.mark.parametrize("num_heads", [3, 5, 24, 96, 100])
def test_rows_that_just_fill_a_tile_and_just_do_not(isa: str, precision: Precision, num_heads: int) -> None:
    tile = max(1, 96 // num_heads)
    model = AttentionModel(Heads(num_heads, 1, 4), num_ids=200)
    ids = list(range(100, 100 + 2 * tile + 1))
    reader = model.make_reader(precision=precision, isa=isa, threads=2, num_blocks=128)
    wanted = np.concatenate([model.run(reader, [([id], at, blocks_of(len(ids)))]) for at, id in enumerate(ids)])
    for length in (tile, tile + 1, 2 * tile, 2 * tile + 1):
        assert same_bits(model.run(reader, [(ids[:length], 0, blocks_of(length, first=20))]), wanted[:length])


@EVERY_ISA
@EVERY_PRECISION
@pytest.mark.parametrize("threads", [1, 3])
def test_every_number_of_rows_up_to_the_most(isa: str, precision: Precision, threads: int) -> None:
    """Few rows are split, more are not: the border moves with the threads."""
    model = AttentionModel(Heads(2, 2, 8), num_ids=320)
    reader = model.make_reader(precision=precision, isa=isa, threads=threads, num_blocks=16 * 20 + 1)
    ids = list(range(300))
    wanted = model.run(reader, [(ids, 0, blocks_of(300))])[-1]
    for row in range(1, 16):
        model.run(reader, [(ids[:-1], 0, blocks_of(299, first=20 * row))])
    for num_rows in range(1, 17):
        rows: list[Row] = [(ids[-1:], 299, blocks_of(300, first=20 * row)) for row in range(num_rows)]
        got = model.run(reader, rows)
        assert all(same_bits(part, wanted) for part in got), num_rows


@EVERY_ISA
@EVERY_PRECISION
def test_a_step_run_twice_gives_the_same_bits_and_leaves_the_same_cache(isa: str, precision: Precision) -> None:
    model = AttentionModel(Heads(4, 2, 16), num_ids=300)
    reader = model.make_reader(precision=precision, isa=isa, threads=2)
    rows: list[Row] = [(list(range(270)), 0, blocks_of(270)), ([1, 2, 3], 0, [40])]
    first = model.run(reader, rows)
    after = model.run(reader, [([9], 270, blocks_of(271))])
    assert same_bits(model.run(reader, rows), first)
    assert same_bits(model.run(reader, [([9], 270, blocks_of(271))]), after)


@EVERY_ISA
@EVERY_PRECISION
@pytest.mark.parametrize("new", [1, 3, 20])
def test_blocks_behind_the_window_may_be_gone(isa: str, precision: Precision, new: int) -> None:
    model = AttentionModel(Heads(2, 1, 8, window=20), num_ids=300)
    ids = list(range(300))
    reader = model.make_reader(precision=precision, isa=isa, threads=2)
    wanted = model.run(reader, [(ids, 0, blocks_of(300))])[-new:]
    first_seen = (300 - new - 20 + 1) // 16
    blanked = [-1] * first_seen + blocks_of(300)[first_seen:]
    assert same_bits(model.run(reader, [(ids[-new:], 300 - new, blanked)]), wanted)
    too_few = [-1] * (first_seen + 1) + blocks_of(300)[first_seen + 1 :]
    with pytest.raises(KernelError, match=rf"block {first_seen} of its table is -1"):
        reader.run(make_step([(ids[-new:], 300 - new, too_few)]))


@EVERY_ISA
@EVERY_PRECISION
@pytest.mark.parametrize("block_size", [16, 32])
def test_a_copy_takes_a_whole_block_and_no_byte_beside_it(isa: str, precision: Precision, block_size: int) -> None:
    """Three full blocks in a row of the store; the middle one is overwritten by a copy of another sequence's."""
    model = AttentionModel(Heads(3, 3, 10), num_ids=200)
    reader = model.make_reader(precision=precision, isa=isa, block_size=block_size, num_blocks=5)
    mine, other = list(range(3 * block_size)), list(range(100, 100 + block_size))
    model.run(reader, [(mine, 0, [0, 1, 2])])
    model.run(reader, [(other, 0, [4])])
    reader.copy_block(0, 4, 1)
    spliced = mine[:block_size] + other + mine[2 * block_size :]
    got = model.run(reader, [([199], 3 * block_size, [0, 1, 2, 3])])
    fresh = model.make_reader(precision=precision, isa=isa, block_size=block_size, num_blocks=5)
    assert same_bits(got, model.run(fresh, [([*spliced, 199], 0, [0, 1, 2, 3])])[-1:])
    assert same_bits(
        model.run(reader, [([199], block_size, [4, 3])]), model.run(fresh, [([*other, 199], 0, [4, 3])])[-1:]
    )


def test_a_block_copied_onto_itself_stays() -> None:
    model = AttentionModel(Heads(1, 1, 8), num_ids=40)
    reader = model.make_reader()
    model.run(reader, [(range(16), 0, [2])])
    before = model.run(reader, [([20], 16, [2, 3])])
    reader.copy_block(0, 2, 2)
    assert same_bits(model.run(reader, [([20], 16, [2, 3])]), before)


@EVERY_ISA
@EVERY_PRECISION
@pytest.mark.parametrize("heads", [Heads(1, 1, 8), Heads(4, 2, 18), Heads(3, 1, 64)], ids=str)
def test_one_visible_key_gives_its_value_as_stored(isa: str, precision: Precision, heads: Heads) -> None:
    """Softmax over a single score is 1 whatever the score: nothing may be added, lost or scaled."""
    alone = Heads(heads.num_heads, heads.num_kv_heads, heads.head_dim, window=1, softcap=heads.softcap)
    model = AttentionModel(alone, num_ids=40)
    model.embedding[:, : heads.num_heads * heads.head_dim] *= 50
    got = model.run(model.make_reader(precision=precision, isa=isa), [(range(33), 0, [0, 1, 2])])
    np.testing.assert_array_equal(got, model.expect(range(33), precision).astype(np.float32))


@EVERY_ISA
@EVERY_PRECISION
def test_scores_far_apart_pick_the_best_key_alone(isa: str, precision: Precision) -> None:
    model = AttentionModel(Heads(1, 1, 2), num_ids=300)
    model.embedding[:] = 0
    model.embedding[:, 0] = 1000
    model.embedding[:, 2] = -np.arange(300) % 97
    model.embedding[:, 4] = np.arange(300) % 128
    ids = [id for id in range(300) if -id % 97 != 96] + [1]  # the best key comes last, behind a whole chunk
    got = model.run(model.make_reader(precision=precision, isa=isa, threads=2), [(ids, 0, blocks_of(len(ids)))])
    assert got[-1].tolist() == [1, 0]
