"""Opened models made in memory: tiny, random, no file, no other library. Numbers fit in the head.

width 32, feed-forward 64, 4 heads of 8 over 2 kv heads, vocabulary 40, 2 layers, context 64
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twostroke.model.metadata import Metadata
from twostroke.model.source import ModelSource, TensorRef, TensorTable
from twostroke.program.quant import TENSOR_TYPES

FILE = Path("tiny.gguf")
VOCAB = 40

Changes = Mapping[str, Any]  # name -> new value; None removes


def tiny_metadata(architecture: str = "llama") -> dict[str, Any]:
    """The metadata of a tiny model of this architecture, in GGUF's keys."""
    values: dict[str, Any] = {
        "block_count": 2,
        "context_length": 64,
        "embedding_length": 32,
        "feed_forward_length": 64,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 8,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10_000.0,
    }
    if architecture == "gemma3":
        values |= {"attention.sliding_window": 4, "attention.sliding_window_pattern": 2}
    return {f"{architecture}.{key}": value for key, value in values.items()}


def tiny_shapes(architecture: str = "llama", *, num_layers: int = 2) -> dict[str, tuple[int, ...]]:
    """Tensor name -> (out, in) of the model that `tiny_metadata` describes."""
    block = {
        "attn_norm.weight": (32,),
        "attn_q.weight": (32, 32),
        "attn_k.weight": (16, 32),
        "attn_v.weight": (16, 32),
        "attn_output.weight": (32, 32),
        "ffn_norm.weight": (32,),
        "ffn_gate.weight": (64, 32),
        "ffn_up.weight": (64, 32),
        "ffn_down.weight": (32, 64),
    }
    if architecture == "qwen2":
        block |= {"attn_q.bias": (32,), "attn_k.bias": (16,), "attn_v.bias": (16,)}
    if architecture in ("qwen3", "gemma3"):
        block |= {"attn_q_norm.weight": (8,), "attn_k_norm.weight": (8,)}
    if architecture == "gemma3":
        block |= {"post_attention_norm.weight": (32,), "post_ffw_norm.weight": (32,)}
    blocks = {f"blk.{layer}.{name}": shape for layer in range(num_layers) for name, shape in block.items()}
    return {"token_embd.weight": (VOCAB, 32), **blocks, "output_norm.weight": (32,), "output.weight": (VOCAB, 32)}


def make_source(
    architecture: str = "llama",
    *,
    metadata: Changes | None = None,
    shapes: Mapping[str, tuple[int, ...] | None] | None = None,
    tensor_type: str = "F32",
    seed: int = 0,
) -> ModelSource:
    """A tiny model with some keys and tensors changed, added or (None) removed. Vectors stay F32."""
    keys = _changed(tiny_metadata(architecture), metadata or {})
    num_layers = int(tiny_metadata(architecture)[f"{architecture}.block_count"])
    wanted = _changed(tiny_shapes(architecture, num_layers=num_layers), shapes or {})
    rng = np.random.default_rng(seed)
    tensors = {
        name: make_tensor(name, "F32" if len(shape) == 1 else tensor_type, shape, rng=rng)
        for name, shape in wanted.items()
    }
    return ModelSource(
        path=FILE,
        format="gguf",
        architecture=architecture,
        metadata=Metadata(FILE, keys),
        tensors=TensorTable(FILE, tensors),
        header_digest="0",
        files=(),
    )


def make_tensor(name: str, tensor_type: str, shape: tuple[int, ...], *, rng: np.random.Generator) -> TensorRef:
    """Random values around 0.3 (norms around 1), stored as `tensor_type`."""
    if tensor_type == "F32":
        values = rng.standard_normal(shape).astype(np.float32) * np.float32(0.3)
        values = values + np.float32(1) if "norm" in name else values
        return TensorRef(name, "F32", shape, _bytes_of(values))
    row = TENSOR_TYPES[tensor_type]
    if tensor_type in ("F16", "BF16"):
        values = rng.standard_normal(shape).astype(np.float32) * np.float32(0.3)
        stored = values.astype(np.float16) if tensor_type == "F16" else (values.view(np.uint32) >> 16).astype(np.uint16)
        return TensorRef(name, tensor_type, shape, _bytes_of(stored))
    blocks = rng.integers(0, 256, (row.num_bytes(shape) // row.block_bytes, row.block_bytes), dtype=np.uint8)
    for offset in _scale_offsets(tensor_type):
        scales = rng.uniform(0.5, 1.5, (len(blocks), 1)) * _SCALE[tensor_type]
        blocks[:, offset : offset + 2] = scales.astype(np.float16).view(np.uint8)
    return TensorRef(name, tensor_type, shape, _bytes_of(blocks))


# Makes random blocks of each type about 0.3 in size.
_SCALE = {
    "Q8_0": 0.004,
    "Q4_0": 0.06,
    "Q4_1": 0.05,
    "Q5_0": 0.03,
    "Q5_1": 0.02,
    "Q4_K": 0.0015,
    "Q5_K": 0.0007,
    "Q6_K": 0.0002,
}


def _scale_offsets(tensor_type: str) -> list[int]:
    if tensor_type == "Q6_K":
        return [208]
    return [0] if tensor_type in ("Q8_0", "Q4_0", "Q5_0") else [0, 2]


def _bytes_of(values: Any) -> Any:
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    data.setflags(write=False)
    return data


def _changed(values: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    return {name: value for name, value in {**values, **changes}.items() if value is not None}
