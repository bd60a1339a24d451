"""Linear in every arithmetic: right within its stated bound, and the same bits whatever is computed beside it."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from tests.native.weight_builders import INT8_TYPES, ISAS, QUANTS, linear_twin, make_bytes, make_input, make_weight
from twostroke import _native
from twostroke.program.quant import TENSOR_TYPES, Arithmetic, dequantise

TYPES = list(TENSOR_TYPES)
EPSILON = 2.0**-24
# Odd numbers of columns and of 32-wide blocks; two super-blocks.
COLS = {name: {1: 289, 32: 288, 256: 512}[row.block_size] for name, row in TENSOR_TYPES.items()}
EVERY_ISA = pytest.mark.parametrize("isa", ISAS)
EVERY_TYPE = pytest.mark.parametrize("tensor_type", TYPES)

Floats = npt.NDArray[np.float32]


def bits(x: Floats) -> npt.NDArray[np.uint32]:
    return x.view(np.uint32)


def chain_length(tensor_type: str, cols: int) -> int:
    """Roundings along the fp32 chain of one output."""
    arithmetic = TENSOR_TYPES[tensor_type].arithmetic
    return 4 * (cols // 32) if arithmetic is Arithmetic.INT8 else 2 * cols


def assert_near_twin(got: Floats, tensor_type: str, w: Floats, x: Floats) -> None:
    expected, magnitude = linear_twin(tensor_type, w, x)
    bound = chain_length(tensor_type, w.shape[1]) * EPSILON * magnitude + 1e-30
    excess = np.abs(got - expected) - bound
    assert (excess <= 0).all(), f"{tensor_type}: off by {np.abs(got - expected).max()}, allowed {bound.min()}"


@EVERY_ISA
@pytest.mark.parametrize("rows", [1, 16, 31, 32, 33, 48, 100])
@EVERY_TYPE
def test_linear_is_near_its_float64_twin(tensor_type: str, rows: int, isa: str) -> None:
    weight, w = make_weight(tensor_type, rows, COLS[tensor_type])
    x = make_input(7, w.shape[1])
    assert_near_twin(_native.linear(weight, x, isa), tensor_type, w, x)


@EVERY_ISA
@pytest.mark.parametrize("num_blocks", [1, 2, 3, 7, 16, 17, 33])
@EVERY_TYPE
def test_every_length_is_summed_to_its_end(tensor_type: str, num_blocks: int, isa: str) -> None:
    weight, w = make_weight(tensor_type, 33, num_blocks * TENSOR_TYPES[tensor_type].block_size)
    x = make_input(3, w.shape[1])
    assert_near_twin(_native.linear(weight, x, isa), tensor_type, w, x)


@given(st.sampled_from(["F32", "F16", "BF16"]), st.sampled_from(ISAS), st.integers(1, 70), st.integers(1, 300))
@settings(max_examples=60)
def test_float_types_take_any_shape(tensor_type: str, isa: str, rows: int, cols: int) -> None:
    weight, w = make_weight(tensor_type, rows, cols)
    x = make_input(2, cols)
    assert_near_twin(_native.linear(weight, x, isa), tensor_type, w, x)


@EVERY_ISA
@pytest.mark.parametrize("tensor_type", INT8_TYPES)
def test_integer_dots_are_exact_when_scales_are_one(tensor_type: str, isa: str) -> None:
    rows, cols = 40, {32: 320, 256: 512}[TENSOR_TYPES[tensor_type].block_size]
    data = make_bytes(tensor_type, rows, cols, scale=1.0)
    x = np.random.default_rng(5).integers(-127, 128, (5, cols)).astype(np.float32)
    x[:, ::32] = 127  # amax 127 in every block: scale 1
    w = dequantise(tensor_type, data, (rows, cols)).astype(np.int64)
    got = _native.linear(_native.pack_weight(tensor_type, data, rows, cols), x, isa)
    np.testing.assert_array_equal(got.astype(np.int64), x.astype(np.int64) @ w.T)


@EVERY_ISA
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("tensor_type", INT8_TYPES)
def test_extreme_weights_and_activations_do_not_saturate(tensor_type: str, sign: int, isa: str) -> None:
    cols = 2 * TENSOR_TYPES[tensor_type].block_size
    for fill in (0x00, 0x7F, 0x80, 0xFF):
        data = make_bytes(tensor_type, 32, cols, scale=1.0)
        blocks = data.reshape(-1, TENSOR_TYPES[tensor_type].block_bytes)
        blocks[:, QUANTS[tensor_type]] = fill
        w = dequantise(tensor_type, data, (32, cols)).astype(np.float64)
        x = np.full((2, cols), sign * 127, np.float32)
        got = _native.linear(_native.pack_weight(tensor_type, data, 32, cols), x, isa)
        # scales of scales make products that float32 does not hold exactly
        rtol = 8 * EPSILON if TENSOR_TYPES[tensor_type].block_size == 256 else 0
        np.testing.assert_allclose(got, x.astype(np.float64) @ w.T, rtol=rtol)


@pytest.mark.parametrize("tokens", [*range(1, 21), 31, 97, 131])
@EVERY_ISA
@EVERY_TYPE
def test_a_token_has_the_same_bits_in_any_company(tensor_type: str, isa: str, tokens: int) -> None:
    weight, w = make_weight(tensor_type, 33, COLS[tensor_type])
    x = make_input(tokens, w.shape[1])
    together = _native.linear(weight, x, isa)
    alone = np.concatenate([_native.linear(weight, x[t : t + 1], isa) for t in range(tokens)])
    np.testing.assert_array_equal(bits(together), bits(alone))


@pytest.mark.parametrize("num_blocks", [8, 31, 32, 33, 72])
@EVERY_ISA
@pytest.mark.parametrize("tensor_type", INT8_TYPES)
def test_many_tokens_add_their_pieces_of_a_long_row_in_order(tensor_type: str, isa: str, num_blocks: int) -> None:
    block_size = TENSOR_TYPES[tensor_type].block_size
    weight, w = make_weight(tensor_type, 47, -(-num_blocks * 32 // block_size) * block_size)
    x = make_input(35, w.shape[1])
    together = _native.linear(weight, x, isa)
    assert_near_twin(together, tensor_type, w, x)
    few = np.concatenate([_native.linear(weight, x[t : t + 5], isa) for t in range(0, 35, 5)])
    np.testing.assert_array_equal(bits(together), bits(few))


@EVERY_ISA
@EVERY_TYPE
def test_permuting_rows_permutes_outputs(tensor_type: str, isa: str) -> None:
    rows, cols = 75, COLS[tensor_type]
    data = make_bytes(tensor_type, rows, cols)
    order = np.random.default_rng(3).permutation(rows)
    moved = np.ascontiguousarray(data.reshape(rows, -1)[order]).ravel()
    x = make_input(5, cols)
    straight = _native.linear(_native.pack_weight(tensor_type, data, rows, cols), x, isa)
    permuted = _native.linear(_native.pack_weight(tensor_type, moved, rows, cols), x, isa)
    np.testing.assert_array_equal(bits(permuted), bits(straight[:, order].copy()))


@EVERY_ISA
@EVERY_TYPE
def test_scaling_activations_by_a_power_of_two_scales_outputs_exactly(tensor_type: str, isa: str) -> None:
    weight, w = make_weight(tensor_type, 32, COLS[tensor_type])
    x = make_input(4, w.shape[1])
    np.testing.assert_array_equal(bits(_native.linear(weight, x * 8, isa)), bits(_native.linear(weight, x, isa) * 8))


@pytest.mark.skipif(len(ISAS) == 1, reason="this machine runs the portable kernels only")
@pytest.mark.parametrize("tokens", [1, 6, 13])
@pytest.mark.parametrize("tensor_type", INT8_TYPES)
def test_int8_has_the_same_bits_on_every_isa(tensor_type: str, tokens: int) -> None:
    weight, w = make_weight(tensor_type, 70, {32: 576, 256: 768}[TENSOR_TYPES[tensor_type].block_size])
    x = make_input(tokens, w.shape[1])
    first, *others = [_native.linear(weight, x, isa) for isa in ISAS]
    for other in others:
        np.testing.assert_array_equal(bits(other), bits(first))


@EVERY_ISA
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@EVERY_TYPE
def test_a_poisoned_token_spoils_no_other(tensor_type: str, poison: float, isa: str) -> None:
    weight, w = make_weight(tensor_type, 40, COLS[tensor_type])
    x = make_input(9, w.shape[1])
    clean = _native.linear(weight, x, isa)
    x[4, 17] = poison
    got = _native.linear(weight, x, isa)
    assert not np.isfinite(got[4]).any()
    others = [t for t in range(9) if t != 4]
    np.testing.assert_array_equal(bits(got[others]), bits(clean[others]))


@EVERY_ISA
@EVERY_TYPE
def test_zero_activations_give_zero(tensor_type: str, isa: str) -> None:
    weight, w = make_weight(tensor_type, 32, COLS[tensor_type])
    np.testing.assert_array_equal(_native.linear(weight, np.zeros((3, w.shape[1]), np.float32), isa), 0)


@EVERY_ISA
@pytest.mark.parametrize("tensor_type", INT8_TYPES)
def test_int8_activations_cost_about_half_a_percent(tensor_type: str, isa: str) -> None:
    weight, w = make_weight(tensor_type, 64, 1024)
    x = np.random.default_rng(8).standard_normal((16, 1024)).astype(np.float32)
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    error = np.linalg.norm(_native.linear(weight, x, isa) - exact) / np.linalg.norm(exact)
    assert error < 0.01  # measured 0.0055: amax of 32 normals is 2.1, rounding adds 2.1 / 127 / sqrt(12)


@EVERY_ISA
@pytest.mark.parametrize("tensor_type", TYPES)
def test_the_longest_row_fits_the_scratch(tensor_type: str, isa: str) -> None:
    weight, w = make_weight(tensor_type, 1, 2**18)
    x = make_input(6, 2**18)
    assert_near_twin(_native.linear(weight, x, isa), tensor_type, w, x)


@EVERY_ISA
def test_no_tokens_give_no_outputs(isa: str) -> None:
    weight, _ = make_weight("Q4_0", 40, 64)
    assert _native.linear(weight, np.zeros((0, 64), np.float32), isa).shape == (0, 40)


def test_an_isa_this_machine_lacks_is_refused() -> None:
    weight, _ = make_weight("F32", 1, 1)
    with pytest.raises(ValueError, match="no kernels for ISA 'abacus'"):
        _native.linear(weight, np.zeros((1, 1), np.float32), "abacus")
