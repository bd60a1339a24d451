"""A real one-layer llama GGUF whose next-token distribution is a table we choose.

Width = vocabulary (512 by default, 8 heads of 64), embedding = identity, attention output and FFN down
= 0. So the residual after the layer is the one-hot of the last token, and logits[j] = log p(j | last).
"""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.cases.make_malformed import (
    T_ARR,
    T_F32,
    T_I32,
    T_STR,
    T_U32,
    KeyValue,
    Tensor,
    build_gguf,
    key_values,
    vocab,
)

Table = Mapping[int, int | Mapping[int, float]]  # token -> the next one, or next -> probability
NEVER = -60.0  # logit of what the table does not name
EOS = 2
_FFN_WIDTH = 8


@dataclass(frozen=True, slots=True)
class Puppet:
    """The file's bytes and what a test needs to know of it."""

    file: bytes
    vocab_size: int


def byte_token(byte: int) -> int:
    """The id of the token that stands for one byte."""
    return 3 + byte


def build_puppet(
    table: Table,
    *,
    extra_tokens: Sequence[str] = (),
    control_tokens: Sequence[str] = (),
    default: int = EOS,
    more_keys: Sequence[KeyValue] = (),
    width: int = 512,
    num_heads: int = 8,
) -> Puppet:
    """`extra_tokens` follow the base vocabulary as normal tokens, `control_tokens` follow those.

    Tokens without a row are followed by `default`.
    """
    tokens = vocab() + [(text, -6.0, 1) for text in extra_tokens] + [(text, 0.0, 3) for text in control_tokens]
    tokens += [(f"[P{index}]", -99.0, 1) for index in range(len(tokens), width)]
    size = len(tokens)
    changes = {
        "tokenizer.ggml.tokens": (T_ARR, (T_STR, [token[0] for token in tokens])),
        "tokenizer.ggml.scores": (T_ARR, (T_F32, [token[1] for token in tokens])),
        "tokenizer.ggml.token_type": (T_ARR, (T_I32, [token[2] for token in tokens])),
        "llama.rope.dimension_count": (T_U32, size // num_heads),
    }
    base = key_values(width=size, ffn_width=_FFN_WIDTH, num_heads=num_heads)
    keys = [(key, *changes.get(str(key), (kind, value))) for key, kind, value in base]
    return Puppet(build_gguf([*keys, *more_keys], _weights(table, default, size))[0], size)


def _weights(table: Table, default: int, size: int) -> list[Tensor]:
    ones = struct.pack(f"<{size}f", *[1.0] * size)
    identity = b"".join(struct.pack("<f", 1.0).rjust(4 * (i + 1), b"\0").ljust(4 * size, b"\0") for i in range(size))
    zeros = bytes(4 * size * size)
    ffn_zeros = bytes(4 * size * _FFN_WIDTH)
    return [
        ("token_embd.weight", (size, size), 0, identity),
        ("blk.0.attn_norm.weight", (size,), 0, ones),
        *[(f"blk.0.attn_{part}.weight", (size, size), 0, zeros) for part in ("q", "k", "v", "output")],
        ("blk.0.ffn_norm.weight", (size,), 0, ones),
        ("blk.0.ffn_gate.weight", (size, _FFN_WIDTH), 0, ffn_zeros),
        ("blk.0.ffn_up.weight", (size, _FFN_WIDTH), 0, ffn_zeros),
        ("blk.0.ffn_down.weight", (_FFN_WIDTH, size), 0, ffn_zeros),
        ("output_norm.weight", (size,), 0, ones),
        ("output.weight", (size, size), 0, _output(table, default, size)),
    ]


def _output(table: Table, default: int, size: int) -> bytes:
    """Row j, column t: the logit of j after t, over the gain the norm gives a one-hot."""
    gain = 1.0 / math.sqrt(1.0 / size + 1e-5)
    rows = [table.get(token, default) for token in range(size)]
    laws = [{row: 1.0} if isinstance(row, int) else row for row in rows]
    logits = [[NEVER / gain] * size for _ in range(size)]
    for token, law in enumerate(laws):
        for following, probability in law.items():
            if probability > 0:
                logits[following][token] = math.log(probability) / gain
    return b"".join(struct.pack(f"<{size}f", *row) for row in logits)
