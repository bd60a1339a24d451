"""int8 KV on every ISA: the integers of the definition, whatever a head holds and however long it is."""

import numpy as np
import pytest

from tests.native.program_builders import AttentionModel, Heads
from twostroke import _native
from twostroke.program.kv_precision import kv_head_bytes
from twostroke.program.quant import FloatArray
from twostroke.program.reader import Precision

ISAS = _native.usable_isas()
EVERY_ISA = pytest.mark.parametrize("isa", ISAS)


def attended(model: AttentionModel, isa: str, length: int, precision: Precision = "int8") -> FloatArray:
    ids = list(range(length))
    return model.run(model.make_reader(precision=precision, isa=isa), [(ids, 0, list(range(-(-length // 16))))])


@EVERY_ISA
@pytest.mark.parametrize(
    ("head_dim", "num_kv_heads"),
    [
        (2, 5),
        (6, 2),
        (18, 1),
        (24, 5),
        (40, 2),
        (64, 5),
        (80, 2),
        (96, 2),
        (100, 1),
        (128, 2),
        (160, 1),
        (256, 1),
        (512, 1),
    ],
)
def test_every_head_size_is_right_and_heads_stay_apart(isa: str, head_dim: int, num_kv_heads: int) -> None:
    model = AttentionModel(Heads(num_kv_heads, num_kv_heads, head_dim), num_ids=40)
    got = attended(model, isa, 37)
    np.testing.assert_allclose(got, model.expect(range(37), "int8"), atol=1e-3)
    if num_kv_heads > 1:  # the last head a thousand times larger: the first must not notice
        for end in (2 * num_kv_heads * head_dim, 3 * num_kv_heads * head_dim):
            model.embedding[:, end - head_dim : end] *= 1000
        assert np.array_equal(attended(model, isa, 37)[:, :head_dim], got[:, :head_dim])


@pytest.mark.parametrize("head_dim", [18, 64, 80])
@pytest.mark.parametrize("window", [None, 20])
def test_isas_differ_by_their_exp_alone(head_dim: int, window: int | None) -> None:
    model = AttentionModel(Heads(3, 1, head_dim, window=window), num_ids=300)
    first, *others = (attended(model, isa, 300) for isa in ISAS)
    for other in others:
        np.testing.assert_allclose(other, first, atol=3e-4)


@EVERY_ISA
def test_one_visible_key_comes_back_as_stored_to_the_last_bit_on_every_isa(isa: str) -> None:
    model = AttentionModel(Heads(3, 1, 24, window=1), num_ids=64)
    assert np.array_equal(attended(model, isa, 40), attended(model, "portable", 40))


@EVERY_ISA
@pytest.mark.parametrize("value", [0.0, -0.0, 3.5, 1e-20, 1e30])
def test_constant_values_come_back(isa: str, value: float) -> None:
    model = AttentionModel(Heads(2, 1, 16), num_ids=40)
    model.embedding[:, -16:] = value
    np.testing.assert_allclose(attended(model, isa, 33), value, rtol=1e-3)


@EVERY_ISA
@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_element_spoils_those_that_see_its_token_and_nobody_else(isa: str, part: str, bad: float) -> None:
    model = AttentionModel(Heads(3, 1, 16, window=10), num_ids=64)
    clean = attended(model, isa, 60)
    model.embedding[20, -32 if part == "key" else -1] = bad
    got = attended(model, isa, 60)
    assert np.isnan(got[20:30]).all()
    assert np.array_equal(got[:20], clean[:20])
    assert np.array_equal(got[30:], clean[30:])


@EVERY_ISA
@pytest.mark.parametrize("size", [1e-4, 1.0, 448.0, 500.0, 1e5])
def test_no_size_of_values_is_too_large_or_too_small(isa: str, size: float) -> None:
    model = AttentionModel(Heads(1, 1, 32), num_ids=64)
    model.embedding[:, -32:] *= np.float32(size)
    np.testing.assert_allclose(attended(model, isa, 60), attended(model, isa, 60, "f32"), atol=0.05 * size)


@EVERY_ISA
def test_a_key_channel_a_hundred_times_larger_costs_little(isa: str) -> None:
    model = AttentionModel(Heads(1, 1, 64), num_ids=300)
    model.embedding[:, 64 + 7] *= 100
    model.embedding[:, 7] /= 100
    model.embedding[:, -64:] = 0
    model.embedding[:300:2, -64:] = 1  # each output is the weight of the even tokens
    exact = attended(model, isa, 300, "f32")
    np.testing.assert_allclose(attended(model, isa, 300), exact, atol=0.05)


@pytest.mark.parametrize("head_dim", [2, 18, 64, 100])
@pytest.mark.parametrize("block_size", [16, 32])
def test_bytes_of_a_block_are_those_the_sizing_counts(head_dim: int, block_size: int) -> None:
    store = _native.KVStore("int8", block_size, [(3, 2, head_dim, 1)])
    assert store.block_bytes(0) == 2 * 3 * 2 * block_size * kv_head_bytes("int8", head_dim)


def test_heads_beyond_what_kernels_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="head_dim is 514, int8 KV takes at most 512: use bf16"):
        _native.KVStore("int8", 16, [(1, 1, 514, 1)])
