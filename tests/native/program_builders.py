"""Programs that show one op through the native reader: their matrices pick elements, so nothing is rounded on the way.

A token's embedding row is (q of all heads, k of all kv heads, v of all kv heads); the logits are what attend
made of it, then zeros up to the vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twostroke.program.kv_precision import quantise_heads, rotate, rotation_size, round_queries
from twostroke.program.native import NativeReader
from twostroke.program.op import AttendAttrs, KVWriteAttrs, LinearAttrs, NoAttrs, Op
from twostroke.program.program import Axis, BoundStep, Instr, KVGroup, Program, Value, WeightSpec
from twostroke.program.quant import FloatArray, to_bf16
from twostroke.program.reader import KVSpec, Precision

Row = tuple[Sequence[int], int, Sequence[int]]  # token ids, position of the first, block ids


@dataclass(frozen=True)
class Stored:
    """A tensor as a reader takes it."""

    tensor_type: str
    shape: tuple[int, ...]
    data: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


def stored(values: FloatArray) -> Stored:
    flat = np.ascontiguousarray(values, np.float32)
    return Stored("F32", values.shape, flat.reshape(-1).view(np.uint8))


@dataclass(frozen=True)
class Heads:
    """The shape of one attend."""

    num_heads: int = 3
    num_kv_heads: int = 1
    head_dim: int = 64
    window: int | None = None
    softcap: float | None = None

    @property
    def scale(self) -> float:
        return float(self.head_dim**-0.5)


class AttentionModel:
    """One attend over random embeddings, with the float64 answer."""

    def __init__(self, heads: Heads, *, num_ids: int, seed: int = 0, context_length: int = 2048) -> None:
        self.heads = heads
        width, kv_width = heads.num_heads * heads.head_dim, heads.num_kv_heads * heads.head_dim
        self.vocab = max(num_ids, width)
        rng = np.random.default_rng(seed)
        self.embedding = rng.standard_normal((self.vocab, width + 2 * kv_width)).astype(np.float32)
        self.program = _attention_program(heads, self.vocab, context_length)

    def make_reader(
        self,
        *,
        precision: Precision = "f32",
        isa: str | None = None,
        threads: int = 1,
        block_size: int = 16,
        num_blocks: int = 64,
        max_tokens: int = 640,
    ) -> NativeReader:
        width, total = self.heads.num_heads * self.heads.head_dim, self.embedding.shape[1]
        kv_width = (total - width) // 2
        pick = np.eye(total, dtype=np.float32)
        tensors = {
            "embedding": stored(self.embedding),
            "q": stored(pick[:width]),
            "k": stored(pick[width : width + kv_width]),
            "v": stored(pick[width + kv_width :]),
            "out": stored(np.eye(self.vocab, width, dtype=np.float32)),
        }
        kv = KVSpec(precision, block_size, (num_blocks,))
        return NativeReader(self.program, tensors, kv=kv, threads=threads, max_tokens=max_tokens, max_rows=16, isa=isa)

    def run(self, reader: NativeReader, rows: Sequence[Row]) -> FloatArray:
        """What attend gave for every token, [tokens, heads * head_dim]."""
        out = reader.run(make_step(rows))
        return out[:, : self.heads.num_heads * self.heads.head_dim].copy()

    def expect(self, ids: Sequence[int], precision: Precision) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Softmax attention of one whole sequence in float64 over the values as stored."""
        heads = self.heads
        width, n = heads.num_heads * heads.head_dim, len(ids)
        rows = self.embedding[list(ids)]
        kv = rows[:, width:].reshape(n, 2, heads.num_kv_heads, heads.head_dim)
        q_heads = rows[:, :width].reshape(n, heads.num_kv_heads, -1, heads.head_dim)
        if precision == "int8":
            kv = np.stack([rotate_back(as_int8(rotate(kv[:, 0]))), as_int8(kv[:, 1])], axis=1)
        kv = to_bf16(kv) if precision == "bf16" else kv.astype(np.float16) if precision == "f16" else kv
        rounding = {"bf16": to_bf16, "int8": round_queries}
        q = (rounding[precision](q_heads) if precision in rounding else q_heads).astype(np.float64)
        k, v = kv.astype(np.float64).transpose(1, 0, 2, 3)
        scores = np.einsum("qhgd,khd->hgqk", q, k) * heads.scale
        if heads.softcap is not None:
            scores = heads.softcap * np.tanh(scores / heads.softcap)
        distance = np.arange(n)[:, None] - np.arange(n)
        hidden = (distance < 0) | (distance >= (heads.window or n))
        scores = np.where(hidden, -np.inf, scores)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        out: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = np.einsum("hgqk,khd->qhgd", weights, v).reshape(n, -1)
        return out


def as_int8(heads: FloatArray) -> FloatArray:
    """Heads as an int8 cache gives them back."""
    integers, scales = quantise_heads(heads)
    return integers.astype(np.float32) * scales[..., None]


def rotate_back(heads: FloatArray) -> FloatArray:
    return rotate(heads) / np.float32(rotation_size(heads.shape[-1]))


def make_step(rows: Sequence[Row], *, selected: Sequence[int] | None = None) -> BoundStep:
    """All tokens of the rows are selected unless told."""
    token_ids = [token for ids, _, _ in rows for token in ids]
    longest = max(len(blocks) for _, _, blocks in rows)
    table = np.array([[*blocks, *[-1] * (longest - len(blocks))] for _, _, blocks in rows], np.int32)
    return BoundStep(
        token_ids=np.array(token_ids, np.int32),
        row_starts=np.cumsum([0, *(len(ids) for ids, _, _ in rows)]).astype(np.int32),
        row_positions=np.array([position for _, position, _ in rows], np.int32),
        block_tables=(table,),
        selected=np.array(range(len(token_ids)) if selected is None else selected, np.int32),
    )


def _attention_program(heads: Heads, vocab: int, context_length: int) -> Program:
    width, kv_width = heads.num_heads * heads.head_dim, heads.num_kv_heads * heads.head_dim
    total = width + 2 * kv_width
    widths = (total, width, kv_width, kv_width, width, width, vocab)
    names = ("embed", "q", "k", "v", "attend", "select", "logits")
    axes = (*[Axis.TOKENS] * 5, Axis.SELECTED, Axis.SELECTED)
    attend = AttendAttrs(
        0, 0, heads.num_heads, heads.num_kv_heads, heads.head_dim, heads.scale, heads.window, heads.softcap
    )
    instrs = (
        Instr(Op.EMBED, (), (0,), ("embedding",), NoAttrs(), "embed"),
        Instr(Op.LINEAR, (0,), (1, 2, 3), ("q", "k", "v"), LinearAttrs((None, None, None)), "qkv"),
        Instr(Op.KV_WRITE, (2, 3), (), (), KVWriteAttrs(0, 0, heads.num_kv_heads, heads.head_dim), "kv_write"),
        Instr(Op.ATTEND, (1,), (4,), (), attend, "attend"),
        Instr(Op.SELECT, (4,), (5,), (), NoAttrs(), "select"),
        Instr(Op.LOGITS, (5,), (6,), ("out",), NoAttrs(), "logits"),
    )
    shapes = {
        "embedding": (vocab, total),
        "q": (width, total),
        "k": (kv_width, total),
        "v": (kv_width, total),
        "out": (vocab, width),
    }
    return Program(
        architecture="attention",
        values=tuple(
            Value(id, name, wide, axis) for id, (name, wide, axis) in enumerate(zip(names, widths, axes, strict=True))
        ),
        instrs=instrs,
        weights={name: WeightSpec(name, shape, "F32") for name, shape in shapes.items()},
        rope_tables=(),
        kv_groups=(KVGroup(0, (0,), heads.num_kv_heads, heads.head_dim, heads.window),),
        width=total,
        vocab_size=vocab,
        context_length=context_length,
    )
