"""The reference reader: each op against its formula in float64, and the same answer however a step is cut."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from tests.builders_sources import VOCAB, make_source
from tests.program.step_builders import BLOCK_SIZE, make_reader, make_step, run_whole
from twostroke.errors import KernelError
from twostroke.model.families import FAMILIES
from twostroke.program.op import (
    Activation,
    AttendAttrs,
    GluAttrs,
    RmsNormAttrs,
    RopeAttrs,
    RopeStyle,
    ScaleAttrs,
    SoftcapAttrs,
)
from twostroke.program.program import RopeTable
from twostroke.program.quant import FloatArray, to_bf16
from twostroke.program.reader import KVSpec, Precision, Reader
from twostroke.program.reference import (
    A8_SMALLEST,
    BF16_ROUNDING,
    ReferenceReader,
    attend,
    glu,
    linear,
    quantise_a8,
    rmsnorm,
    rope,
    scale,
    softcap,
)

IDS = [int(token_id) for token_id in np.random.default_rng(5).integers(0, VOCAB, 40)]
FINITE = hnp.arrays(np.float32, (2, 64), elements=st.floats(-100, 100, width=32))


def random_array(*shape: int, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ops


def test_rmsnorm_divides_each_group_by_its_root_mean_square() -> None:
    x, weight = random_array(3, 8), random_array(4, seed=1)
    got = rmsnorm(x, weight, RmsNormAttrs(eps=0.5, group=4))
    for token in range(3):
        for start in (0, 4):
            run = x[token, start : start + 4].astype(np.float64)
            want = run / math.sqrt(np.mean(run**2) + 0.5) * weight
            np.testing.assert_allclose(got[token, start : start + 4], want, rtol=1e-6)


def test_linear_is_rows_times_weight_rows_plus_bias() -> None:
    x, weight, bias = random_array(2, 4), random_array(3, 4, seed=1), random_array(3, seed=2)
    np.testing.assert_allclose(linear(x, weight, None), x @ weight.T)
    np.testing.assert_allclose(linear(x, weight, bias)[1, 2], np.dot(x[1], weight[2]) + bias[2], rtol=1e-6)


@pytest.mark.parametrize("style", RopeStyle)
def test_rope_turns_pairs_as_complex_numbers(style: RopeStyle) -> None:
    table = RopeTable("rope", (1.0, 0.25), 1.0)
    attrs = RopeAttrs(num_heads=2, head_dim=6, rotary_dim=4, style=style, table=0)
    x = random_array(3, 12)
    positions = np.array([0, 7, 3])
    got = rope(x, positions, table, attrs).reshape(3, 2, 6)
    heads = x.reshape(3, 2, 6).astype(np.float64)
    pairs = [(0, 2), (1, 3)] if style is RopeStyle.HALVES else [(0, 1), (2, 3)]
    for (first, second), inv_freq in zip(pairs, table.inv_freq, strict=True):
        turned = (heads[..., first] + 1j * heads[..., second]) * np.exp(1j * positions * inv_freq)[:, None]
        np.testing.assert_allclose(got[..., first], turned.real, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got[..., second], turned.imag, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(got[..., 4:], x.reshape(3, 2, 6)[..., 4:])


def test_rope_keeps_lengths_but_for_its_magnitude() -> None:
    attrs = RopeAttrs(num_heads=1, head_dim=4, rotary_dim=4, style=RopeStyle.HALVES, table=0)
    x = random_array(5, 4)
    got = rope(x, np.arange(5) * 1000, RopeTable("rope", (1.0, 0.1), 1.5), attrs)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1.5 * np.linalg.norm(x, axis=1), rtol=1e-5)


def test_attend_is_a_softmax_over_visible_keys() -> None:
    attrs = AttendAttrs(group=0, layer=0, num_heads=4, num_kv_heads=2, head_dim=3, scale=0.7, window=None, softcap=None)
    q, k, v = random_array(2, 12), random_array(5, 2, 3, seed=1), random_array(5, 2, 3, seed=2)
    visible = np.array([[True, True, False, False, False], [True, True, True, False, True]])
    got = attend(q, k, v, visible=visible, attrs=attrs).reshape(2, 4, 3)
    for token in range(2):
        for head in range(4):
            scores = q.reshape(2, 4, 3)[token, head] @ k[visible[token], head // 2].T * 0.7
            weights = np.exp(scores) / np.exp(scores).sum()
            np.testing.assert_allclose(got[token, head], weights @ v[visible[token], head // 2], rtol=1e-5, atol=1e-6)


def test_attend_ignores_what_masked_keys_hold() -> None:
    attrs = AttendAttrs(group=0, layer=0, num_heads=1, num_kv_heads=1, head_dim=2, scale=1.0, window=None, softcap=None)
    k, v = np.full((2, 1, 2), 1e30, np.float32), np.array([[[1, 2]], [[1e30, 1e30]]], np.float32)
    k[0] = 1
    got = attend(np.ones((1, 2), np.float32), k, v, visible=np.array([[True, False]]), attrs=attrs)
    assert got.tolist() == [[1.0, 2.0]]


def test_attend_caps_scores_before_the_softmax() -> None:
    attrs = AttendAttrs(group=0, layer=0, num_heads=1, num_kv_heads=1, head_dim=1, scale=1.0, window=None, softcap=2.0)
    k, v = np.array([[[100.0]], [[0.0]]], np.float32), np.array([[[1.0]], [[0.0]]], np.float32)
    got = attend(np.ones((1, 1), np.float32), k, v, visible=np.array([[True, True]]), attrs=attrs)
    assert got[0, 0] == pytest.approx(math.exp(2) / (math.exp(2) + 1), rel=1e-6)


def test_glu_multiplies_the_activated_gate_with_up() -> None:
    gate, up = random_array(2, 5), random_array(2, 5, seed=1)
    wide = gate.astype(np.float64)
    silu = wide / (1 + np.exp(-wide)) * up
    np.testing.assert_allclose(glu(gate, up, GluAttrs(Activation.SILU)), silu, rtol=1e-5, atol=1e-6)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    gelu = 0.5 * wide * (1 + np.tanh(inner)) * up
    np.testing.assert_allclose(glu(gate, up, GluAttrs(Activation.GELU_TANH)), gelu, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", Activation)
def test_glu_survives_huge_gates(activation: Activation) -> None:
    got = glu(np.array([[-1e4, 1e4]], np.float32), np.ones((1, 2), np.float32), GluAttrs(activation))
    assert got.tolist() == [[0.0, 1e4]]


def test_scale_and_softcap() -> None:
    x = np.array([[2.0, -1000.0]], np.float32)
    assert scale(x, ScaleAttrs(0.5)).tolist() == [[1.0, -500.0]]
    np.testing.assert_allclose(softcap(x, SoftcapAttrs(30.0)), [[30 * math.tanh(2 / 30), -30.0]], rtol=1e-6)


# int8 activations


@given(FINITE)
def test_a8_is_within_half_a_step_of_the_input(x: FloatArray) -> None:
    amax = np.abs(x.reshape(2, 2, 32)).max(axis=2, keepdims=True)
    error = np.abs(quantise_a8(x) - x).reshape(2, 2, 32)
    assert (error <= amax / 127 * np.float32(0.5001) + A8_SMALLEST).all()


@given(FINITE)
def test_a8_of_its_own_output_changes_at_most_rounding(x: FloatArray) -> None:
    once = quantise_a8(x)
    np.testing.assert_allclose(quantise_a8(once), once, rtol=1e-6, atol=1e-30)


def test_a8_levels_are_whole_numbers_from_minus_127_to_127() -> None:
    x = np.linspace(-1, 1, 32, dtype=np.float32)[None] * np.float32(12.7)
    levels = quantise_a8(x) / np.float32(0.1)
    np.testing.assert_allclose(levels, np.rint(levels), atol=1e-4)
    assert (levels.min(), levels.max()) == (pytest.approx(-127), pytest.approx(127))


def test_a8_keeps_zero_and_tiny_groups_zero_and_spoils_only_the_group_with_nan() -> None:
    x = random_array(1, 96)
    x[0, :32] = 1e-38
    x[0, 40] = np.inf
    got = quantise_a8(x)
    assert (got[0, :32] == 0).all()
    assert np.isnan(got[0, 32:64]).all()
    assert np.isfinite(got[0, 64:]).all()


@pytest.mark.parametrize("tensor_type", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_a8_stays_close_to_f32(tensor_type: str) -> None:
    source = make_source(tensor_type=tensor_type)
    exact = run_whole(*make_reader(source), IDS[:12])
    rounded = run_whole(*make_reader(source, activations="a8"), IDS[:12])
    difference = np.abs(exact - rounded).max() / np.abs(exact).max()
    if tensor_type in ("F32", "F16"):
        assert difference == 0
    else:
        assert 0 < difference < 0.1


def test_a8_rounds_activations_and_no_weights() -> None:
    source = make_source(tensor_type="Q5_0", shapes={"output.weight": None})
    _, exact = make_reader(source)
    _, rounded = make_reader(source, activations="a8")
    for name, weight in exact._weights.items():
        np.testing.assert_array_equal(rounded._weights[name], weight)


# the reader


def test_it_implements_the_protocol() -> None:
    _, reader = make_reader(make_source())
    as_reader: Reader = reader
    assert as_reader.kv_bytes_per_block == (2 * 2 * BLOCK_SIZE * 2 * 8 * 4,)
    as_reader.close()


@pytest.mark.parametrize(("precision", "element_bytes"), [("f32", 4), ("f16", 2), ("bf16", 2), ("int8", 1.5)])
def test_block_bytes_are_those_of_the_precision(precision: Precision, element_bytes: float) -> None:
    _, reader = make_reader(make_source("gemma3"), precision=precision)
    assert reader.kv_bytes_per_block == (2 * 1 * BLOCK_SIZE * 2 * 8 * element_bytes,) * 2


@pytest.mark.parametrize("precision", ["f32", "f16", "bf16", "int8"])
@pytest.mark.parametrize("architecture", FAMILIES)
def test_chunked_equals_whole(architecture: str, precision: Precision) -> None:
    program, reader = make_reader(make_source(architecture), precision=precision)
    whole = run_whole(program, reader, IDS).copy()
    program, reader = make_reader(make_source(architecture), precision=precision)
    parts = []
    for start, end in ((0, 17), (17, 18), (18, 19), (19, 40)):
        parts.append(reader.run(make_step(program, [(IDS[start:end], start, [0, 1, 2])])))
    atol = {"f32": 1e-4, "f16": 4e-3, "bf16": 4e-2, "int8": 4e-2}[precision]  # a last bit may tip a rounding of K or V
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-4, atol=atol)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_rows_of_one_step_do_not_see_each_other(architecture: str) -> None:
    first, second = IDS[:20], IDS[20:25]
    program, reader = make_reader(make_source(architecture))
    together = reader.run(make_step(program, [(first, 0, [5, 2]), (second, 0, [7])]))
    for token_ids, rows in ((first, slice(0, 20)), (second, slice(20, 25))):
        program, alone = make_reader(make_source(architecture))
        np.testing.assert_allclose(together[rows], run_whole(program, alone, token_ids), rtol=1e-4, atol=1e-5)


def test_the_place_of_blocks_does_not_matter() -> None:
    program, reader = make_reader(make_source())
    first = run_whole(program, reader, IDS, blocks=[0, 1, 2]).copy()
    np.testing.assert_array_equal(run_whole(program, reader, IDS, blocks=[7, 3, 5]), first)


def test_a_copied_block_continues_like_its_source() -> None:
    program, reader = make_reader(make_source("gemma3"))
    run_whole(program, reader, IDS[:20], blocks=[0, 1])
    for group in range(len(program.kv_groups)):
        reader.copy_block(group, 1, 6)
    there = reader.run(make_step(program, [([3], 20, [0, 1])])).copy()
    np.testing.assert_array_equal(reader.run(make_step(program, [([3], 20, [0, 6])])), there)


def test_a_window_never_reads_blanked_blocks() -> None:
    program, reader = make_reader(make_source("gemma3", metadata={"gemma3.attention.sliding_window_pattern": 3}))
    assert [group.window for group in program.kv_groups] == [4]
    run_whole(program, reader, IDS[:36], blocks=[0, 1, 2])
    there = reader.run(make_step(program, [([3], 36, [0, 1, 2])])).copy()
    np.testing.assert_array_equal(reader.run(make_step(program, [([3], 36, [-1, -1, 2])])), there)


def test_only_selected_tokens_get_logits() -> None:
    program, reader = make_reader(make_source())
    whole = run_whole(program, reader, IDS[:9]).copy()
    program, reader = make_reader(make_source())
    some = reader.run(make_step(program, [(IDS[:9], 0, [0])], selected=[2, 8]))
    np.testing.assert_allclose(some, whole[[2, 8]], rtol=1e-5, atol=1e-6)
    none = reader.run(make_step(program, [(IDS[:9], 0, [0])], selected=[]))
    assert none.shape == (0, VOCAB)


def test_precision_of_the_cache_changes_the_answer_a_little() -> None:
    exact = run_whole(*make_reader(make_source()), IDS)
    f16 = np.abs(run_whole(*make_reader(make_source(), precision="f16"), IDS) - exact).max()
    bf16 = np.abs(run_whole(*make_reader(make_source(), precision="bf16"), IDS) - exact).max()
    assert 0 < f16 < bf16 < 0.1 * np.abs(exact).max()


def test_k_beyond_f16_becomes_infinite_without_a_warning() -> None:
    source = make_source("qwen2")
    program, reader = make_reader(source, precision="f16")
    reader._weights["blk.0.attn_v.bias"][:] = 1e6
    assert np.isnan(run_whole_quietly(program, reader)).any()


def run_whole_quietly(program, reader) -> FloatArray:  # type: ignore[no-untyped-def]
    with np.errstate(invalid="ignore"):
        return run_whole(program, reader, IDS[:3])


def test_a_tied_head_uses_the_embedding() -> None:
    program, reader = make_reader(make_source(shapes={"output.weight": None}))
    assert program.instrs[-1].weights == ("token_embd.weight",)
    assert run_whole(program, reader, IDS[:3]).shape == (3, VOCAB)


def test_weights_may_be_arrays() -> None:
    source = make_source()
    program, reader = make_reader(source)
    arrays = {name: values.copy() for name, values in reader._weights.items()}
    other = ReferenceReader(program, arrays, kv=KVSpec("f32", 16, (4,)))
    np.testing.assert_array_equal(run_whole(program, other, IDS[:5]), run_whole(program, reader, IDS[:5]))


def test_bf16_rounding_of_attention_is_seen_only_by_a8_over_a_bf16_cache() -> None:
    attrs = AttendAttrs(group=0, layer=0, num_heads=1, num_kv_heads=1, head_dim=8, scale=1.0, window=None, softcap=None)
    q, k, v = random_array(1, 8), random_array(6, 1, 8, seed=1), random_array(6, 1, 8, seed=2)
    visible = np.ones((1, 6), bool)
    plain = attend(q, k, v, visible=visible, attrs=attrs)
    rounded = attend(q, k, v, visible=visible, attrs=attrs, rounding=BF16_ROUNDING)
    assert 0 < np.abs(plain - rounded).max() < 0.02
    np.testing.assert_allclose(attend(to_bf16(q), k, v, visible=visible, attrs=attrs), rounded, atol=0.01)


# bad steps


@pytest.mark.parametrize(
    ("ids", "position", "blocks", "message"),
    [
        ([VOCAB], 0, [0], "token ids reach 40..40 of 40"),
        ([-1], 0, [0], "token ids reach -1"),
        ([], 0, [0], r"rows \[0, 0\] do not cover 0 tokens"),
        ([1], 16, [0], "position 16 needs 2 blocks, the row's table has 1"),
        ([1], 0, [8], "position 0 lies in block 8 of 8"),
        ([1], 0, [-1], "position 0 lies in block -1 of 8"),
    ],
)
def test_a_bad_step_is_an_error_with_the_numbers(
    ids: list[int], position: int, blocks: list[int], message: str
) -> None:
    program, reader = make_reader(make_source())
    with pytest.raises(KernelError, match=message):
        reader.run(make_step(program, [(ids, position, blocks)]))


def test_a_step_of_the_wrong_shape_is_an_error() -> None:
    program, reader = make_reader(make_source())
    step = make_step(program, [([1, 2], 0, [0])])
    with pytest.raises(KernelError, match="0 block tables for 1 KV groups"):
        reader.run(replace(step, block_tables=()))
    with pytest.raises(KernelError, match=r"selected tokens \[2\] of 2"):
        reader.run(replace(step, selected=np.array([2], np.int32)))
    with pytest.raises(KernelError, match="are not 1 rows with tokens"):
        reader.run(replace(step, row_starts=np.array([0, 0, 2], np.int32)))
