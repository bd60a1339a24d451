"""Rope angles and their scalings: plain, linear, YaRN, Llama 3 and per-pair divisors from a file.

Each kind is a frozen record that turns (base, rotary_dim) into a RopeTable; `read_rope_scaling` picks
one from metadata. Families call it; an unknown kind is an error, never silently none.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.model.hyperparameters import MAX_CONTEXT, Hyperparameters
from twostroke.program.program import RopeTable
from twostroke.program.quant import dequantise

Float64Array = npt.NDArray[np.float64]
SUPPORTED_SCALINGS = ("none", "linear", "yarn", "llama3")


class RopeScaling(Protocol):
    """Changes the angles of a rope; `magnitude` multiplies cos and sin."""

    def scale(self, inv_freq: Float64Array, *, base: float) -> Float64Array: ...
    @property
    def magnitude(self) -> float: ...
    @property
    def stretched_context(self) -> int: ...


@dataclass(frozen=True, slots=True)
class NoScaling:
    magnitude: float = 1.0
    stretched_context: int = 0

    def scale(self, inv_freq: Float64Array, *, base: float) -> Float64Array:
        return inv_freq


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Position interpolation (Chen et al. 2023): all angles divided by `factor`."""

    factor: float
    original_context: int | None = None
    magnitude: float = 1.0

    @property
    def stretched_context(self) -> int:
        return round(self.factor * (self.original_context or 0))

    def scale(self, inv_freq: Float64Array, *, base: float) -> Float64Array:
        return inv_freq / self.factor


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """YaRN (Peng et al. 2023, section 3): fast pairs keep their angles, slow ones are interpolated, a ramp between."""

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0  # on top of the paper's 0.1 ln(factor) + 1

    @property
    def magnitude(self) -> float:
        return self.attention_factor * _yarn_magnitude(self.factor)

    @property
    def stretched_context(self) -> int:
        return round(self.factor * self.original_context)

    def scale(self, inv_freq: Float64Array, *, base: float) -> Float64Array:
        rotary_dim = 2 * len(inv_freq)
        low = max(math.floor(self._pair_of(self.beta_fast, rotary_dim=rotary_dim, base=base)), 0)
        high = min(math.ceil(self._pair_of(self.beta_slow, rotary_dim=rotary_dim, base=base)), rotary_dim - 1)
        ramp = np.clip((np.arange(len(inv_freq)) - low) / max(high - low, 0.001), 0, 1)
        return inv_freq / self.factor * ramp + inv_freq * (1 - ramp)

    def _pair_of(self, rotations: float, *, rotary_dim: int, base: float) -> float:
        """The pair that turns `rotations` times over the original context."""
        return rotary_dim * math.log(self.original_context / (rotations * 2 * math.pi)) / (2 * math.log(base))


def _yarn_magnitude(factor: float) -> float:
    """The paper's factor on cos and sin."""
    return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1: long waves divided by `factor`, short ones kept, a smooth mix between."""

    factor: float
    original_context: int
    low_freq_factor: float
    high_freq_factor: float
    magnitude: float = 1.0
    stretched_context: int = 0  # a Llama 3 file's own context is the stretched one: 131,072 for 32 x 8,192

    def scale(self, inv_freq: Float64Array, *, base: float) -> Float64Array:
        turns = self.original_context * inv_freq / (2 * math.pi)  # over the original context
        smooth = np.clip((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor), 0, 1)
        mixed: Float64Array = (1 - smooth) * inv_freq / self.factor + smooth * inv_freq
        return mixed


@dataclass(frozen=True, slots=True)
class DivisorScaling:
    """The file lists a divisor per pair (tensor rope_freqs.weight): Llama 3 scaling as GGUF stores it."""

    divisors: tuple[float, ...]
    magnitude: float = 1.0
    stretched_context: int = 0

    def scale(self, inv_freq: Float64Array, *, base: float) -> Float64Array:
        return np.divide(inv_freq, self.divisors)


def rope_table(name: str, *, base: float, rotary_dim: int, scaling: RopeScaling) -> RopeTable:
    """Angles base^(-2i / rotary_dim) under a scaling, each rounded to float32 once."""
    inv_freq = 1.0 / base ** (np.arange(0, rotary_dim, 2) / rotary_dim)
    scaled = scaling.scale(inv_freq, base=base).astype(np.float32)
    return RopeTable(name, tuple(float(value) for value in scaled), scaling.magnitude)


def read_rope_scaling(params: Hyperparameters, *, context_length: int, rotary_dim: int) -> RopeScaling:
    """The scaling a model's metadata and rope_freqs.weight ask for; the context it stretches to is in range."""
    scaling = _read_scaling(params, context_length=context_length, rotary_dim=rotary_dim)
    if scaling.stretched_context > MAX_CONTEXT:
        factor = params.positive("rope.scaling.factor")
        limit = f"small enough for a context of {MAX_CONTEXT}, it makes one of {scaling.stretched_context:.3g}"
        raise params.wrong("rope.scaling.factor", factor, limit)
    return scaling


def _read_scaling(params: Hyperparameters, *, context_length: int, rotary_dim: int) -> RopeScaling:
    # A factor alone means linear: so files before the type was stored are read everywhere.
    kind = params.text("rope.scaling.type", default="linear" if params.has("rope.scaling.factor") else "none")
    if kind not in SUPPORTED_SCALINGS:
        raise UnsupportedModelError(
            f"{params.file}: key {params.key('rope.scaling.type')!r} is {kind!r}; "
            f"supported are {', '.join(SUPPORTED_SCALINGS)}"
        )
    if "rope_freqs.weight" in params.tensors:
        if kind not in ("none", "llama3"):
            raise ModelFileError(params.file, f"both rope_freqs.weight and {kind} rope scaling: one of them is wrong")
        return _read_divisors(params, rotary_dim)
    if kind == "linear":
        original = params.optional_count("rope.scaling.original_context_length")
        return LinearScaling(params.positive("rope.scaling.factor"), original)
    if kind == "yarn":
        return _read_yarn(params, context_length)
    if kind == "llama3":
        return _read_llama3(params)
    if params.has("rope.scale_linear"):  # what files before the scaling keys had
        return LinearScaling(params.positive("rope.scale_linear"))
    return NoScaling()


def _read_yarn(params: Hyperparameters, context_length: int) -> YarnScaling:
    factor = params.positive("rope.scaling.factor")
    attention_factor = params.positive("rope.scaling.attn_factor", default=1.0)
    if params.has("rope.scaling.yarn_attn_factor"):  # copied from a config's attention_factor: the whole magnitude
        attention_factor *= params.positive("rope.scaling.yarn_attn_factor") / _yarn_magnitude(factor)
    return YarnScaling(
        factor=factor,
        original_context=params.optional_count("rope.scaling.original_context_length") or context_length,
        beta_fast=params.positive("rope.scaling.yarn_beta_fast", default=32.0),
        beta_slow=params.positive("rope.scaling.yarn_beta_slow", default=1.0),
        attention_factor=attention_factor,
    )


def _read_llama3(params: Hyperparameters) -> Llama3Scaling:
    scaling = Llama3Scaling(
        factor=params.positive("rope.scaling.factor"),
        original_context=params.count("rope.scaling.original_context_length"),
        low_freq_factor=params.positive("rope.scaling.low_freq_factor"),
        high_freq_factor=params.positive("rope.scaling.high_freq_factor"),
    )
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        raise params.wrong(
            "rope.scaling.high_freq_factor",
            scaling.high_freq_factor,
            f"above low_freq_factor {scaling.low_freq_factor:g}",
        )
    return scaling


def _read_divisors(params: Hyperparameters, rotary_dim: int) -> DivisorScaling:
    tensor = params.tensors["rope_freqs.weight"]
    if tensor.shape != (rotary_dim // 2,):
        raise ModelFileError(
            params.file, f"tensor rope_freqs.weight has shape {list(tensor.shape)}, the model needs [{rotary_dim // 2}]"
        )
    values = dequantise(tensor.tensor_type, tensor.data, tensor.shape)
    if not (np.isfinite(values) & (values > 0)).all():
        raise ModelFileError(params.file, f"tensor rope_freqs.weight holds {values.min():g}: divisors must be above 0")
    return DivisorScaling(tuple(float(value) for value in values))
