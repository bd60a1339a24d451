"""Numbers out of metadata: what is read, what is a default, and errors with file, key, value and limit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.builders_sources import make_source
from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.model.families import build_program
from twostroke.model.hyperparameters import MAX_COUNT, Hyperparameters, read_decoder_shape
from twostroke.model.metadata import StringArray


def params_of(**values: Any) -> Hyperparameters:
    """Of a file that also says llama.{key} = value for every key, with __ for a dot."""
    return Hyperparameters(
        make_source(metadata={f"llama.{key.replace('__', '.')}": value for key, value in values.items()})
    )


def strings(*texts: str) -> StringArray:
    return StringArray(len(texts), lambda: list(texts))


def test_keys_are_given_without_the_architecture() -> None:
    params = params_of(x=3)
    assert params.key("x") == "llama.x"
    assert params.has("x")
    assert not params.has("llama.x")
    assert params.count("x") == 3


def test_a_default_stands_in_for_an_absent_key_alone() -> None:
    params = params_of(zero=0)
    assert params.count("absent", default=7) == 7
    assert params.positive("absent", default=0.5) == 0.5
    assert params.text("absent", default="none") == "none"
    with pytest.raises(ModelFileError, match=r"llama\.zero' is 0"):
        params.count("zero", default=7)
    with pytest.raises(ModelFileError, match=r"'llama\.absent' is missing"):
        params.count("absent")


@pytest.mark.parametrize(("value", "read"), [(1, 1), (MAX_COUNT, MAX_COUNT), (np.array([5, 5, 5]), 5)])
def test_counts_within_the_limits(value: Any, read: int) -> None:
    assert params_of(n=value).count("n") == read


@pytest.mark.parametrize("value", [0, -1, MAX_COUNT + 1, 2**64 - 1])
def test_counts_outside_the_limits(value: int) -> None:
    with pytest.raises(
        ModelFileError, match=rf"tiny\.gguf: key 'llama\.n' is {value}: it must be from 1 to {MAX_COUNT}"
    ):
        params_of(n=value).count("n")


@pytest.mark.parametrize("value", [True, 1.0, "1", strings("1")])
def test_counts_of_another_type(value: Any) -> None:
    with pytest.raises(ModelFileError, match="must be a whole number; the file has"):
        params_of(n=value).count("n")


def test_an_optional_count_is_none_when_absent_or_zero() -> None:
    params = params_of(zero=0, four=4, negative=-4)
    assert params.optional_count("absent") is None
    assert params.optional_count("zero") is None
    assert params.optional_count("four") == 4
    with pytest.raises(ModelFileError, match="is -4"):
        params.optional_count("negative")


def test_an_optional_number_is_none_when_absent_or_zero() -> None:
    params = params_of(zero=0.0, half=0.5, bad=float("nan"))
    assert params.optional_positive("absent") is None
    assert params.optional_positive("zero") is None
    assert params.optional_positive("half") == 0.5
    with pytest.raises(ModelFileError, match=r"is nan: it must be from 1e-30 to 1e\+30"):
        params.optional_positive("bad")


@pytest.mark.parametrize("value", [0.0, -1.5, 5e-324, 1e-31, 1e31, 1e308, float("inf"), float("-inf"), float("nan")])
def test_positive_means_above_zero_and_small_enough_to_compute_with(value: float) -> None:
    with pytest.raises(ModelFileError, match=r"llama\.x' is .*: it must be from 1e-30 to 1e.30"):
        params_of(x=value).positive("x")


def test_a_number_wider_than_64_bits_is_refused_whoever_asks() -> None:
    """Only JSON can spell one; as a float it would be an OverflowError."""
    params = params_of(n=10**400)
    for read in (params.count, params.optional_count, params.positive, params.optional_positive):
        with pytest.raises(ModelFileError, match=r"llama\.n' is a whole number of 1329 bits; the limit is 64"):
            read("n")


def test_a_head_is_bounded_before_its_angles_are_made() -> None:
    with pytest.raises(ModelFileError, match=r"key_length' is 16777216: it must be from 1 to 65536"):
        build_program(make_source(metadata={"llama.attention.key_length": 2**24, "llama.rope.dimension_count": 2**24}))


def test_positive_takes_whole_numbers_too() -> None:
    assert params_of(x=3).positive("x") == 3.0


@pytest.mark.parametrize(("value", "message"), [(1.0, "is 1: it must be above 1"), (0.0, "is 0: it must be from")])
def test_a_base_is_above_one(value: float, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        params_of(x=value).above_one("x", default=2.0)


@pytest.mark.parametrize("read", [Hyperparameters.count, Hyperparameters.positive, Hyperparameters.text])
def test_every_reader_names_a_missing_key(read: Callable[[Hyperparameters, str], Any]) -> None:
    with pytest.raises(ModelFileError, match=r"tiny\.gguf: key 'llama\.nothing' is missing"):
        read(params_of(), "nothing")


def test_the_shape_of_the_tiny_model() -> None:
    shape = read_decoder_shape(params_of())
    assert (shape.num_layers, shape.width, shape.ff_width, shape.vocab_size) == (2, 32, 64, 40)
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.rotary_dim) == (4, 2, 8, 8)
    assert (shape.q_width, shape.kv_width) == (32, 16)
    assert (shape.context_length, shape.eps) == (64, 1e-5)


def test_the_embedding_may_have_more_rows_than_the_tokenizer_but_not_fewer() -> None:
    few, many = strings(*"abc"), strings(*(str(index) for index in range(41)))
    assert build_program(make_source(metadata={"tokenizer.ggml.tokens": few})).vocab_size == 40
    with pytest.raises(ModelFileError, match=r"has shape \[40, 32\], the model needs \[41 or more, 32\]"):
        build_program(make_source(metadata={"tokenizer.ggml.tokens": many}))


def test_missing_blocks_are_counted() -> None:
    only_first = {name: None for name in make_source().tensors if name.startswith("blk.1.")}
    with pytest.raises(ModelFileError, match=r"block_count' is 2: it must be 1, the number of blocks"):
        build_program(make_source(shapes=only_first))


def test_head_dim_is_the_quotient_only_when_the_file_is_silent() -> None:
    quotient = Hyperparameters(make_source(metadata={"llama.attention.key_length": None}))
    assert read_decoder_shape(quotient).head_dim == 8
    explicit = make_source(metadata={"llama.attention.key_length": 12, "llama.attention.value_length": 12})
    shape = read_decoder_shape(Hyperparameters(explicit))
    assert (shape.head_dim, shape.rotary_dim, shape.q_width, shape.kv_width) == (12, 12, 48, 24)
    odd = make_source(metadata={"llama.attention.key_length": None, "llama.attention.head_count": 5})
    with pytest.raises(ModelFileError, match="head_count' is 5: it must be a divisor of the width 32"):
        build_program(odd)


def test_keys_and_values_of_different_size_are_unsupported() -> None:
    with pytest.raises(UnsupportedModelError, match="value_length is 16, key_length is 8"):
        build_program(make_source(metadata={"llama.attention.value_length": 16}))


def test_every_head_has_its_own_kv_head_when_the_file_is_silent() -> None:
    shape = read_decoder_shape(Hyperparameters(make_source(metadata={"llama.attention.head_count_kv": None})))
    assert shape.num_kv_heads == 4


def test_counts_per_layer_are_read_when_equal_and_unsupported_when_not() -> None:
    equal = make_source(metadata={"llama.attention.head_count_kv": np.array([2, 2], np.uint32)})
    assert build_program(equal).kv_groups[0].num_kv_heads == 2
    differing = make_source(metadata={"llama.attention.head_count_kv": np.array([2, 4], np.uint32)})
    with pytest.raises(UnsupportedModelError, match=r"differs between layers \(\[2, 4\]\)"):
        build_program(differing)
    as_floats = make_source(metadata={"llama.attention.head_count_kv": np.array([2.0, 2.0])})
    with pytest.raises(ModelFileError, match="must be an array of whole numbers"):
        build_program(as_floats)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("expert_count", 8),
        ("attention.causal", False),
        ("attention.clamp_kqv", 8.0),
        ("logit_scale", 0.0625),
        ("embedding_scale", 12.0),
        ("rope.scaling.yarn_ext_factor", 0.5),
        ("rope.scaling.yarn_log_multiplier", 0.1),
        ("residual_scale", "much"),
        ("expert_count", np.array([8, 8])),
    ],
)
def test_a_variant_no_family_computes_is_refused_not_ignored(key: str, value: Any) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"tiny\.gguf: key 'llama\.{key}' is .*absent or"):
        build_program(make_source(metadata={f"llama.{key}": value}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("expert_count", 0),
        ("attention.causal", True),
        ("logit_scale", 1.0),
        ("rope.scaling.yarn_ext_factor", -1.0),
        ("rope.scaling.yarn_ext_factor", 1.0),
    ],
)
def test_values_that_change_nothing_load(key: str, value: Any) -> None:
    assert build_program(make_source(metadata={f"llama.{key}": value})).weights
