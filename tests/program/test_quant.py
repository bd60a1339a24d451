"""Every tensor type against hand-built blocks, and against the gguf package on random bytes."""

import numpy as np
import numpy.typing as npt
import pytest

from twostroke.program.quant import TENSOR_TYPES, Arithmetic, FloatArray, dequantise, to_bf16

F16_EDGES = [
    0x0000,
    0x8000,
    0x0001,
    0x83FF,
    0x7C00,
    0xFC00,
    0x7E00,
    0x3C00,
    0x7BFF,
]  # zeros, denormals, inf, NaN, 1, max


def random_bytes(tensor_type: str, *, rows: int, blocks: int, seed: int) -> npt.NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, rows * blocks * TENSOR_TYPES[tensor_type].block_bytes, dtype=np.uint8)


def f16_bytes(value: float) -> list[int]:
    return list(np.float16(value).tobytes())


def test_every_quantised_type_is_computed_in_int8() -> None:
    int8 = {name for name, row in TENSOR_TYPES.items() if row.arithmetic is Arithmetic.INT8}
    assert int8 == {name for name, row in TENSOR_TYPES.items() if row.block_size > 1}
    assert {name for name, row in TENSOR_TYPES.items() if row.arithmetic is Arithmetic.FP32} == {"F32", "F16"}


def test_num_bytes_counts_whole_blocks() -> None:
    assert TENSOR_TYPES["Q4_K"].num_bytes((3, 512)) == 3 * 2 * 144
    assert TENSOR_TYPES["F32"].num_bytes((7,)) == 28
    with pytest.raises(AssertionError, match="not a multiple"):
        TENSOR_TYPES["Q8_0"].num_bytes((2, 33))


def test_wrong_byte_count_is_a_broken_invariant_with_numbers() -> None:
    with pytest.raises(AssertionError, match="33 bytes, wants 34"):
        dequantise("Q8_0", np.zeros(33, np.uint8), (1, 32))


def test_q8_0_is_scale_times_signed_byte() -> None:
    data = np.array(f16_bytes(0.5) + [2, 0xFF] + [0] * 30, np.uint8)
    values = dequantise("Q8_0", data, (1, 32))
    assert values[0, :3].tolist() == [1.0, -0.5, 0.0]


def test_q4_0_low_nibbles_are_the_first_half() -> None:
    data = np.array(f16_bytes(2.0) + [0x9F] + [0x88] * 15, np.uint8)
    values = dequantise("Q4_0", data, (1, 32))[0]
    assert values[0] == 14.0
    assert values[16] == 2.0
    assert np.count_nonzero(values) == 2


def test_q4_1_adds_the_minimum() -> None:
    data = np.array(f16_bytes(1.0) + f16_bytes(-3.0) + [0x21] + [0] * 15, np.uint8)
    values = dequantise("Q4_1", data, (1, 32))[0]
    assert values[[0, 16, 1]].tolist() == [-2.0, -1.0, -3.0]


def test_q5_takes_its_fifth_bit_from_the_mask() -> None:
    mask = [0b1, 0, 0b10, 0]  # elements 0 and 17
    q5_0 = dequantise("Q5_0", np.array(f16_bytes(1.0) + mask + [0] * 16, np.uint8), (32,))
    assert np.flatnonzero(q5_0 == 0).tolist() == [0, 17]
    q5_1 = dequantise("Q5_1", np.array(f16_bytes(1.0) + f16_bytes(0.5) + mask + [0] * 16, np.uint8), (32,))
    assert q5_1[[0, 1, 17]].tolist() == [16.5, 0.5, 16.5]


def test_q6_k_sub_blocks_have_their_own_signed_scale() -> None:
    block = np.zeros(210, np.uint8)
    block[192:208] = np.arange(16, dtype=np.int8).view(np.uint8)
    block[207] = 0xFF  # -1
    block[208:210] = f16_bytes(1.0)
    values = dequantise("Q6_K", block, (256,)).reshape(16, 16)
    assert values[1].tolist() == [-32.0] * 16
    assert values[15].tolist() == [32.0] * 16


def test_f16_and_bf16_are_widened_exactly() -> None:
    assert dequantise("F16", np.array(f16_bytes(1.5), np.uint8), (1,))[0] == 1.5
    assert dequantise("BF16", np.array([0xC0, 0x3F], np.uint8), (1,))[0] == 1.5


def test_f32_gives_a_copy_not_a_view_of_the_file() -> None:
    data = np.ones(2, np.float32).view(np.uint8)
    values = dequantise("F32", data, (2,))
    values[0] = 5
    assert data.view(np.float32)[0] == 1


@pytest.mark.parametrize("tensor_type", TENSOR_TYPES)
def test_a_read_only_unaligned_view_is_fine(tensor_type: str) -> None:
    row = TENSOR_TYPES[tensor_type]
    data = np.zeros(row.block_bytes + 1, np.uint8)
    data.setflags(write=False)
    assert dequantise(tensor_type, data[1:], (1, row.block_size)).shape == (1, row.block_size)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(1.0, 1.0), (1.00390625, 1.0), (1.01171875, 1.015625), (-1.00390625, -1.0), (3.4e38, float("inf")), (0.0, 0.0)],
)
def test_bf16_rounds_to_nearest_even(value: float, rounded: float) -> None:
    assert to_bf16(np.array([value], np.float32))[0] == np.float32(rounded)


def test_bf16_keeps_nan_and_infinity() -> None:
    values = to_bf16(np.array([np.nan, np.inf, -np.inf], np.float32))
    assert np.isnan(values[0])
    assert values[1:].tolist() == [np.inf, -np.inf]


@pytest.mark.oracle
def test_bf16_agrees_with_torch() -> None:
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(1).integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    want = torch.from_numpy(values.copy()).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(to_bf16(values), want)


@pytest.mark.oracle
@pytest.mark.parametrize("tensor_type", TENSOR_TYPES)
def test_bits_equal_the_gguf_package_on_random_bytes(tensor_type: str) -> None:
    gguf = pytest.importorskip("gguf")
    row = TENSOR_TYPES[tensor_type]
    blocks = 64 // row.block_size if row.block_size < 64 else 3
    data = random_bytes(tensor_type, rows=40, blocks=blocks, seed=7)
    shape = (40, blocks * row.block_size)
    with np.errstate(all="ignore"):
        want = gguf.dequantize(data.reshape(40, -1), gguf.GGMLQuantizationType[tensor_type])
    assert_same_bits(dequantise(tensor_type, data, shape), want)


@pytest.mark.oracle
@pytest.mark.parametrize("edge", F16_EDGES)
@pytest.mark.parametrize("tensor_type", [name for name in TENSOR_TYPES if name.startswith("Q")])
def test_bits_equal_the_gguf_package_for_edge_scales(tensor_type: str, edge: int) -> None:
    gguf = pytest.importorskip("gguf")
    row = TENSOR_TYPES[tensor_type]
    data = random_bytes(tensor_type, rows=4, blocks=1, seed=3).reshape(4, -1)
    scale_at = [208] if tensor_type == "Q6_K" else [0] if tensor_type in {"Q8_0", "Q4_0", "Q5_0"} else [0, 2]
    for offset in scale_at:
        data[:, offset : offset + 2] = np.array([edge], np.uint16).view(np.uint8)
    with np.errstate(all="ignore"):
        want = gguf.dequantize(data, gguf.GGMLQuantizationType[tensor_type])
    assert_same_bits(dequantise(tensor_type, data.reshape(-1), (4, row.block_size)), want)


def assert_same_bits(got: FloatArray, want: FloatArray) -> None:
    """Equal bits, but any NaN equals any NaN: its payload is the processor's choice."""
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got[~nan].view(np.uint32), want[~nan].view(np.uint32))
