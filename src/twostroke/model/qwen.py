"""Qwen 2 (biases on q, k, v) and Qwen 3 (a norm on q and k): Llama's blocks, halves turn together in both formats."""

from twostroke.errors import UnsupportedModelError
from twostroke.model.hyperparameters import Hyperparameters, read_decoder_shape
from twostroke.model.llama import LlamaConfig, read_rope
from twostroke.model.source import ModelSource
from twostroke.program.op import RopeStyle


def read_qwen2(source: ModelSource) -> LlamaConfig:
    """Read and check the metadata of a qwen2 file."""
    return _read_qwen(source, needs_qkv_bias=True, has_qk_norm=False)


def read_qwen3(source: ModelSource) -> LlamaConfig:
    """Read and check the metadata of a qwen3 file."""
    return _read_qwen(source, needs_qkv_bias=False, has_qk_norm=True)


def _read_qwen(source: ModelSource, *, needs_qkv_bias: bool, has_qk_norm: bool) -> LlamaConfig:
    params = Hyperparameters(source)
    window = params.optional_count("attention.sliding_window")
    if window is not None:
        raise UnsupportedModelError(
            f"{source.path}: key {params.key('attention.sliding_window')!r} is {window}: "
            "supported are Qwen models with full attention in every layer"
        )
    shape = read_decoder_shape(params)
    rope, context_length = read_rope(params, shape)
    return LlamaConfig(
        shape=shape,
        rope=rope,
        rope_style=RopeStyle.HALVES,
        context_length=context_length,
        needs_qkv_bias=needs_qkv_bias,
        has_qk_norm=has_qk_norm,
    )
