"""Small whole models as GGUF files with random weights, in any mix of tensor types."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.cases.make_malformed import T_ARR, T_F32, T_I32, T_STR, T_U32, KeyValue, Tensor, build_gguf, vocab
from tests.native.weight_builders import HALF_FIELDS, make_bytes
from twostroke.program.quant import TENSOR_TYPES, dequantise

TYPE_IDS = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q5_0": 6,
    "Q5_1": 7,
    "Q8_0": 8,
    "Q4_K": 12,
    "Q5_K": 13,
    "Q6_K": 14,
    "BF16": 30,
}
WIDTH = 256  # one super-block, so that every type fits
FEED = 256
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 64
LAYERS = 2
CONTEXT = 1024


def write_llama(path: Path, **options: Any) -> Path:
    """A llama of two layers."""
    return write_model(path, "llama", **options)


def write_gemma3(
    path: Path, *, window: int = 24, layers: int = 6, more_keys: Sequence[KeyValue] = (), **options: Any
) -> Path:
    """A gemma3 of one full pattern: five layers with a window, one without."""
    keys = [("gemma3.attention.sliding_window", T_U32, window), ("gemma3.rope.freq_base", T_F32, 1e6)]
    return write_model(path, "gemma3", layers=layers, keys=[*keys, *more_keys], **options)


def write_model(
    path: Path,
    architecture: str,
    *,
    tensor_type: str,
    head_type: str = "Q8_0",
    layers: int = LAYERS,
    heads: tuple[int, int] = (HEADS, KV_HEADS),
    keys: Sequence[KeyValue] = (),
    rope_divisors: Sequence[float] = (),
    seed: int = 0,
) -> Path:
    """A model of this family: matrices of `tensor_type`, tied head of `head_type`, vectors F32, keys appended."""
    tensors = [_matrix("token_embd.weight", WIDTH, len(vocab()), head_type, seed)]
    for layer in range(layers):
        for number, (name, size) in enumerate(_vectors(architecture, heads).items()):
            centre = 0.0 if name.endswith("bias") else 1.0
            tensors.append(_vector(f"blk.{layer}.{name}", size, centre=centre, seed=[seed, layer, number]))
        for number, (name, cols, rows) in enumerate(_matrices(heads)):
            tensors.append(_matrix(f"blk.{layer}.{name}.weight", cols, rows, tensor_type, seed + 100 * layer + number))
    tensors.append(_vector("output_norm.weight", WIDTH, centre=1.0, seed=[seed]))
    if rope_divisors:
        data = np.array(rope_divisors, np.float32).tobytes()
        tensors.append(("rope_freqs.weight", (len(rope_divisors),), TYPE_IDS["F32"], data))
    path.write_bytes(build_gguf([*_metadata(architecture, layers=layers, heads=heads), *keys], tensors)[0])
    return path


def _matrices(heads: tuple[int, int]) -> list[tuple[str, int, int]]:
    """Name, columns and rows of a block's matrices."""
    q_width, kv_width = (number * HEAD_DIM for number in heads)
    return [
        ("attn_q", WIDTH, q_width),
        ("attn_k", WIDTH, kv_width),
        ("attn_v", WIDTH, kv_width),
        ("attn_output", q_width, WIDTH),
        ("ffn_gate", WIDTH, FEED),
        ("ffn_up", WIDTH, FEED),
        ("ffn_down", FEED, WIDTH),
    ]


def _vectors(architecture: str, heads: tuple[int, int]) -> dict[str, int]:
    """Norms and biases of a block."""
    sizes = {"attn_norm.weight": WIDTH, "ffn_norm.weight": WIDTH}
    if architecture == "qwen2":
        q_width, kv_width = (number * HEAD_DIM for number in heads)
        sizes |= {"attn_q.bias": q_width, "attn_k.bias": kv_width, "attn_v.bias": kv_width}
    if architecture in ("qwen3", "gemma3"):
        sizes |= {"attn_q_norm.weight": HEAD_DIM, "attn_k_norm.weight": HEAD_DIM}
    if architecture == "gemma3":
        sizes |= {"post_attention_norm.weight": WIDTH, "post_ffw_norm.weight": WIDTH}
    return sizes


def _metadata(architecture: str, *, layers: int, heads: tuple[int, int]) -> list[KeyValue]:
    tokens = vocab()
    return [
        ("general.architecture", T_STR, architecture),
        ("general.alignment", T_U32, 32),
        (f"{architecture}.block_count", T_U32, layers),
        (f"{architecture}.context_length", T_U32, CONTEXT),
        (f"{architecture}.embedding_length", T_U32, WIDTH),
        (f"{architecture}.feed_forward_length", T_U32, FEED),
        (f"{architecture}.attention.head_count", T_U32, heads[0]),
        (f"{architecture}.attention.head_count_kv", T_U32, heads[1]),
        (f"{architecture}.attention.key_length", T_U32, HEAD_DIM),
        (f"{architecture}.attention.value_length", T_U32, HEAD_DIM),
        (f"{architecture}.rope.dimension_count", T_U32, HEAD_DIM),
        (f"{architecture}.attention.layer_norm_rms_epsilon", T_F32, 1e-5),
        ("tokenizer.ggml.model", T_STR, "llama"),
        ("tokenizer.ggml.tokens", T_ARR, (T_STR, [token[0] for token in tokens])),
        ("tokenizer.ggml.scores", T_ARR, (T_F32, [token[1] for token in tokens])),
        ("tokenizer.ggml.token_type", T_ARR, (T_I32, [token[2] for token in tokens])),
        ("tokenizer.ggml.bos_token_id", T_U32, 1),
        ("tokenizer.ggml.eos_token_id", T_U32, 2),
        ("tokenizer.ggml.unknown_token_id", T_U32, 0),
    ]


def _vector(name: str, size: int, *, centre: float, seed: Sequence[int]) -> Tensor:
    """Random too: norms of one and biases of zero hide errors."""
    values = np.random.default_rng([*seed, size]).standard_normal(size) * 0.2 + centre
    return name, (size,), TYPE_IDS["F32"], values.astype(np.float32).tobytes()


def _matrix(name: str, cols: int, rows: int, tensor_type: str, seed: int) -> Tensor:
    """Random values of a size that keeps activations near one."""
    if tensor_type in HALF_FIELDS:
        return name, (cols, rows), TYPE_IDS[tensor_type], _scaled_blocks(tensor_type, rows, cols, seed).tobytes()
    values = np.random.default_rng(seed).standard_normal((rows, cols)).astype(np.float32) / np.float32(cols**0.5)
    if tensor_type == "F32":
        data = values.tobytes()
    elif tensor_type == "F16":
        data = values.astype(np.float16).tobytes()
    else:
        data = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return name, (cols, rows), TYPE_IDS[tensor_type], data


def _scaled_blocks(tensor_type: str, rows: int, cols: int, seed: int) -> npt.NDArray[np.uint8]:
    """Random bits whose scales give the matrix a standard deviation of one over the root of its columns."""
    data = make_bytes(tensor_type, rows, cols, seed=seed)
    factor = cols**-0.5 / dequantise(tensor_type, data, (rows, cols)).std()
    blocks = data.reshape(-1, TENSOR_TYPES[tensor_type].block_bytes)
    for offset in HALF_FIELDS[tensor_type]:
        halves = np.ascontiguousarray(blocks[:, offset : offset + 2]).view(np.float16) * np.float32(factor)
        blocks[:, offset : offset + 2] = halves.astype(np.float16).view(np.uint8)
    return data
