"""From source to program: the right family, the numbers checked, errors that name file, key, value and limit."""

import contextlib
import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.builders_sources import FILE, make_source, tiny_metadata
from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.model.families import FAMILIES, build_program
from twostroke.model.metadata import StringArray
from twostroke.model.source import ARCHITECTURES, TensorRef, TensorTable
from twostroke.model.tensor_type import BLOCK_SIZES, SUPPORTED_TYPES
from twostroke.program.quant import TENSOR_TYPES


def strings(*texts: str) -> StringArray:
    return StringArray(len(texts), lambda: list(texts))


def test_every_supported_architecture_has_a_family() -> None:
    assert tuple(sorted(FAMILIES)) == ARCHITECTURES


@pytest.mark.parametrize("architecture", FAMILIES)
def test_the_program_carries_the_sizes_of_the_file(architecture: str) -> None:
    program = build_program(make_source(architecture))
    assert program.architecture == architecture
    assert (program.width, program.vocab_size, program.context_length) == (32, 40, 64)
    assert sum(len(group.layers) for group in program.kv_groups) == 2


def test_an_unsupported_architecture_says_which_are_supported() -> None:
    with pytest.raises(UnsupportedModelError, match=r"tiny\.gguf.*'frobnicator'.*gemma3, llama, qwen2, qwen3"):
        build_program(make_source("frobnicator"))


def test_tensors_nobody_uses_give_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="twostroke"):
        build_program(make_source(shapes={"foo.bar": (4,)}))
        build_program(make_source(shapes={f"foo.{index}": (4,) for index in range(5)}))
    assert caplog.messages == [
        "tiny.gguf: a tensor is not part of a llama model: 'foo.bar'",
        "tiny.gguf: 5 tensors are not part of a llama model: 'foo.0', 'foo.1', 'foo.2', ...",
    ]


def test_rope_divisors_are_no_unused_tensor(caplog: pytest.LogCaptureFixture) -> None:
    source = make_source()
    divisors = TensorRef("rope_freqs.weight", "F32", (4,), np.ones(4, np.float32).view(np.uint8))
    tensors = {name: source.tensors[name] for name in source.tensors} | {divisors.name: divisors}
    with caplog.at_level(logging.WARNING, logger="twostroke"):
        build_program(replace(source, tensors=TensorTable(FILE, tensors)))
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("block_count", 0, "is 0: it must be from 1"),
        ("block_count", 2**31, "is 2147483648: it must be 2, the number of blocks the file has tensors for"),
        ("block_count", 1, "is 1: it must be 2, the number of blocks"),
        ("block_count", "2", "must be a whole number; the file has the string '2'"),
        ("block_count", None, "is missing"),
        ("attention.head_count", 0, "is 0: it must be from 1"),
        ("attention.head_count", -4, "is -4: it must be from 1"),
        ("attention.head_count", 2**40, "must be from 1 to 16777216"),
        ("attention.head_count", strings("4", "4"), "must be an? (array of )?whole number"),
        ("attention.head_count_kv", 3, "is 3: it must be a divisor of head_count 4"),
        ("attention.head_count_kv", 8, "is 8: it must be a divisor of head_count 4"),
        ("context_length", 0, "is 0: it must be from 1 to 2147483647"),
        ("context_length", 2**31, "must be from 1 to 2147483647"),
        ("rope.dimension_count", 7, "is 7: it must be even and at most the head's 8"),
        ("rope.dimension_count", 10, "is 10: it must be even and at most the head's 8"),
        ("rope.freq_base", 1.0, "is 1: it must be above 1"),
        ("rope.freq_base", float("inf"), "must be from 1e-30 to 1e.30"),
        ("attention.layer_norm_rms_epsilon", float("nan"), "is nan: it must be from 1e-30 to 1e.30"),
        ("attention.layer_norm_rms_epsilon", 0.0, "is 0: it must be from 1e-30 to 1e.30"),
        ("embedding_length", 0, "is 0: it must be from 1"),
        ("feed_forward_length", True, "must be a whole number"),
    ],
)
def test_a_wrong_number_names_file_key_value_and_limit(key: str, value: Any, message: str) -> None:
    with pytest.raises(ModelFileError, match=message) as caught:
        build_program(make_source(metadata={f"llama.{key}": value}))
    assert str(caught.value).startswith("tiny.gguf: ")
    assert f"llama.{key}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("token_embd.weight", (32, 40), r"has shape \[32, 40\], the model needs \[1 or more, 32\]"),
        ("token_embd.weight", (40,), r"has shape \[40\], the model needs"),
        ("token_embd.weight", None, "token_embd.weight is missing"),
        ("output.weight", (41, 32), r"has shape \[41, 32\], the model needs \[40, 32\]"),
        ("output_norm.weight", (31,), r"has shape \[31\], the model needs \[32\]"),
        ("blk.1.ffn_down.weight", (64, 32), r"has shape \[64, 32\], the model needs \[32, 64\]"),
        ("blk.0.attn_k.weight", None, r"blk.0.attn_k.weight \[16, 32\] is missing"),
    ],
)
def test_a_wrong_tensor_names_both_shapes(name: str, shape: tuple[int, ...] | None, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        build_program(make_source(shapes={name: shape}))


@given(
    st.sampled_from([key for key in tiny_metadata() if not key.endswith("freq_base")]),
    st.one_of(st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=4), st.booleans()),
)
def test_any_value_of_any_key_is_a_program_or_a_typed_error(key: str, value: Any) -> None:
    with contextlib.suppress(ModelFileError, UnsupportedModelError):
        assert build_program(make_source(metadata={key: value})).weights


def test_file_reader_and_kernels_agree_on_tensor_types() -> None:
    assert set(SUPPORTED_TYPES) == set(TENSOR_TYPES)
    for name, row in TENSOR_TYPES.items():
        assert (row.block_size, row.block_bytes) == (BLOCK_SIZES[name].num_elements, BLOCK_SIZES[name].num_bytes)
