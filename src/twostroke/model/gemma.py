"""Gemma 3: five sliding-window layers with a local rope to each global one, norms before and after both halves of a
block, a norm on q and k, an embedding scaled by the root of the width."""

import math
from dataclasses import dataclass

import numpy as np

from twostroke.model.hyperparameters import DecoderShape, Hyperparameters, read_decoder_shape
from twostroke.model.pooling import embeds
from twostroke.model.rope_scaling import NoScaling, read_rope_scaling, rope_table
from twostroke.model.source import ModelSource
from twostroke.program.build import ProgramBuilder
from twostroke.program.op import Activation, RopeStyle
from twostroke.program.program import Program, RopeTable

GLOBAL_ROPE_BASE = 1_000_000.0
LOCAL_ROPE_BASE = 10_000.0
WINDOW_PATTERN = 6  # every sixth layer sees everything
LAYERS_OF_27B = 62  # GGUF files do not store the attention scale; only the 27B model's is not head_dim^-0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmaConfig:
    """What a Gemma 3 model says of itself. `windows[i]` is None for a layer with global attention."""

    shape: DecoderShape
    windows: tuple[int | None, ...]
    global_rope: RopeTable
    local_rope: RopeTable
    context_length: int
    attention_scale: float
    attention_softcap: float | None
    final_softcap: float | None


def read_gemma3(source: ModelSource) -> GemmaConfig:
    """Read and check the metadata of a gemma3 file. Rope scaling is for the global layers alone."""
    params = Hyperparameters(source)
    shape = read_decoder_shape(params)
    scaling = read_rope_scaling(params, context_length=shape.context_length, rotary_dim=shape.rotary_dim)
    global_base = params.above_one("rope.freq_base", default=GLOBAL_ROPE_BASE)
    local_base = params.above_one("rope.freq_base_swa", default=LOCAL_ROPE_BASE)
    return GemmaConfig(
        shape=shape,
        windows=_read_windows(params, shape.num_layers),
        global_rope=rope_table("global", base=global_base, rotary_dim=shape.rotary_dim, scaling=scaling),
        local_rope=rope_table("local", base=local_base, rotary_dim=shape.rotary_dim, scaling=NoScaling()),
        context_length=max(shape.context_length, scaling.stretched_context),
        attention_scale=params.positive("attention.scale", default=_default_scale(shape)),
        attention_softcap=params.optional_positive("attn_logit_softcapping"),
        final_softcap=params.optional_positive("final_logit_softcapping"),
    )


def build_gemma3(source: ModelSource, config: GemmaConfig) -> Program:
    """Scaled embedding, `num_layers` blocks, norm, head (the embedding unless the file has its own)."""
    shape = config.shape
    b = ProgramBuilder(source.tensors, file=source.path, architecture=source.architecture)
    x = b.embed("token_embd.weight", vocab_size=shape.vocab_size, width=shape.width)
    x = b.scale(x, factor=math.sqrt(shape.width), name="embd_scale")
    for layer in range(shape.num_layers):
        mixed = _attend(b, x, layer=layer, config=config)
        if layer == shape.num_layers - 1:  # of the other tokens nobody reads more than keys and values
            x, mixed = b.select(x), b.select(mixed)
        x = _attention_output(b, x, mixed, blk=f"blk.{layer}", shape=shape)
        x = _feed_forward_block(b, x, blk=f"blk.{layer}", shape=shape)
    x = b.rmsnorm(x, "output_norm.weight", eps=shape.eps)
    if embeds(source):
        return b.finish(vocab_size=shape.vocab_size, context_length=config.context_length)
    head = "output.weight" if b.has("output.weight") else "token_embd.weight"
    logits = b.logits(x, head, vocab_size=shape.vocab_size)
    if config.final_softcap is not None:
        b.softcap(logits, cap=config.final_softcap, name="logits_softcap")
    return b.finish(vocab_size=shape.vocab_size, context_length=config.context_length)


def _attend(b: ProgramBuilder, x: int, *, layer: int, config: GemmaConfig) -> int:
    shape, blk, window = config.shape, f"blk.{layer}", config.windows[layer]
    widths = {f"{blk}.attn_q": shape.q_width, f"{blk}.attn_k": shape.kv_width, f"{blk}.attn_v": shape.kv_width}
    normed = b.rmsnorm(x, f"{blk}.attn_norm.weight", eps=shape.eps)
    q, k, v = b.linear(normed, widths)
    q = b.rmsnorm(q, f"{blk}.attn_q_norm.weight", eps=shape.eps, group=shape.head_dim)
    k = b.rmsnorm(k, f"{blk}.attn_k_norm.weight", eps=shape.eps, group=shape.head_dim)
    table = b.rope_table(config.global_rope if window is None else config.local_rope)
    q, k = (
        b.rope(
            value,
            head_dim=shape.head_dim,
            rotary_dim=shape.rotary_dim,
            style=RopeStyle.HALVES,
            table=table,
            name=f"{blk}.rope_{name}",
        )
        for value, name in ((q, "q"), (k, "k"))
    )
    cache = b.kv_layer(layer, num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim, window=window)
    b.kv_write(k, v, to=cache, name=f"{blk}.kv_write")
    return b.attend(q, to=cache, scale=config.attention_scale, softcap=config.attention_softcap, name=f"{blk}.attend")


def _attention_output(b: ProgramBuilder, x: int, mixed: int, *, blk: str, shape: DecoderShape) -> int:
    (projected,) = b.linear(mixed, {f"{blk}.attn_output": shape.width})
    normed = b.rmsnorm(projected, f"{blk}.post_attention_norm.weight", eps=shape.eps)
    return b.add(x, normed, name=f"{blk}.attn_add")


def _feed_forward_block(b: ProgramBuilder, x: int, *, blk: str, shape: DecoderShape) -> int:
    normed = b.rmsnorm(x, f"{blk}.ffn_norm.weight", eps=shape.eps)
    gate, up = b.linear(normed, {f"{blk}.ffn_gate": shape.ff_width, f"{blk}.ffn_up": shape.ff_width})
    gated = b.glu(gate, up, activation=Activation.GELU_TANH, name=f"{blk}.glu")
    (projected,) = b.linear(gated, {f"{blk}.ffn_down": shape.width})
    normed = b.rmsnorm(projected, f"{blk}.post_ffw_norm.weight", eps=shape.eps)
    return b.add(x, normed, name=f"{blk}.ffn_add")


def _read_windows(params: Hyperparameters, num_layers: int) -> tuple[int | None, ...]:
    """Window of every layer. The pattern is a number n (each n-th layer is global) or one bool per layer (sliding)."""
    window = params.optional_count("attention.sliding_window")
    if window is None:
        return (None,) * num_layers
    name = "attention.sliding_window_pattern"
    if isinstance(params.metadata.get(params.key(name)), np.ndarray):
        slides = params.metadata.booleans(params.key(name)).tolist()
        if len(slides) != num_layers:
            raise params.wrong(name, f"an array of {len(slides)}", f"one entry for each of the {num_layers} layers")
    else:
        period = params.count(name, default=WINDOW_PATTERN)
        slides = [(layer + 1) % period != 0 for layer in range(num_layers)]
    return tuple(window if is_sliding else None for is_sliding in slides)


def _default_scale(shape: DecoderShape) -> float:
    per_head = shape.width / shape.num_heads if shape.num_layers == LAYERS_OF_27B else shape.head_dim
    return float(per_head**-0.5)
