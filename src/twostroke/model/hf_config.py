"""config.json of a model folder as GGUF metadata. Called by the folder reader; builds no program.

Absent keys take the defaults that transformers gives the model type; null means absent. Values keep
their meaning, ranges are judged by the families, which see both formats alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.model.hf_rope import translate_rope
from twostroke.model.metadata import MAX_SETTING, MIN_SETTING, Metadata, MetadataValue, is_setting

_USUAL: dict[str, Any] = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
}
# model_type -> (architecture, what an absent key means)
_MODEL_TYPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", _USUAL | {"max_position_embeddings": 2048}),
    "mistral": ("llama", _USUAL | {"max_position_embeddings": 131_072, "num_key_value_heads": 8}),
    "qwen2": ("qwen2", _USUAL | {"max_position_embeddings": 32_768, "use_sliding_window": False}),
    "qwen3": ("qwen3", _USUAL | {"max_position_embeddings": 32_768, "head_dim": 128, "use_sliding_window": False}),
    "gemma3_text": (
        "gemma3",
        {
            "hidden_act": "gelu_pytorch_tanh",
            "rms_norm_eps": 1e-6,
            "rope_theta": 1_000_000.0,
            "rope_local_base_freq": 10_000.0,
            "tie_word_embeddings": True,
            "max_position_embeddings": 131_072,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "query_pre_attn_scalar": 256,
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
            "vocab_size": 262_208,
        },
    ),
}
_ACTIVATIONS = {"llama": "silu", "qwen2": "silu", "qwen3": "silu", "gemma3": "gelu_pytorch_tanh"}
_PLAIN_KEYS = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "vocab_size": "vocab_size",
}


@dataclass(frozen=True, slots=True)
class TranslatedConfig:
    """`is_tied`: the head is the embedding. `eos_token_ids` is what config.json itself says."""

    architecture: str
    metadata: Mapping[str, MetadataValue]
    is_tied: bool
    vocab_size: int
    eos_token_ids: object


def translate_config(file: Path, raw: Mapping[str, Any]) -> TranslatedConfig:
    """GGUF metadata of a config.json. Raises ModelFileError or UnsupportedModelError."""
    model_type, values = _text_part(file, raw)
    if model_type not in _MODEL_TYPES:
        raise UnsupportedModelError(
            f"{file}: model_type {model_type!r} is not supported; supported are {', '.join(_MODEL_TYPES)}, gemma3"
        )
    architecture, defaults = _MODEL_TYPES[model_type]
    config = Metadata(file, defaults | {key: value for key, value in values.items() if value is not None})
    _check_supported(config, architecture)
    keys = _translate_sizes(config) | _translate_window(config, model_type)
    keys |= translate_rope(config, head_dim=_head_dim(config), has_local_rope=architecture == "gemma3")
    if architecture == "gemma3":
        keys |= _translate_gemma(config)
    metadata: dict[str, MetadataValue] = {f"{architecture}.{key}": value for key, value in keys.items()}
    metadata |= {"general.architecture": architecture, "twostroke.rope_style": "halves"}
    return TranslatedConfig(
        architecture=architecture,
        metadata=metadata,
        is_tied=config.boolean("tie_word_embeddings"),
        vocab_size=config.integer("vocab_size"),
        eos_token_ids=config.get("eos_token_id"),
    )


def _text_part(file: Path, raw: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The language model's part: the whole file, or `text_config` of a model that also sees images."""
    model_type = raw.get("model_type")
    if model_type != "gemma3":
        if not isinstance(model_type, str):
            raise ModelFileError(file, f"model_type is {model_type!r:.80}; it must be a string")
        return model_type, raw
    text = raw.get("text_config")
    if not isinstance(text, dict):
        raise ModelFileError(file, f"text_config is {text!r:.80}; a gemma3 model needs an object")
    outer = {key: raw[key] for key in ("eos_token_id", "tie_word_embeddings", "quantization_config") if key in raw}
    return "gemma3_text", outer | text


def _check_supported(config: Metadata, architecture: str) -> None:
    activation = config.text("hidden_activation", default=config.text("hidden_act"))
    wanted = _ACTIVATIONS[architecture]
    if activation != wanted:
        raise UnsupportedModelError(
            f"{config.file}: activation {activation!r} is not supported; {architecture} has {wanted!r}"
        )
    if "quantization_config" in config:
        raise UnsupportedModelError(
            f"{config.file}: quantization_config is not supported in safetensors folders; "
            "use the unquantised folder or a quantised GGUF file"
        )
    if config.boolean("use_bidirectional_attention", default=False):
        raise UnsupportedModelError(f"{config.file}: use_bidirectional_attention is not supported")


def _head_dim(config: Metadata) -> int:
    """The explicit head_dim where there is one; the quotient is only its default."""
    if "head_dim" in config:
        return config.integer("head_dim")
    width, num_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    if num_heads < 1 or width % num_heads:
        raise ModelFileError(
            config.file,
            f"hidden_size {width} is not a multiple of num_attention_heads {num_heads}, and no head_dim is given",
        )
    return width // num_heads


def _translate_sizes(config: Metadata) -> dict[str, MetadataValue]:
    keys: dict[str, MetadataValue] = {ours: config.integer(theirs) for theirs, ours in _PLAIN_KEYS.items()}
    num_heads = config.integer("num_attention_heads")
    return keys | {
        "attention.head_count_kv": config.integer("num_key_value_heads", default=num_heads),
        "attention.key_length": _head_dim(config),
        "attention.value_length": _head_dim(config),
        "attention.layer_norm_rms_epsilon": config.number("rms_norm_eps"),
    }


def _translate_window(config: Metadata, model_type: str) -> dict[str, MetadataValue]:
    """Mistral's and Gemma's windows, and Qwen's where it is switched on."""
    is_used = model_type in ("mistral", "gemma3_text") or config.boolean("use_sliding_window", default=False)
    if not is_used or "sliding_window" not in config:
        return {}
    return {"attention.sliding_window": config.integer("sliding_window")}


def _translate_gemma(config: Metadata) -> dict[str, MetadataValue]:
    keys: dict[str, MetadataValue] = {
        "attention.scale": _positive(config, "query_pre_attn_scalar") ** -0.5,
        "attention.sliding_window_pattern": _window_pattern(config),
    }
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if key in config:
            keys[key] = _positive(config, key)
    return keys


def _window_pattern(config: Metadata) -> MetadataValue:
    """One bool per layer (true: window) where the file lists its layers, else every how many layers one sees all."""
    layer_types: Any = config.get("layer_types")
    if layer_types is None:
        return config.integer("sliding_window_pattern")
    known = ("sliding_attention", "full_attention")
    if not isinstance(layer_types, list) or any(kind not in known for kind in layer_types):
        raise ModelFileError(config.file, f"layer_types is {layer_types!r:.80}; it must list {' and '.join(known)}")
    return np.array([kind == "sliding_attention" for kind in layer_types], dtype=np.bool_)


def _positive(config: Metadata, key: str) -> float:
    value = config.number(key)
    if not is_setting(value):
        raise ModelFileError(
            config.file, f"key {key!r} is {value:g}; it must be a number from {MIN_SETTING:g} to {MAX_SETTING:g}"
        )
    return value
