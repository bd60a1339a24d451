"""Small whole models as GGUF files with random weights, in any mix of tensor types."""

from pathlib import Path

import numpy as np

from tests.cases.make_malformed import T_ARR, T_F32, T_I32, T_STR, T_U32, build_gguf, vocab
from tests.native.weight_builders import make_bytes
from twostroke.program.quant import TENSOR_TYPES

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
Tensor = tuple[str, tuple[int, ...], int, bytes]


def write_llama(path: Path, *, tensor_type: str, head_type: str = "Q8_0", seed: int = 0) -> Path:
    """A llama of two layers."""
    matrices = [("attn_q", WIDTH, HEADS * HEAD_DIM), ("attn_k", WIDTH, KV_HEADS * HEAD_DIM)]
    matrices += [("attn_v", WIDTH, KV_HEADS * HEAD_DIM), ("attn_output", HEADS * HEAD_DIM, WIDTH)]
    matrices += [("ffn_gate", WIDTH, FEED), ("ffn_up", WIDTH, FEED), ("ffn_down", FEED, WIDTH)]
    tensors = [_matrix("token_embd.weight", WIDTH, len(vocab()), head_type, seed)]
    for layer in range(LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            tensors.append(_norm(f"blk.{layer}.{norm}.weight", WIDTH))
        for number, (name, cols, rows) in enumerate(matrices):
            tensors.append(_matrix(f"blk.{layer}.{name}.weight", cols, rows, tensor_type, seed + 100 * layer + number))
    tensors.append(_norm("output_norm.weight", WIDTH))
    path.write_bytes(build_gguf(_metadata("llama"), tensors)[0])
    return path


def write_gemma3(path: Path, *, tensor_type: str, window: int = 24, layers: int = 6, seed: int = 0) -> Path:
    """A gemma3 of one full pattern: five layers with a window, one without."""
    matrices = [("attn_q", WIDTH, HEADS * HEAD_DIM), ("attn_k", WIDTH, KV_HEADS * HEAD_DIM)]
    matrices += [("attn_v", WIDTH, KV_HEADS * HEAD_DIM), ("attn_output", HEADS * HEAD_DIM, WIDTH)]
    matrices += [("ffn_gate", WIDTH, FEED), ("ffn_up", WIDTH, FEED), ("ffn_down", FEED, WIDTH)]
    tensors = [_matrix("token_embd.weight", WIDTH, len(vocab()), "Q8_0", seed)]
    for layer in range(layers):
        for norm in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            tensors.append(_norm(f"blk.{layer}.{norm}.weight", WIDTH))
        for norm in ("attn_q_norm", "attn_k_norm"):
            tensors.append(_norm(f"blk.{layer}.{norm}.weight", HEAD_DIM))
        for number, (name, cols, rows) in enumerate(matrices):
            tensors.append(_matrix(f"blk.{layer}.{name}.weight", cols, rows, tensor_type, seed + 100 * layer + number))
    tensors.append(_norm("output_norm.weight", WIDTH))
    extra = [("gemma3.attention.sliding_window", T_U32, window), ("gemma3.rope.freq_base", T_F32, 1e6)]
    path.write_bytes(build_gguf([*_metadata("gemma3", layers=layers), *extra], tensors)[0])
    return path


def _metadata(architecture: str, *, layers: int = LAYERS) -> list[tuple[str, int, object]]:
    tokens = vocab()
    return [
        ("general.architecture", T_STR, architecture),
        ("general.alignment", T_U32, 32),
        (f"{architecture}.block_count", T_U32, layers),
        (f"{architecture}.context_length", T_U32, CONTEXT),
        (f"{architecture}.embedding_length", T_U32, WIDTH),
        (f"{architecture}.feed_forward_length", T_U32, FEED),
        (f"{architecture}.attention.head_count", T_U32, HEADS),
        (f"{architecture}.attention.head_count_kv", T_U32, KV_HEADS),
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


def _norm(name: str, width: int) -> Tensor:
    return name, (width,), TYPE_IDS["F32"], np.ones(width, np.float32).tobytes()


def _matrix(name: str, cols: int, rows: int, tensor_type: str, seed: int) -> Tensor:
    """Random values of a size that keeps activations near one."""
    if TENSOR_TYPES[tensor_type].block_size == 1:
        values = np.random.default_rng(seed).standard_normal((rows, cols)).astype(np.float32) / np.float32(cols**0.5)
        if tensor_type == "F32":
            data = values.tobytes()
        elif tensor_type == "F16":
            data = values.astype(np.float16).tobytes()
        else:
            data = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    else:
        data = make_bytes(tensor_type, rows, cols, seed=seed).tobytes()
    return name, (cols, rows), TYPE_IDS[tensor_type], data
