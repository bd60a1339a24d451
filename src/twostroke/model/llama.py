"""Llama and what shares its blocks: Mistral, SmolLM2, Qwen 2 and 3 differ by biases, a norm on q and k and the rope."""

from dataclasses import dataclass

from twostroke.errors import ModelFileError
from twostroke.model.hyperparameters import DecoderShape, Hyperparameters, read_decoder_shape
from twostroke.model.pooling import embeds
from twostroke.model.rope_scaling import read_rope_scaling, rope_table
from twostroke.model.source import ModelSource
from twostroke.program.build import ProgramBuilder
from twostroke.program.op import Activation, RopeStyle
from twostroke.program.program import Program, RopeTable

DEFAULT_ROPE_BASE = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """What a llama-like model says of itself. `window` holds for every layer."""

    shape: DecoderShape
    rope: RopeTable
    rope_style: RopeStyle
    context_length: int
    window: int | None = None
    needs_qkv_bias: bool = False
    has_qk_norm: bool = False


def read_llama(source: ModelSource) -> LlamaConfig:
    """Read and check the metadata of a llama file. GGUF stores q and k so that neighbours turn together."""
    params = Hyperparameters(source)
    shape = read_decoder_shape(params)
    rope, context_length = read_rope(params, shape)
    style = source.metadata.text("twostroke.rope_style", default=RopeStyle.PAIRS.value)
    if style not in tuple(RopeStyle):
        known = " or ".join(RopeStyle)
        raise ModelFileError(source.path, f"key 'twostroke.rope_style' is {style!r:.80}: it must be {known}")
    return LlamaConfig(
        shape=shape,
        rope=rope,
        rope_style=RopeStyle(style),
        context_length=context_length,
        window=params.optional_count("attention.sliding_window"),
    )


def read_rope(params: Hyperparameters, shape: DecoderShape) -> tuple[RopeTable, int]:
    """The model's rope table, and its context once the scaling has stretched it."""
    scaling = read_rope_scaling(params, context_length=shape.context_length, rotary_dim=shape.rotary_dim)
    base = params.above_one("rope.freq_base", default=DEFAULT_ROPE_BASE)
    table = rope_table("rope", base=base, rotary_dim=shape.rotary_dim, scaling=scaling)
    return table, max(shape.context_length, scaling.stretched_context)


def build_llama(source: ModelSource, config: LlamaConfig) -> Program:
    """Embedding, `num_layers` blocks of attention and gated feed-forward with norms before, norm, head if it writes."""
    shape = config.shape
    b = ProgramBuilder(source.tensors, file=source.path, architecture=source.architecture)
    table = b.rope_table(config.rope)
    x = b.embed("token_embd.weight", vocab_size=shape.vocab_size, width=shape.width)
    for layer in range(shape.num_layers):
        mixed = _attend(b, x, layer=layer, config=config, table=table)
        if layer == shape.num_layers - 1:  # of the other tokens nobody reads more than keys and values
            x, mixed = b.select(x), b.select(mixed)
        x = _attention_output(b, x, mixed, blk=f"blk.{layer}", config=config)
        x = _feed_forward_block(b, x, blk=f"blk.{layer}", config=config)
    x = b.rmsnorm(x, "output_norm.weight", eps=shape.eps)
    if embeds(source):
        return b.finish(vocab_size=shape.vocab_size, context_length=config.context_length)
    head = "output.weight" if b.has("output.weight") else "token_embd.weight"
    b.logits(x, head, vocab_size=shape.vocab_size)
    return b.finish(vocab_size=shape.vocab_size, context_length=config.context_length)


def _attend(b: ProgramBuilder, x: int, *, layer: int, config: LlamaConfig, table: int) -> int:
    shape, blk = config.shape, f"blk.{layer}"
    widths = {f"{blk}.attn_q": shape.q_width, f"{blk}.attn_k": shape.kv_width, f"{blk}.attn_v": shape.kv_width}
    normed = b.rmsnorm(x, f"{blk}.attn_norm.weight", eps=shape.eps)
    q, k, v = b.linear(normed, widths, needs_bias=config.needs_qkv_bias)
    if config.has_qk_norm:
        q = b.rmsnorm(q, f"{blk}.attn_q_norm.weight", eps=shape.eps, group=shape.head_dim)
        k = b.rmsnorm(k, f"{blk}.attn_k_norm.weight", eps=shape.eps, group=shape.head_dim)
    q, k = (
        b.rope(
            value,
            head_dim=shape.head_dim,
            rotary_dim=shape.rotary_dim,
            style=config.rope_style,
            table=table,
            name=f"{blk}.rope_{name}",
        )
        for value, name in ((q, "q"), (k, "k"))
    )
    cache = b.kv_layer(layer, num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim, window=config.window)
    b.kv_write(k, v, to=cache, name=f"{blk}.kv_write")
    return b.attend(q, to=cache, scale=shape.head_dim**-0.5, name=f"{blk}.attend")


def _attention_output(b: ProgramBuilder, x: int, mixed: int, *, blk: str, config: LlamaConfig) -> int:
    (projected,) = b.linear(mixed, {f"{blk}.attn_output": config.shape.width})
    return b.add(x, projected, name=f"{blk}.attn_add")


def _feed_forward_block(b: ProgramBuilder, x: int, *, blk: str, config: LlamaConfig) -> int:
    shape = config.shape
    normed = b.rmsnorm(x, f"{blk}.ffn_norm.weight", eps=shape.eps)
    gate, up = b.linear(normed, {f"{blk}.ffn_gate": shape.ff_width, f"{blk}.ffn_up": shape.ff_width})
    gated = b.glu(gate, up, activation=Activation.SILU, name=f"{blk}.glu")
    (projected,) = b.linear(gated, {f"{blk}.ffn_down": shape.width})
    return b.add(x, projected, name=f"{blk}.ffn_add")
