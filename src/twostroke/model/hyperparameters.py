"""A model's numbers out of its metadata, each checked where it is read.

Families read their configs through it. Every error names the file, the key as stored, the value and
the limit. It builds nothing and reads no weight.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.model.metadata import MAX_SETTING, MIN_SETTING, StringArray, is_setting
from twostroke.model.source import ModelSource, TensorTable

MAX_COUNT = 2**24  # widths, heads, layers: far above any model, far below what overflows
MAX_HEAD_DIM = 2**16  # a hundred times any model's; the rope's angles are made before weights are looked at
MAX_CONTEXT = 2**31 - 1  # positions are int32
# Keys that change what a model computes in ways no family here does, with the values that change nothing.
_NEUTRAL: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "expert_count": (0,),
        "attention.causal": (True,),
        "attention.clamp_kqv": (0,),
        "attention.max_alibi_bias": (0,),
        "embedding_scale": (0, 1),
        "logit_scale": (0, 1),
        "residual_scale": (0, 1),
        "rope.scaling.alpha": (0, 1),
        "rope.scaling.yarn_ext_factor": (-1, 1),
        "rope.scaling.yarn_log_multiplier": (0,),
    }
)
_BLOCK_NAME = re.compile(r"blk\.(\d{1,9})\.")


class Hyperparameters:
    """Metadata of one architecture: keys are given without its prefix ("attention.head_count")."""

    def __init__(self, source: ModelSource) -> None:
        self.file: Path = source.metadata.file
        self.architecture = source.architecture
        self.tensors: TensorTable = source.tensors
        self.metadata = source.metadata

    def key(self, name: str) -> str:
        """The key as the file spells it."""
        return f"{self.architecture}.{name}"

    def has(self, name: str) -> bool:
        return self.key(name) in self.metadata

    def text(self, name: str, *, default: str | None = None) -> str:
        return self.metadata.text(self.key(name), default=default)

    def count(self, name: str, *, default: int | None = None, at_most: int = MAX_COUNT) -> int:
        """A whole number from 1 to `at_most`. An array with one entry per layer must hold one value throughout."""
        value = (
            self._per_layer(name) if self._is_array(name) else self.metadata.integer(self.key(name), default=default)
        )
        if not 1 <= value <= at_most:
            raise self.wrong(name, value, f"from 1 to {at_most}")
        return value

    def optional_count(self, name: str, *, at_most: int = MAX_COUNT) -> int | None:
        """Absent and 0 both mean none, as files write it."""
        if not self.has(name) or self.metadata.integer(self.key(name)) == 0:
            return None
        return self.count(name, at_most=at_most)

    def positive(self, name: str, *, default: float | None = None) -> float:
        """A number from MIN_SETTING to MAX_SETTING."""
        value = self.metadata.number(self.key(name), default=default)
        if not is_setting(value):
            raise self.wrong(name, value, f"from {MIN_SETTING:g} to {MAX_SETTING:g}")
        return value

    def above_one(self, name: str, *, default: float) -> float:
        """A number above 1: the base of a rope, whose logarithm divides."""
        value = self.positive(name, default=default)
        if value <= 1:
            raise self.wrong(name, value, "above 1")
        return value

    def optional_positive(self, name: str) -> float | None:
        """Absent and 0 both mean none, as files write it."""
        if not self.has(name) or self.metadata.number(self.key(name)) == 0:
            return None
        return self.positive(name)

    def wrong(self, name: str, value: object, limit: str) -> ModelFileError:
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        return ModelFileError(self.file, f"key {self.key(name)!r} is {shown}: it must be {limit}")

    def _is_array(self, name: str) -> bool:
        return isinstance(self.metadata.get(self.key(name)), np.ndarray)

    def _per_layer(self, name: str) -> int:
        values = self.metadata.integers(self.key(name))
        if len(values) == 0 or values.min() != values.max():
            raise UnsupportedModelError(
                f"{self.file}: key {self.key(name)!r} differs between layers ({sorted(set(values.tolist()))}); "
                f"supported are {self.architecture} models with equal layers"
            )
        return int(values[0])


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """The sizes every family has."""

    num_layers: int
    width: int
    ff_width: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int
    vocab_size: int
    context_length: int
    eps: float

    @property
    def q_width(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.num_kv_heads * self.head_dim


def read_decoder_shape(params: Hyperparameters) -> DecoderShape:
    """Read and check what every family has; the sizes agree with each other and with the tensors present."""
    _refuse_variants(params)
    num_heads = params.count("attention.head_count")
    width = params.count("embedding_length")
    head_dim = _read_head_dim(params, width=width, num_heads=num_heads)
    return DecoderShape(
        num_layers=_read_num_layers(params),
        width=width,
        ff_width=params.count("feed_forward_length"),
        num_heads=num_heads,
        num_kv_heads=_read_num_kv_heads(params, num_heads),
        head_dim=head_dim,
        rotary_dim=_read_rotary_dim(params, head_dim),
        vocab_size=_read_vocab_size(params, width),
        context_length=params.count("context_length", at_most=MAX_CONTEXT),
        eps=params.positive("attention.layer_norm_rms_epsilon"),
    )


def _refuse_variants(params: Hyperparameters) -> None:
    for name, neutral in _NEUTRAL.items():
        value = params.metadata.get(params.key(name), neutral[0])
        if not isinstance(value, bool | int | float) or value not in neutral:
            raise UnsupportedModelError(
                f"{params.file}: key {params.key(name)!r} is {value!r:.80}; "
                f"supported are {params.architecture} models where it is absent or {neutral[0]}"
            )


def _read_num_layers(params: Hyperparameters) -> int:
    num_layers = params.count("block_count", at_most=2**32)
    matches = (_BLOCK_NAME.match(name) for name in params.tensors)
    num_present = 1 + max((int(match[1]) for match in matches if match), default=-1)
    if num_layers != num_present:
        raise params.wrong("block_count", num_layers, f"{num_present}, the number of blocks the file has tensors for")
    return num_layers


def _read_head_dim(params: Hyperparameters, *, width: int, num_heads: int) -> int:
    if not params.has("attention.key_length") and width % num_heads:
        raise params.wrong("attention.head_count", num_heads, f"a divisor of the width {width}")
    head_dim = params.count("attention.key_length", default=width // num_heads, at_most=MAX_HEAD_DIM)
    value_dim = params.count("attention.value_length", default=head_dim)
    if value_dim != head_dim:
        raise UnsupportedModelError(
            f"{params.file}: {params.key('attention.value_length')} is {value_dim}, key_length is {head_dim}; "
            "supported are models where both are equal"
        )
    return head_dim


def _read_num_kv_heads(params: Hyperparameters, num_heads: int) -> int:
    num_kv_heads = params.count("attention.head_count_kv", default=num_heads)
    if num_heads % num_kv_heads:
        raise params.wrong("attention.head_count_kv", num_kv_heads, f"a divisor of head_count {num_heads}")
    return num_kv_heads


def _read_rotary_dim(params: Hyperparameters, head_dim: int) -> int:
    rotary_dim = params.count("rope.dimension_count", default=head_dim)
    if rotary_dim % 2 or rotary_dim > head_dim:
        raise params.wrong("rope.dimension_count", rotary_dim, f"even and at most the head's {head_dim}")
    return rotary_dim


def _read_vocab_size(params: Hyperparameters, width: int) -> int:
    """Rows of the embedding: the ids the model knows. The tokenizer may have fewer, never more."""
    if "token_embd.weight" not in params.tensors:
        raise ModelFileError(params.file, "tensor token_embd.weight is missing")
    shape = params.tensors["token_embd.weight"].shape
    tokens = params.metadata.get("tokenizer.ggml.tokens")
    num_tokens = len(tokens) if isinstance(tokens, StringArray) else 1
    if len(shape) != 2 or shape[1] != width or shape[0] < num_tokens:
        raise ModelFileError(
            params.file,
            f"tensor token_embd.weight has shape {list(shape)}, the model needs [{num_tokens} or more, {width}]",
        )
    return shape[0]
