"""Tiny model folders: config.json, tokenizer.json and float32 weights, each changeable."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Weights = dict[str, npt.NDArray[np.float32]]

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 11,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "eos_token_id": 2,
}
GEMMA: dict[str, Any] = {
    "model_type": "gemma3_text",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "vocab_size": 11,
    "sliding_window": 4,
}


def llama_weights(*, width: int = 16, ffn_width: int = 24, q_width: int = 16, kv_width: int = 8) -> Weights:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (11, width),
        "model.layers.0.input_layernorm.weight": (width,),
        "model.layers.0.self_attn.q_proj.weight": (q_width, width),
        "model.layers.0.self_attn.k_proj.weight": (kv_width, width),
        "model.layers.0.self_attn.v_proj.weight": (kv_width, width),
        "model.layers.0.self_attn.o_proj.weight": (width, q_width),
        "model.layers.0.post_attention_layernorm.weight": (width,),
        "model.layers.0.mlp.gate_proj.weight": (ffn_width, width),
        "model.layers.0.mlp.up_proj.weight": (ffn_width, width),
        "model.layers.0.mlp.down_proj.weight": (width, ffn_width),
        "model.norm.weight": (width,),
        "lm_head.weight": (11, width),
    }
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def gemma_weights() -> Weights:
    weights = llama_weights()
    del weights["lm_head.weight"]
    for name, size in (
        ("pre_feedforward_layernorm", 16),
        ("post_feedforward_layernorm", 16),
        ("self_attn.q_norm", 8),
        ("self_attn.k_norm", 8),
    ):
        weights[f"model.layers.0.{name}.weight"] = np.linspace(-1, 1, size, dtype=np.float32)
    return weights


def pack_weights(weights: Mapping[str, npt.NDArray[Any]], *, dtype: str = "F32") -> bytes:
    header: dict[str, Any] = {}
    data = bytearray()
    for name, array in weights.items():
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + array.nbytes],
        }
        data += array.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def make_folder(
    folder: Path,
    *,
    config: Mapping[str, Any] = LLAMA,
    weights: Mapping[str, npt.NDArray[np.float32]] | bytes | None = None,
) -> Path:
    """A folder with one model.safetensors; `weights` as arrays or as the file's bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    (folder / "tokenizer.json").write_text("{}")
    weights = llama_weights() if weights is None else weights
    packed = weights if isinstance(weights, bytes) else pack_weights(weights)
    (folder / "model.safetensors").write_bytes(packed)
    return folder


def make_sharded(folder: Path, shards: Sequence[Weights], *, weight_map: Mapping[str, Any] | None = None) -> Path:
    """The same in shards; the index is the true one unless given."""
    make_folder(folder)
    (folder / "model.safetensors").unlink()
    names = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    for name, shard in zip(names, shards, strict=True):
        (folder / name).write_bytes(pack_weights(shard))
    true_map = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
    write_json(folder / "model.safetensors.index.json", {"weight_map": true_map if weight_map is None else weight_map})
    return folder
