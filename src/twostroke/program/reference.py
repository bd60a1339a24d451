"""The living definition of every op: a slow reader in NumPy float32 that judges the fast ones.

One function per op, spelled like it. `activations="f32"` computes with the stored weights' exact values
(it judges fidelity); `"a8"` rounds what goes into each linear and attention the way the native kernels do
(it judges kernels). Sums are NumPy's: compare with a tolerance, not bits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from twostroke.errors import KernelError
from twostroke.program.kv_precision import (
    kv_head_bytes,
    quantise_heads,
    rotate,
    rotation_size,
    round_probabilities,
    round_queries,
)
from twostroke.program.op import (
    Activation,
    AttendAttrs,
    GluAttrs,
    KVWriteAttrs,
    LinearAttrs,
    Op,
    RmsNormAttrs,
    RopeAttrs,
    RopeStyle,
    ScaleAttrs,
    SoftcapAttrs,
)
from twostroke.program.program import BoundStep, Instr, KVGroup, Program, RopeTable
from twostroke.program.quant import TENSOR_TYPES, Arithmetic, FloatArray, StoredTensor, dequantise, to_bf16
from twostroke.program.reader import KVSpec

A8_GROUP = 32  # inputs that share one scale
PANEL = 32  # ids whose logits are computed, and handed on, together
A8_SMALLEST = np.float32(2.0**-100)  # below it a group counts as zero: the inverse of its scale would overflow


def rmsnorm(x: FloatArray, weight: FloatArray, attrs: RmsNormAttrs) -> FloatArray:
    runs = x.reshape(len(x), x.shape[1] // attrs.group, attrs.group)
    mean_square = np.mean(runs * runs, axis=2, keepdims=True)
    normed: FloatArray = runs / np.sqrt(mean_square + np.float32(attrs.eps)) * weight
    return normed.reshape(x.shape)


def quantise_a8(x: FloatArray) -> FloatArray:
    """Symmetric int8 per 32 values, widened back: scale amax / 127, nearest even.

    A group below A8_SMALLEST becomes zero; one with an infinity or NaN becomes NaN.
    """
    groups = x.reshape(len(x), x.shape[1] // A8_GROUP, A8_GROUP)
    amax = np.max(np.abs(groups), axis=2, keepdims=True)
    is_zero = amax < A8_SMALLEST
    with np.errstate(invalid="ignore"):  # infinity times zero is the NaN we want
        inverse = np.float32(127) / np.where(is_zero, np.float32(1), amax)
        scale = np.where(is_zero, np.float32(0), amax / np.float32(127))
        widened: FloatArray = np.rint(groups * inverse) * scale
    return widened.reshape(x.shape)


def linear(x: FloatArray, weight: FloatArray, bias: FloatArray | None) -> FloatArray:
    product: FloatArray = x @ weight.T
    return product if bias is None else product + bias


def rope(x: FloatArray, positions: npt.NDArray[np.int64], table: RopeTable, attrs: RopeAttrs) -> FloatArray:
    angles = positions[:, None] * np.array(table.inv_freq)  # [tokens, rotary_dim / 2] float64
    cos = (np.cos(angles) * table.magnitude).astype(np.float32)[:, None]
    sin = (np.sin(angles) * table.magnitude).astype(np.float32)[:, None]
    turned = x.reshape(len(x), attrs.num_heads, attrs.head_dim).copy()
    half = attrs.rotary_dim // 2
    if attrs.style is RopeStyle.HALVES:
        first, second = slice(0, half), slice(half, attrs.rotary_dim)
    else:
        first, second = slice(0, attrs.rotary_dim, 2), slice(1, attrs.rotary_dim, 2)
    a, b = turned[..., first].copy(), turned[..., second].copy()
    turned[..., first] = a * cos - b * sin
    turned[..., second] = b * cos + a * sin
    return turned.reshape(x.shape)


def candidates(
    logits: FloatArray,
    *,
    k: int,
    allowed: npt.NDArray[np.bool_] | None = None,
    changed: Sequence[int] = (),
    may_rise: bool = False,
) -> set[int]:
    """The panels that a head hands on of a row of logits [vocab]: where the best `k` are, once `changed` changed.

    A panel is PANEL ids; panels rank by the largest logit that is allowed and does not change, then by number. They are
    the best `k`; but a panel with a token that changes is one of them if its logits may rise, or else if by all that is
    allowed it would rank before the last of the `k`.
    """
    stays = np.isin(np.arange(len(logits)), changed, invert=True)
    may_come = np.ones(len(logits), np.bool_) if allowed is None else allowed
    known, possible = _ranks(logits, may_come & stays), _ranks(logits, may_come)
    best = sorted(known.values())[:k]
    last = best[-1] if len(best) == k else (np.inf, 0)
    watched = {token_id // PANEL for token_id in changed}
    kept = watched if may_rise else {panel for panel in watched & possible.keys() if possible[panel] <= last}
    return kept | {panel for panel in known.keys() - watched if known[panel] <= last}


def _ranks(logits: FloatArray, counts: npt.NDArray[np.bool_]) -> dict[int, tuple[float, int]]:
    """Of panels with a logit that counts: the lowest is the best."""
    starts = np.arange(0, len(logits), PANEL)
    largest = np.maximum.reduceat(np.where(counts, logits, np.float32(-np.inf)), starts)
    return {panel: (-float(value), panel) for panel, value in enumerate(largest) if value > -np.inf}


@dataclass(frozen=True, slots=True)
class Rounding:
    """What kernels round of an attend: query heads [tokens, heads, head_dim]; softmax weights of a kv head."""

    queries: Callable[[FloatArray], FloatArray]
    weights: Callable[[FloatArray, int], FloatArray]
    sums_rounded_weights: bool


BF16_ROUNDING = Rounding(to_bf16, lambda weights, kv_head: to_bf16(weights), sums_rounded_weights=True)


def int8_rounding(value_scales: FloatArray, first_key: int) -> Rounding:
    """Over an int8 cache; value_scales [keys, kv heads] of the keys from `first_key` on."""

    def weights(weights: FloatArray, kv_head: int) -> FloatArray:
        return round_probabilities(weights, value_scales[:, kv_head], first_key)

    return Rounding(round_queries, weights, sums_rounded_weights=False)


def attend(
    q: FloatArray,
    k: FloatArray,
    v: FloatArray,
    *,
    visible: npt.NDArray[np.bool_],
    attrs: AttendAttrs,
    rounding: Rounding | None = None,
) -> FloatArray:
    """One row: q [tokens, width], k and v [keys, kv heads, head_dim] as stored, visible [tokens, keys]."""
    heads = q.reshape(len(q), attrs.num_heads, attrs.head_dim)
    if rounding is not None:
        heads = rounding.queries(heads)
    out = np.empty_like(heads)
    queries_per_kv_head = attrs.num_heads // attrs.num_kv_heads
    for head in range(attrs.num_heads):
        kv_head = head // queries_per_kv_head
        scores = heads[:, head] @ k[:, kv_head].T * np.float32(attrs.scale)
        if attrs.softcap is not None:
            scores = softcap(scores, SoftcapAttrs(attrs.softcap))
        scores = np.where(visible, scores, np.float32(-np.inf))
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        factors = weights if rounding is None else rounding.weights(weights, kv_head)
        summed = factors if rounding is not None and rounding.sums_rounded_weights else weights
        out[:, head] = factors @ v[:, kv_head] / summed.sum(axis=1, keepdims=True)
    return out.reshape(q.shape)


def glu(gate: FloatArray, up: FloatArray, attrs: GluAttrs) -> FloatArray:
    if attrs.activation is Activation.SILU:
        with np.errstate(over="ignore"):  # exp(-x) may be inf: the quotient is then 0, as it should be
            activated: FloatArray = gate / (1 + np.exp(-gate))
    else:
        inner = np.float32(np.sqrt(2 / np.pi)) * (gate + np.float32(0.044715) * gate * gate * gate)
        activated = np.float32(0.5) * gate * (1 + np.tanh(inner))
    return activated * up


def scale(x: FloatArray, attrs: ScaleAttrs) -> FloatArray:
    return x * np.float32(attrs.factor)


def softcap(x: FloatArray, attrs: SoftcapAttrs) -> FloatArray:
    capped: FloatArray = np.float32(attrs.cap) * np.tanh(x / np.float32(attrs.cap))
    return capped


class KVArrays:
    """Keys and values of one KV group by slot, in the cache's precision. Fresh memory is NaN: reading it shows."""

    def __init__(self, group: KVGroup, *, kv: KVSpec) -> None:
        self.block_size = kv.block_size
        self.precision = kv.precision
        num_blocks = kv.num_blocks[group.id]
        # bf16 is held as rounded float32, int8 as whole numbers beside their scales
        dtype = np.float16 if kv.precision == "f16" else np.float32
        shape = (2, len(group.layers), num_blocks, kv.block_size, group.num_kv_heads, group.head_dim)
        self.arrays = np.full(shape, np.nan, dtype)
        self.scales = np.full(shape[:-1], np.nan, np.float32)
        heads = 2 * len(group.layers) * kv.block_size * group.num_kv_heads
        self.bytes_per_block = heads * kv_head_bytes(kv.precision, group.head_dim)

    def write(self, layer: int, slots: npt.NDArray[np.int64], k: FloatArray, v: FloatArray) -> None:
        for index, rows in enumerate((k, v)):
            heads = rows.reshape(-1, *self.arrays.shape[4:])
            if self.precision == "int8":
                integers, scales = quantise_heads(heads if index else rotate(heads))
                heads = integers.astype(np.float32)
                self._flat(self.scales, index, layer)[slots] = scales
            elif self.precision == "bf16":
                heads = to_bf16(heads)
            with np.errstate(over="ignore"):  # beyond f16's range is infinity, as on every ISA
                self._flat(self.arrays, index, layer)[slots] = heads.astype(self.arrays.dtype)

    def read(self, layer: int, slots: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """Keys and values [slots, kv heads, head_dim] as float32."""
        k, v = (self._flat(self.arrays, index, layer)[slots].astype(np.float32) for index in (0, 1))
        if self.precision != "int8":
            return k, v
        k_scales, v_scales = (self._flat(self.scales, index, layer)[slots][..., None] for index in (0, 1))
        return rotate(k * k_scales) / np.float32(rotation_size(k.shape[-1])), v * v_scales

    def value_scales(self, layer: int, slots: npt.NDArray[np.int64]) -> FloatArray:
        """[slots, kv heads]."""
        return self._flat(self.scales, 1, layer)[slots]

    def copy_block(self, source: int, target: int) -> None:
        self.arrays[:, :, target] = self.arrays[:, :, source]
        self.scales[:, :, target] = self.scales[:, :, source]

    @staticmethod
    def _flat(arrays: npt.NDArray[Any], index: int, layer: int) -> npt.NDArray[Any]:
        """Keys (0) or values (1) of a layer by slot."""
        by_slot: npt.NDArray[Any] = arrays[index, layer].reshape(-1, *arrays.shape[4:])
        return by_slot


class ReferenceReader:
    """Runs a program over its own NumPy KV cache. Implements `Reader`."""

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, StoredTensor | FloatArray],
        *,
        kv: KVSpec,
        activations: Literal["f32", "a8"] = "f32",
    ) -> None:
        self._program = program
        self._activations = activations
        self._weights = {name: self._load(name, tensors[name]) for name in program.weights}
        self._kv = [KVArrays(group, kv=kv) for group in program.kv_groups]
        self._last_use = {value: index for index, instr in enumerate(program.instrs) for value in instr.inputs}

    def run(self, step: BoundStep) -> FloatArray:
        """Logits [num_selected, vocab], or states [num_selected, width]."""
        _check_step(self._program, step)
        values: dict[int, FloatArray] = {}
        for index, instr in enumerate(self._program.instrs):
            inputs = [values[value] for value in instr.inputs]
            outputs = _WALK[instr.op](self, instr, inputs, step)
            values.update(zip(instr.outputs, outputs, strict=True))
            for value in instr.inputs:
                if self._last_use[value] == index:
                    values.pop(value, None)
        (output,) = values.values()
        return output

    def copy_block(self, group: int, source: int, target: int) -> None:
        self._kv[group].copy_block(source, target)

    @property
    def kv_bytes_per_block(self) -> tuple[int, ...]:
        return tuple(store.bytes_per_block for store in self._kv)

    def close(self) -> None:
        self._weights.clear()
        self._kv.clear()

    def _load(self, name: str, tensor: StoredTensor | FloatArray) -> FloatArray:
        spec = self._program.weights[name]
        if isinstance(tensor, np.ndarray):
            values = tensor.astype(np.float32)
        else:
            values = dequantise(tensor.tensor_type, tensor.data, tensor.shape)
        assert values.shape == spec.shape, f"{name} is {values.shape}, the program says {spec.shape}"
        return values

    def _rounding(self, name: str) -> Arithmetic:
        """The arithmetic to imitate for this weight; FP32 imitates none."""
        if self._activations == "f32":
            return Arithmetic.FP32
        return TENSOR_TYPES[self._program.weights[name].tensor_type].arithmetic

    def _product(self, x: FloatArray, name: str, bias: str | None) -> FloatArray:
        rounding = self._rounding(name)
        if rounding is Arithmetic.INT8:
            x = quantise_a8(x)
        elif rounding is Arithmetic.BF16:
            x = to_bf16(x)
        return linear(x, self._weights[name], None if bias is None else self._weights[bias])

    def _embed(self, instr: Instr, inputs: list[FloatArray], step: BoundStep) -> list[FloatArray]:
        return [self._weights[instr.weights[0]][step.token_ids]]

    def _rmsnorm(self, instr: Instr, inputs: list[FloatArray], step: BoundStep) -> list[FloatArray]:
        assert isinstance(instr.attrs, RmsNormAttrs)
        return [rmsnorm(inputs[0], self._weights[instr.weights[0]], instr.attrs)]

    def _linear(self, instr: Instr, inputs: list[FloatArray], step: BoundStep) -> list[FloatArray]:
        assert isinstance(instr.attrs, LinearAttrs)
        named = zip(instr.weights, instr.attrs.biases, strict=True)
        return [self._product(inputs[0], weight, bias) for weight, bias in named]

    def _rope(self, instr: Instr, inputs: list[FloatArray], step: BoundStep) -> list[FloatArray]:
        assert isinstance(instr.attrs, RopeAttrs)
        table = self._program.rope_tables[instr.attrs.table]
        return [rope(inputs[0], _token_positions(step), table, instr.attrs)]

    def _kv_write(self, instr: Instr, inputs: list[FloatArray], step: BoundStep) -> list[FloatArray]:
        assert isinstance(instr.attrs, KVWriteAttrs)
        store = self._kv[instr.attrs.group]
        for row, tokens, positions in _rows(step):
            slots = _slots(step.block_tables[instr.attrs.group][row], positions, store)
            store.write(instr.attrs.layer, slots, inputs[0][tokens], inputs[1][tokens])
        return []

    def _attend(self, instr: Instr, inputs: list[FloatArray], step: BoundStep) -> list[FloatArray]:
        attrs = instr.attrs
        assert isinstance(attrs, AttendAttrs)
        store = self._kv[attrs.group]
        out = np.empty_like(inputs[0])
        for row, tokens, positions in _rows(step):
            first = 0 if attrs.window is None else max(0, int(positions[0]) - attrs.window + 1)
            keys = np.arange(first, positions[-1] + 1)
            visible = keys <= positions[:, None]
            if attrs.window is not None:
                visible &= keys > positions[:, None] - attrs.window
            slots = _slots(step.block_tables[attrs.group][row], keys, store)
            k, v = store.read(attrs.layer, slots)
            rounding = None
            if self._activations == "a8" and store.precision == "bf16":
                rounding = BF16_ROUNDING
            elif self._activations == "a8" and store.precision == "int8":
                rounding = int8_rounding(store.value_scales(attrs.layer, slots), first)
            out[tokens] = attend(inputs[0][tokens], k, v, visible=visible, attrs=attrs, rounding=rounding)
        return [out]

    def _glu(self, instr: Instr, inputs: list[FloatArray], step: BoundStep) -> list[FloatArray]:
        assert isinstance(instr.attrs, GluAttrs)
        return [glu(inputs[0], inputs[1], instr.attrs)]

    def _add(self, instr: Instr, inputs: list[FloatArray], step: BoundStep) -> list[FloatArray]:
        return [inputs[0] + inputs[1]]

    def _scale(self, instr: Instr, inputs: list[FloatArray], step: BoundStep) -> list[FloatArray]:
        assert isinstance(instr.attrs, ScaleAttrs)
        return [scale(inputs[0], instr.attrs)]

    def _softcap(self, instr: Instr, inputs: list[FloatArray], step: BoundStep) -> list[FloatArray]:
        assert isinstance(instr.attrs, SoftcapAttrs)
        return [softcap(inputs[0], instr.attrs)]

    def _select(self, instr: Instr, inputs: list[FloatArray], step: BoundStep) -> list[FloatArray]:
        return [inputs[0][step.selected]]

    def _logits(self, instr: Instr, inputs: list[FloatArray], step: BoundStep) -> list[FloatArray]:
        return [self._product(inputs[0], instr.weights[0], None)]


_Walk = Callable[[ReferenceReader, Instr, list[FloatArray], BoundStep], list[FloatArray]]
_WALK: dict[Op, _Walk] = {
    Op.EMBED: ReferenceReader._embed,
    Op.RMSNORM: ReferenceReader._rmsnorm,
    Op.LINEAR: ReferenceReader._linear,
    Op.ROPE: ReferenceReader._rope,
    Op.KV_WRITE: ReferenceReader._kv_write,
    Op.ATTEND: ReferenceReader._attend,
    Op.GLU: ReferenceReader._glu,
    Op.ADD: ReferenceReader._add,
    Op.SCALE: ReferenceReader._scale,
    Op.SOFTCAP: ReferenceReader._softcap,
    Op.SELECT: ReferenceReader._select,
    Op.LOGITS: ReferenceReader._logits,
}


def _rows(step: BoundStep) -> list[tuple[int, slice, npt.NDArray[np.int64]]]:
    """(row, its tokens in the step, their positions)."""
    rows = []
    for row, position in enumerate(step.row_positions):
        start, end = int(step.row_starts[row]), int(step.row_starts[row + 1])
        rows.append((row, slice(start, end), np.arange(end - start, dtype=np.int64) + int(position)))
    return rows


def _token_positions(step: BoundStep) -> npt.NDArray[np.int64]:
    return np.concatenate([positions for _, _, positions in _rows(step)])


def _slots(table: npt.NDArray[np.int32], positions: npt.NDArray[np.int64], store: KVArrays) -> npt.NDArray[np.int64]:
    """Where positions of one row lie in the group's arrays."""
    indices = positions // store.block_size
    if indices[-1] >= len(table):
        raise KernelError(f"position {positions[-1]} needs {indices[-1] + 1} blocks, the row's table has {len(table)}")
    blocks = table[indices].astype(np.int64)
    num_blocks = store.arrays.shape[2]
    wrong = (blocks < 0) | (blocks >= num_blocks)
    if wrong.any():
        where = int(np.argmax(wrong))
        raise KernelError(f"position {positions[where]} lies in block {blocks[where]} of {num_blocks}")
    return blocks * store.block_size + positions % store.block_size


def _check_step(program: Program, step: BoundStep) -> None:
    """Ids and shapes a step may get wrong, as KernelError with the numbers; block ids are checked when used."""
    num_tokens = len(step.token_ids)
    if num_tokens == 0 or step.row_starts[0] != 0 or step.row_starts[-1] != num_tokens:
        raise KernelError(f"rows {step.row_starts.tolist()} do not cover {num_tokens} tokens")
    if (np.diff(step.row_starts) <= 0).any() or len(step.row_starts) != len(step.row_positions) + 1:
        raise KernelError(f"rows {step.row_starts.tolist()} are not {len(step.row_positions)} rows with tokens")
    if step.token_ids.min() < 0 or step.token_ids.max() >= program.vocab_size:
        raise KernelError(f"token ids reach {step.token_ids.min()}..{step.token_ids.max()} of {program.vocab_size}")
    if len(step.block_tables) != len(program.kv_groups):
        raise KernelError(f"{len(step.block_tables)} block tables for {len(program.kv_groups)} KV groups")
    if len(step.selected) and not 0 <= step.selected.min() <= step.selected.max() < num_tokens:
        raise KernelError(f"selected tokens {step.selected.tolist()} of {num_tokens}")
