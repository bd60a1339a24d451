"""Rope settings of config.json as GGUF keys: base, partial rotation and scaling, in every spelling in use.

`rope_scaling` beside `rope_theta` (transformers 4) and `rope_parameters` (transformers 5) mean the same;
`type` and `rope_type` too. What differs between two spellings, or is unknown, is an error.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.model.metadata import MAX_SETTING, MIN_SETTING, Metadata, MetadataValue, is_setting

_ANY_KIND = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
_KINDS = {
    "default": set[str](),
    "linear": {"factor"},
    "llama3": {"factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"},
    "yarn": {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor"}
    | {"mscale", "mscale_all_dim", "truncate", "finetuned"},
}
_GGUF_KEYS = {
    "factor": "rope.scaling.factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "low_freq_factor": "rope.scaling.low_freq_factor",
    "high_freq_factor": "rope.scaling.high_freq_factor",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
}


def translate_rope(config: Metadata, *, head_dim: int, has_local_rope: bool) -> dict[str, MetadataValue]:
    """GGUF keys without the architecture's prefix. `has_local_rope`: window layers have a rope of their own (Gemma)."""
    rope = _Rope(config.file, _join_spellings(config, has_local_rope=has_local_rope))
    found: dict[str, MetadataValue] = dict(rope.scaling())
    base = rope.values.get("rope_theta", config.get("rope_theta"))
    found["rope.freq_base"] = rope.number("rope_theta", base)
    partial = rope.values.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    found["rope.dimension_count"] = int(head_dim * rope.number("partial_rotary_factor", partial))
    if has_local_rope:
        found["rope.freq_base_swa"] = _local_base(config)
    return found


def _join_spellings(config: Metadata, *, has_local_rope: bool) -> dict[str, Any]:
    """One dict out of rope_scaling and rope_parameters; the same key with two values is an error."""
    parameters = _object(config, "rope_parameters")
    if has_local_rope and "full_attention" in parameters:
        parameters = _layer_object(config, parameters, "full_attention")
    joined = dict(parameters)
    for key, value in _object(config, "rope_scaling").items():
        if joined.setdefault(key, value) != value:
            raise ModelFileError(
                config.file, f"rope_scaling and rope_parameters disagree: {key!r} is {value!r} and {joined[key]!r}"
            )
    return {key: value for key, value in joined.items() if value is not None}


def _local_base(config: Metadata) -> float:
    parameters = _object(config, "rope_parameters")
    if "sliding_attention" not in parameters:
        return _Rope(config.file, {}).number("rope_local_base_freq", config.get("rope_local_base_freq"))
    local = _Rope(config.file, _layer_object(config, parameters, "sliding_attention"))
    if local.kind() != "default":
        raise UnsupportedModelError(
            f"{config.file}: rope_parameters.sliding_attention has rope_type {local.kind()!r}; supported is default"
        )
    return local.number("rope_theta", local.values.get("rope_theta", config.get("rope_local_base_freq")))


def _object(config: Metadata, key: str) -> dict[str, Any]:
    value: Any = config.get(key, {})
    if not isinstance(value, dict):
        raise ModelFileError(config.file, f"{key} is {value!r:.80}; it must be an object")
    return value


def _layer_object(config: Metadata, parameters: Mapping[str, Any], layer_type: str) -> dict[str, Any]:
    value = parameters[layer_type]
    if not isinstance(value, dict):
        raise ModelFileError(config.file, f"rope_parameters.{layer_type} is {value!r:.80}; it must be an object")
    return value


class _Rope:
    """The settings of one rope, as one spelling."""

    def __init__(self, file: Path, values: Mapping[str, Any]) -> None:
        self.file = file
        self.values = values

    def kind(self) -> str:
        names = [self.values[key] for key in ("rope_type", "type") if key in self.values]
        if len(names) == 2 and names[0] != names[1]:
            raise ModelFileError(
                self.file, f"rope scaling has rope_type {names[0]!r} and type {names[1]!r}; say it once"
            )
        if not names:
            if self.values.keys() - _ANY_KIND:
                raise ModelFileError(self.file, f"rope scaling {dict(self.values)!r:.120} has no rope_type")
            return "default"
        if not isinstance(names[0], str) or names[0] not in _KINDS:
            raise UnsupportedModelError(
                f"{self.file}: rope scaling of rope_type {names[0]!r:.80} is not supported; "
                f"supported are {', '.join(_KINDS)}"
            )
        return names[0]

    def scaling(self) -> dict[str, MetadataValue]:
        kind = self.kind()
        unknown = self.values.keys() - _KINDS[kind] - _ANY_KIND
        if unknown:
            raise ModelFileError(self.file, f"rope scaling {kind!r} has the unknown key {min(unknown)!r}")
        if kind == "default":
            return {}
        found: dict[str, MetadataValue] = {"rope.scaling.type": kind}
        required = _KINDS[kind] if kind == "llama3" else {"factor"}
        for key in sorted(required):
            if key not in self.values:
                raise ModelFileError(self.file, f"rope scaling {kind!r} has no {key!r}")
        found |= {ours: self._setting(key) for key, ours in _GGUF_KEYS.items() if key in self.values}
        if kind == "yarn":
            found["rope.scaling.attn_factor"] = self._yarn_attention_factor()
        return found

    def number(self, key: str, value: Any) -> float:
        """A number from MIN_SETTING to MAX_SETTING, or ModelFileError."""
        if not is_setting(value):
            raise ModelFileError(
                self.file,
                f"rope setting {key!r} is {value!r:.80}; it must be a number from {MIN_SETTING:g} to {MAX_SETTING:g}",
            )
        return float(value)

    def _setting(self, key: str) -> int | float:
        number = self.number(key, self.values[key])
        if key == "factor" and number < 1:
            raise ModelFileError(self.file, f"rope setting 'factor' is {number:g}; it must be at least 1")
        if key == "original_max_position_embeddings":
            if number != int(number):
                raise ModelFileError(self.file, f"rope setting {key!r} is {number:g}; it must be a whole number")
            return int(number)
        return number

    def _yarn_attention_factor(self) -> float:
        """The file's factor on cos and sin, over the 0.1 ln(factor) + 1 that GGUF readers apply by themselves."""
        if self.values.get("truncate", True) is not True:
            raise UnsupportedModelError(f"{self.file}: rope scaling 'yarn' with truncate false is not supported")
        factor = self.number("factor", self.values["factor"])
        usual = _yarn_magnitude(factor, 1.0)
        if "attention_factor" in self.values:
            return self.number("attention_factor", self.values["attention_factor"]) / usual
        mscales = [self.values.get(key) for key in ("mscale", "mscale_all_dim")]
        if not all(mscales):
            return 1.0
        over, under = (self.number("mscale", mscale) for mscale in mscales)
        return _yarn_magnitude(factor, over) / _yarn_magnitude(factor, under) / usual


def _yarn_magnitude(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0
