"""Angles under each scaling: by hand where a formula fits in the head, else by the transformers library."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.builders_sources import FILE, make_source
from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.model.hyperparameters import Hyperparameters
from twostroke.model.rope_scaling import (
    DivisorScaling,
    LinearScaling,
    Llama3Scaling,
    NoScaling,
    RopeScaling,
    YarnScaling,
    read_rope_scaling,
    rope_table,
)
from twostroke.model.source import ModelSource, TensorRef, TensorTable

BASE = 10_000.0


def inv_freq(
    scaling: RopeScaling, *, rotary_dim: int = 64, base: float = BASE
) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(rope_table("rope", base=base, rotary_dim=rotary_dim, scaling=scaling).inv_freq)


def read(source: ModelSource, *, context_length: int = 64) -> RopeScaling:
    return read_rope_scaling(Hyperparameters(source), context_length=context_length, rotary_dim=8)


def read_keys(**keys: Any) -> RopeScaling:
    return read(make_source(metadata={f"llama.rope.scaling.{key}": value for key, value in keys.items()}))


def with_divisors(values: list[float], **metadata: Any) -> ModelSource:
    source = make_source(metadata=metadata)
    data = np.array(values, np.float32).view(np.uint8)
    divisors = TensorRef("rope_freqs.weight", "F32", (len(values),), data)
    tensors = {name: source.tensors[name] for name in source.tensors}
    return replace(source, tensors=TensorTable(FILE, tensors | {"rope_freqs.weight": divisors}))


def test_plain_angles_are_powers_of_the_base() -> None:
    assert inv_freq(NoScaling(), rotary_dim=4, base=100.0).tolist() == [1.0, pytest.approx(0.1)]


def test_every_angle_is_a_float32_value() -> None:
    values = inv_freq(YarnScaling(4.0, 32))
    np.testing.assert_array_equal(values, values.astype(np.float32).astype(np.float64))


def test_linear_divides_every_angle() -> None:
    np.testing.assert_allclose(inv_freq(LinearScaling(4.0)), inv_freq(NoScaling()) / 4, rtol=1e-7)


def test_divisors_divide_pair_by_pair() -> None:
    scaled = inv_freq(DivisorScaling((1.0, 8.0)), rotary_dim=4, base=100.0)
    assert scaled.tolist() == [1.0, pytest.approx(0.0125)]


def test_yarn_keeps_fast_pairs_divides_slow_ones_and_never_leaves_the_range() -> None:
    scaled, plain = inv_freq(YarnScaling(8.0, 4096)), inv_freq(NoScaling())
    assert scaled[0] == plain[0]
    assert scaled[-1] == pytest.approx(plain[-1] / 8)
    ratio = plain / scaled
    assert (np.diff(ratio) >= -1e-6).all()
    assert ((ratio > 0.999) & (ratio < 8.001)).all()


def test_yarn_raises_the_magnitude_with_the_factor() -> None:
    assert YarnScaling(4.0, 32).magnitude == pytest.approx(0.1 * math.log(4) + 1)
    assert YarnScaling(4.0, 32, attention_factor=0.5).magnitude == pytest.approx(0.5 * (0.1 * math.log(4) + 1))
    assert YarnScaling(1.0, 32).magnitude == 1.0
    assert rope_table("rope", base=BASE, rotary_dim=8, scaling=YarnScaling(4.0, 32)).magnitude > 1


def test_llama3_keeps_short_waves_divides_long_ones_and_mixes_between() -> None:
    scaling = Llama3Scaling(8.0, 8192, low_freq_factor=1.0, high_freq_factor=4.0)
    scaled, plain = inv_freq(scaling, base=500_000.0), inv_freq(NoScaling(), base=500_000.0)
    wavelength = 2 * np.pi / plain
    np.testing.assert_array_equal(scaled[wavelength < 8192 / 4], plain[wavelength < 8192 / 4])
    long = wavelength > 8192
    np.testing.assert_allclose(scaled[long], plain[long] / 8, rtol=1e-6)
    between = ~long & (wavelength > 8192 / 4)
    assert between.any()
    assert ((scaled[between] < plain[between]) & (scaled[between] > plain[between] / 8)).all()


@given(st.floats(1, 64), st.integers(8, 10**6), st.sampled_from([4, 24, 64, 128]), st.floats(1.5, 1e7))
def test_scaled_angles_stay_between_plain_and_divided(factor: float, context: int, dim: int, base: float) -> None:
    plain = inv_freq(NoScaling(), rotary_dim=dim, base=base)
    for scaling in (LinearScaling(factor), YarnScaling(factor, context), Llama3Scaling(factor, context, 1.0, 4.0)):
        scaled = inv_freq(scaling, rotary_dim=dim, base=base)
        assert np.isfinite(scaled).all()
        assert (scaled <= plain * 1.000001).all()
        assert (scaled >= plain / factor * 0.999999).all()


# reading


def test_a_silent_file_has_no_scaling() -> None:
    assert read(make_source()) == NoScaling()
    assert read_keys(type="none") == NoScaling()


def test_linear_by_the_new_and_the_old_key() -> None:
    assert read_keys(type="linear", factor=4.0) == LinearScaling(4.0)
    assert read_keys(factor=4.0) == LinearScaling(4.0)
    assert read(make_source(metadata={"llama.rope.scale_linear": 2.0})) == LinearScaling(2.0)


def test_yarn_with_every_key_and_with_the_least() -> None:
    full = read_keys(
        type="yarn",
        factor=4,
        original_context_length=32,
        yarn_beta_fast=16.0,
        yarn_beta_slow=2.0,
        attn_factor=0.9,
    )
    assert full == YarnScaling(4.0, 32, 16.0, 2.0, 0.9)
    assert read_keys(type="yarn", factor=4.0) == YarnScaling(4.0, 64)
    assert read_keys(type="yarn", factor=4.0, attn_factor=0.8) == YarnScaling(4.0, 64, attention_factor=0.8)


def test_yarn_magnitude_of_a_converted_config_is_the_whole_one() -> None:
    """Converters copy attention_factor, which replaces 0.1 ln(factor) + 1, to this key; attn_factor multiplies it."""
    assert read_keys(type="yarn", factor=4.0, yarn_attn_factor=0.9).magnitude == pytest.approx(0.9)
    assert read_keys(type="yarn", factor=4.0, yarn_attn_factor=0.9, attn_factor=2.0).magnitude == pytest.approx(1.8)
    assert read_keys(type="yarn", factor=4.0, attn_factor=2.0).magnitude == pytest.approx(2 * (0.1 * math.log(4) + 1))


def test_llama3_by_keys_and_by_divisors() -> None:
    keys = {"type": "llama3", "factor": 8.0, "original_context_length": 32}
    assert read_keys(**keys, low_freq_factor=1.0, high_freq_factor=4.0) == Llama3Scaling(8.0, 32, 1.0, 4.0)
    assert read(with_divisors([1.0, 1.0, 2.0, 8.0])) == DivisorScaling((1.0, 1.0, 2.0, 8.0))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"type": "linear"}, "rope.scaling.factor' is missing"),
        ({"type": "linear", "factor": 0.0}, "rope.scaling.factor' is 0: it must be from 1e-30 to 1e.30"),
        ({"type": "yarn", "factor": "4"}, "rope.scaling.factor' must be a number"),
        ({"type": "yarn", "factor": float("nan")}, "rope.scaling.factor' is nan"),
        ({"type": "yarn", "factor": 4.0, "yarn_beta_fast": -1.0}, "yarn_beta_fast' is -1"),
        ({"type": "llama3", "factor": 8.0}, "original_context_length' is missing"),
        (
            {
                "type": "llama3",
                "factor": 8.0,
                "original_context_length": 32,
                "low_freq_factor": 4.0,
                "high_freq_factor": 4.0,
            },
            "high_freq_factor' is 4: it must be above low_freq_factor 4",
        ),
        ({"type": 3}, "rope.scaling.type' must be a string"),
        ({"type": "yarn", "factor": 1e12}, "is 1e.12: it must be small enough for a context of 2147483647"),
        ({"type": "linear", "factor": 1e9, "original_context_length": 64}, "it makes one of 6.4e.10"),
        ({"type": "yarn", "factor": 2.0, "yarn_beta_slow": 5e-324}, "yarn_beta_slow' is 4.94.*: it must be from 1e-30"),
        ({"type": "yarn", "factor": 2.0, "yarn_beta_fast": 1e308}, "yarn_beta_fast' is 1e.308: it must be from 1e-30"),
    ],
)
def test_a_wrong_setting_names_its_key(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        read_keys(**keys)


@pytest.mark.parametrize("kind", ["longrope", "dynamic", "blah", ""])
def test_an_unknown_kind_is_an_error_never_none(kind: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"'{kind}'; supported are none, linear, yarn, llama3"):
        read_keys(type=kind)


@pytest.mark.parametrize("values", [[1.0, 0.0, 1.0, 1.0], [1.0, -1.0, 1.0, 1.0], [math.nan] * 4, [math.inf] * 4])
def test_divisors_must_be_finite_and_above_zero(values: list[float]) -> None:
    with pytest.raises(ModelFileError, match=r"rope_freqs\.weight holds"):
        read(with_divisors(values))


def test_divisors_must_be_one_per_pair() -> None:
    with pytest.raises(ModelFileError, match=r"rope_freqs.weight has shape \[3\], the model needs \[4\]"):
        read(with_divisors([1.0, 1.0, 1.0]))


def test_divisors_and_another_scaling_contradict() -> None:
    source = with_divisors([1.0] * 4, **{"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 2.0})
    with pytest.raises(ModelFileError, match=r"both rope_freqs\.weight and yarn"):
        read(source)


# against transformers

ORACLE = [
    ({"rope_type": "linear", "factor": 4.0}, LinearScaling(4.0)),
    ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}, YarnScaling(4.0, 32)),
    (
        {
            "rope_type": "yarn",
            "factor": 40.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
        },
        YarnScaling(40.0, 4096, 16.0, 2.0),
    ),
    (
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "original_max_position_embeddings": 8192,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
        Llama3Scaling(8.0, 8192, 1.0, 4.0),
    ),
]


@pytest.mark.oracle
@pytest.mark.parametrize(("parameters", "scaling"), ORACLE, ids=["linear", "yarn", "yarn_betas", "llama3"])
@pytest.mark.parametrize(("head_dim", "base"), [(64, 1e4), (24, 1e4), (128, 5e5)])
def test_angles_equal_those_of_transformers(
    parameters: dict[str, Any], scaling: RopeScaling, head_dim: int, base: float
) -> None:
    transformers = pytest.importorskip("transformers")
    rope_utils = pytest.importorskip("transformers.modeling_rope_utils")
    config = transformers.LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=131_072,
        rope_parameters={"rope_theta": base, **parameters},
    )
    want, magnitude = rope_utils.ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu")
    table = rope_table("rope", base=base, rotary_dim=head_dim, scaling=scaling)
    np.testing.assert_allclose(table.inv_freq, want.numpy(), rtol=5e-7)
    assert table.magnitude == pytest.approx(magnitude, rel=1e-6)
    for position in (0, 1000, 40_000):
        # transformers rounds position x angle to float32: half a unit in its last place is its own error
        own_error = position * np.array(table.inv_freq) * 2.0**-22
        for function in (np.cos, np.sin):
            got = function(position * np.array(table.inv_freq)) * table.magnitude
            reference = function((np.float32(position) * want.numpy()).astype(np.float64)) * magnitude
            assert (np.abs(got - reference) <= 1e-5 + own_error).all()


def test_yarn_keeps_fast_pairs_divides_slow_ones_and_mixes_between() -> None:
    # 128 ln(4096 / (32 * 2 pi)) / (2 ln 10000) = 20.9, the same for 1 turn: 45.03
    plain = inv_freq(NoScaling(), rotary_dim=128)
    kept = inv_freq(YarnScaling(factor=4.0, original_context=4096), rotary_dim=128) / plain
    np.testing.assert_allclose(kept[:21], 1.0, rtol=1e-6)
    np.testing.assert_allclose(kept[46:], 0.25, rtol=1e-6)
    np.testing.assert_allclose(kept[21:46], 1 - 0.75 * np.arange(1, 26) / 26, rtol=1e-6)


def test_yarn_never_leaves_the_pairs_there_are() -> None:
    plain = inv_freq(NoScaling(), rotary_dim=8)
    short = inv_freq(YarnScaling(factor=4.0, original_context=4), rotary_dim=8) / plain
    assert short[0] == 1.0
    np.testing.assert_allclose(short[1:], 0.25, rtol=1e-6)


@pytest.mark.parametrize(("factor", "context", "stretched"), [(4.0, 32, 128), (1.5, 33, 50), (1.0, 64, 64)])
def test_yarn_stretches_the_context_to_whole_positions(factor: float, context: int, stretched: int) -> None:
    assert YarnScaling(factor=factor, original_context=context).stretched_context == stretched
