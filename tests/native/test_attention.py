"""Attention over the paged store: right against float64, and the same bits however it is cut, placed or shared out."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from tests.native.program_builders import AttentionModel, Heads
from twostroke import _native
from twostroke.program.native import NativeReader
from twostroke.program.quant import FloatArray
from twostroke.program.reader import Precision

ISAS = _native.usable_isas()
PRECISIONS: tuple[Precision, ...] = ("f32", "f16", "bf16", "int8")
EVERY_ISA = pytest.mark.parametrize("isa", ISAS)
EVERY_PRECISION = pytest.mark.parametrize("precision", PRECISIONS)
# P is rounded to 8 bits over a bf16 cache, to 2^-14 of the largest over int8; otherwise sums of at most 600 floats.
TOLERANCE = {"f32": 3e-6, "f16": 3e-6, "bf16": 8e-3, "int8": 1e-3}


def bits(x: FloatArray) -> npt.NDArray[np.uint32]:
    return x.view(np.uint32)


def blocks_for(num_tokens: int, *, block_size: int = 16, first: int = 0) -> list[int]:
    return list(range(first, first - (-num_tokens // block_size)))


def in_chunks(
    model: AttentionModel, reader: NativeReader, ids: Sequence[int], sizes: Sequence[int], blocks: Sequence[int]
) -> FloatArray:
    """One sequence computed chunk by chunk."""
    parts, position = [], 0
    for size in sizes:
        parts.append(model.run(reader, [(ids[position : position + size], position, blocks)]))
        position += size
    assert position == len(ids)
    return np.concatenate(parts)


@EVERY_ISA
@EVERY_PRECISION
@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 255, 256, 257, 600])
def test_it_is_softmax_attention_at_every_length(isa: str, precision: Precision, length: int) -> None:
    model = AttentionModel(Heads(num_heads=2, num_kv_heads=1, head_dim=32), num_ids=600)
    ids = np.random.default_rng(length).permutation(600)[:length].tolist()
    got = model.run(model.make_reader(precision=precision, isa=isa), [(ids, 0, blocks_for(length))])
    np.testing.assert_allclose(got, model.expect(ids, precision), atol=TOLERANCE[precision])


@EVERY_ISA
@EVERY_PRECISION
@pytest.mark.parametrize("head_dim", [2, 8, 24, 40, 64, 80, 96, 128, 256])
def test_head_sizes(isa: str, precision: Precision, head_dim: int) -> None:
    model = AttentionModel(Heads(num_heads=2, num_kv_heads=2, head_dim=head_dim), num_ids=64)
    ids = list(range(37))
    got = model.run(model.make_reader(precision=precision, isa=isa), [(ids, 0, [2, 0, 1])])
    np.testing.assert_allclose(got, model.expect(ids, precision), atol=TOLERANCE[precision])


@EVERY_ISA
@EVERY_PRECISION
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(1, 1), (3, 1), (4, 1), (8, 1), (6, 2), (9, 3), (5, 5)])
def test_query_heads_share_their_kv_head(isa: str, precision: Precision, num_heads: int, num_kv_heads: int) -> None:
    model = AttentionModel(Heads(num_heads, num_kv_heads, 16), num_ids=300)
    ids = list(range(270))
    got = model.run(model.make_reader(precision=precision, isa=isa), [(ids, 0, blocks_for(270))])
    np.testing.assert_allclose(got, model.expect(ids, precision), atol=TOLERANCE[precision])


@EVERY_ISA
@EVERY_PRECISION
@pytest.mark.parametrize("window", [1, 2, 7, 16, 100, 256, 300])
def test_windows_hide_older_keys_whole_and_token_by_token(isa: str, precision: Precision, window: int) -> None:
    model = AttentionModel(Heads(2, 1, 16, window=window), num_ids=300)
    ids = list(range(300))
    reader = model.make_reader(precision=precision, isa=isa)
    whole = model.run(reader, [(ids, 0, blocks_for(300))])
    np.testing.assert_allclose(whole, model.expect(ids, precision), atol=TOLERANCE[precision])
    again = in_chunks(model, reader, ids, [250, 1, 1, 1, 3, 1, 43], blocks_for(300, first=20))
    assert np.array_equal(bits(whole), bits(again))


@EVERY_ISA
def test_blocks_left_behind_by_a_window_may_be_blank(isa: str) -> None:
    model = AttentionModel(Heads(2, 1, 16, window=20), num_ids=300)
    reader = model.make_reader(isa=isa)
    ids = list(range(100))
    whole = model.run(reader, [(ids, 0, blocks_for(100))])
    model.run(reader, [(ids[:99], 0, blocks_for(99, first=10))])
    last = model.run(reader, [(ids[99:], 99, [-1, -1, -1, -1, -1, 15, 16])])
    assert np.array_equal(bits(last), bits(whole[99:]))


@EVERY_ISA
@EVERY_PRECISION
def test_softcap_bends_scores(isa: str, precision: Precision) -> None:
    model = AttentionModel(Heads(2, 1, 16, softcap=0.7), num_ids=300)
    ids = list(range(280))
    got = model.run(model.make_reader(precision=precision, isa=isa), [(ids, 0, blocks_for(280))])
    np.testing.assert_allclose(got, model.expect(ids, precision), atol=TOLERANCE[precision])


@EVERY_ISA
@EVERY_PRECISION
@settings(max_examples=12)
@given(data=st.data())
def test_bits_do_not_depend_on_chunks_blocks_or_threads(isa: str, precision: Precision, data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 400))
    window = data.draw(st.sampled_from([None, 50, 257]))
    model = AttentionModel(Heads(3, 1, 16, window=window), num_ids=400)
    ids = data.draw(st.permutations(range(length)))
    whole = model.run(model.make_reader(precision=precision, isa=isa), [(ids, 0, blocks_for(length))])
    block_size = data.draw(st.sampled_from([16, 32]))
    reader = model.make_reader(
        precision=precision, isa=isa, threads=data.draw(st.integers(1, 3)), block_size=block_size
    )
    sizes: list[int] = []
    while sum(sizes) < length:
        sizes.append(min(data.draw(st.sampled_from([1, 1, 2, 5, 33, 200])), length - sum(sizes)))
    blocks = data.draw(st.permutations(range(40)))[: -(-length // block_size)]
    assert np.array_equal(bits(whole), bits(in_chunks(model, reader, ids, sizes, blocks)))


@EVERY_ISA
@EVERY_PRECISION
@pytest.mark.parametrize("threads", [1, 2])
def test_mixed_prefill_and_decode_rows_have_the_bits_of_each_alone(
    isa: str, precision: Precision, threads: int
) -> None:
    model = AttentionModel(Heads(3, 1, 32), num_ids=700)
    lengths = (300, 1, 17, 513, 40)
    sequences = [list(range(seed, seed + length)) for seed, length in enumerate(lengths)]
    alone = model.make_reader(precision=precision, isa=isa, num_blocks=128)
    wanted = [model.run(alone, [(ids, 0, blocks_for(len(ids)))]) for ids in sequences]
    reader = model.make_reader(precision=precision, isa=isa, threads=threads, num_blocks=128)
    tables = [blocks_for(len(ids), first=40 * index) for index, ids in enumerate(sequences[:3])]
    tables += [blocks_for(513, first=42), blocks_for(40, first=100)]
    news = (1, 1, 2, 1, 40)  # decode, whole prompt of one, two drafts, decode over three chunks, prefill
    for ids, blocks, new in zip(sequences, tables, news, strict=True):
        if len(ids) > new:
            model.run(reader, [(ids[:-new], 0, blocks)])
    rows = [(ids[-new:], len(ids) - new, blocks) for ids, blocks, new in zip(sequences, tables, news, strict=True)]
    together = model.run(reader, rows)
    expected = np.concatenate([want[-new:] for want, new in zip(wanted, news, strict=True)])
    assert np.array_equal(bits(together), bits(expected))
    decode_only = model.run(reader, [rows[0], rows[1], rows[3]])
    assert np.array_equal(bits(decode_only), bits(expected[[0, 1, 4]]))


@EVERY_ISA
@EVERY_PRECISION
def test_sequences_may_share_blocks_of_a_common_head(isa: str, precision: Precision) -> None:
    model = AttentionModel(Heads(3, 1, 16), num_ids=100)
    reader = model.make_reader(precision=precision, isa=isa, threads=2)
    head, tails = list(range(32)), ([40, 41, 42], [50])
    model.run(reader, [(head, 0, [5, 3])])
    got = model.run(reader, [(tails[0], 32, [5, 3, 7]), (tails[1], 32, [5, 3, 1])])
    for tail, part in zip(tails, (got[:3], got[3:]), strict=True):
        np.testing.assert_allclose(part, model.expect(head + tail, precision)[32:], atol=TOLERANCE[precision])


@EVERY_ISA
@EVERY_PRECISION
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("length", [1, 2, 15, 17, 19])
def test_recycled_memory_full_of_nan_is_never_seen(
    isa: str, precision: Precision, window: int | None, length: int
) -> None:
    model = AttentionModel(Heads(3, 1, 24, window=window), num_ids=100)
    clean = model.make_reader(precision=precision, isa=isa)
    ids = list(range(length))
    wanted = model.run(clean, [(ids, 0, [0, 1])])
    dirty_model = AttentionModel(Heads(3, 1, 24, window=window), num_ids=100)
    dirty_model.embedding[99] = float("nan")
    dirty = dirty_model.make_reader(precision=precision, isa=isa)
    assert np.isnan(dirty_model.run(dirty, [([99] * 32, 0, [0, 1])])).all()
    assert np.array_equal(bits(dirty_model.run(dirty, [(ids, 0, [0, 1])])), bits(wanted))
    one_by_one = in_chunks(dirty_model, dirty, ids, [1] * length, [0, 1])
    assert np.array_equal(bits(one_by_one), bits(wanted))


@EVERY_ISA
@EVERY_PRECISION
def test_a_nan_token_spoils_only_those_that_see_it(isa: str, precision: Precision) -> None:
    model = AttentionModel(Heads(3, 1, 16), num_ids=100)
    model.embedding[99] = float("nan")
    reader = model.make_reader(precision=precision, isa=isa)
    ids = [*range(20), 99, *range(21, 40)]
    got = model.run(reader, [(ids, 0, [0, 1, 2])])
    clean = model.run(reader, [(list(range(20)), 0, [3, 4])])
    assert np.array_equal(bits(got[:20]), bits(clean))
    assert np.isnan(got[20:]).all()


@EVERY_ISA
@EVERY_PRECISION
@pytest.mark.parametrize("block_size", [16, 32])
def test_a_copied_block_holds_the_same_keys(isa: str, precision: Precision, block_size: int) -> None:
    model = AttentionModel(Heads(3, 1, 16), num_ids=100)
    reader = model.make_reader(precision=precision, isa=isa, block_size=block_size)
    ids = list(range(10))
    model.run(reader, [(ids, 0, [4])])
    reader.copy_block(0, 4, 9)
    from_copy = model.run(reader, [([20], 10, [9])])
    assert np.array_equal(bits(from_copy), bits(model.run(reader, [([20], 10, [4])])))


@EVERY_ISA
def test_values_at_the_ends_of_f16_become_infinite_or_subnormal(isa: str) -> None:
    model = AttentionModel(Heads(1, 1, 2), num_ids=4)
    model.embedding[0, -2:] = (1e6, 0)
    model.embedding[1, -2:] = (6e-8, -7e-6)
    reader = model.make_reader(precision="f16", isa=isa)
    assert model.run(reader, [([0], 0, [0])])[0, 0] == np.inf
    expected = np.array([6e-8, -7e-6], np.float16).astype(np.float32)
    assert np.array_equal(model.run(reader, [([1], 0, [0])])[0], expected)
