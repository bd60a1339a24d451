"""The op kinds, the attributes each carries, and the table: one row per op with its shape, FLOP and byte rule.

Builder and verifier read the shape rules, cost and listing the other two; kernel files, reference
functions and profiler zones share the spelling. Nothing here knows a model or a machine.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar


class Op(StrEnum):
    EMBED = "embed"
    RMSNORM = "rmsnorm"
    LINEAR = "linear"
    ROPE = "rope"
    KV_WRITE = "kv_write"
    ATTEND = "attend"
    GLU = "glu"
    ADD = "add"
    SCALE = "scale"
    SOFTCAP = "softcap"
    SELECT = "select"
    LOGITS = "logits"


class RopeStyle(StrEnum):
    """Which elements turn together: (i, i + rotary_dim/2) or (2i, 2i + 1)."""

    HALVES = "halves"
    PAIRS = "pairs"


class Activation(StrEnum):
    SILU = "silu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True, slots=True)
class NoAttrs:
    """embed [token ids] -> x; add (a, b) -> a + b; select x -> x[selected]; logits x -> x @ weight.T."""


@dataclass(frozen=True, slots=True)
class RmsNormAttrs:
    """y = x / sqrt(mean(x^2) + eps) * weight over each run of `group` elements (the width, or head_dim for qk-norm)."""

    eps: float
    group: int


@dataclass(frozen=True, slots=True)
class LinearAttrs:
    """One input, several weights [out, in], one output each; `biases[i]` names weight i's bias or is None."""

    biases: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class RopeAttrs:
    """Turns the first `rotary_dim` elements of every head by the angles of rope table `table`."""

    num_heads: int
    head_dim: int
    rotary_dim: int
    style: RopeStyle
    table: int  # index in Program.rope_tables


@dataclass(frozen=True, slots=True)
class KVWriteAttrs:
    """(k, v) of every token go to the cache in its precision. No outputs."""

    group: int
    layer: int  # index in the group's layers
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class AttendAttrs:
    """Causal attention of q over the cache, as stored; `window` None sees everything before."""

    group: int
    layer: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int | None
    softcap: float | None


@dataclass(frozen=True, slots=True)
class GluAttrs:
    """(gate, up) -> activation(gate) * up."""

    activation: Activation


@dataclass(frozen=True, slots=True)
class ScaleAttrs:
    factor: float


@dataclass(frozen=True, slots=True)
class SoftcapAttrs:
    """y = cap * tanh(x / cap)."""

    cap: float


Attrs = (
    NoAttrs | RmsNormAttrs | LinearAttrs | RopeAttrs | KVWriteAttrs | AttendAttrs | GluAttrs | ScaleAttrs | SoftcapAttrs
)


@dataclass(frozen=True, slots=True)
class Operands:
    """What the rules may look at: attributes, widths of the inputs, shapes of the weights (biases excluded)."""

    attrs: Attrs
    widths: tuple[int, ...]
    weights: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Flops:
    """A multiply-add is 2; any other arithmetic and any transcendental is 1."""

    per_token: int = 0
    per_pair: int = 0  # per query and key it sees


@dataclass(frozen=True, slots=True)
class Traffic:
    """Stored things an op touches; activations stay in the caches and are not counted."""

    whole_weights: bool = False  # read once per step, whatever the number of tokens
    weight_row: bool = False  # one row per token
    kv_written: int = 0  # cache elements per token
    kv_read: int = 0  # cache elements per position a row sees


@dataclass(frozen=True, slots=True)
class OpRow:
    """`shape` gives the widths of the outputs, or raises AssertionError with the sizes that disagree."""

    doc: str
    attrs: type
    num_inputs: int
    shape: Callable[[Operands], tuple[int, ...]]
    flops: Callable[[Operands], Flops]
    traffic: Callable[[Operands], Traffic]


A = TypeVar("A")


def _attrs(operands: Operands, kind: type[A]) -> A:
    assert isinstance(operands.attrs, kind), f"attributes are {operands.attrs}, wanted {kind.__name__}"
    return operands.attrs


def _same_width(operands: Operands) -> tuple[int, ...]:
    assert len(set(operands.widths)) == 1, f"inputs have widths {operands.widths}"
    return (operands.widths[0],)


def _embed_shape(operands: Operands) -> tuple[int, ...]:
    ((_, width),) = operands.weights
    return (width,)


def _rmsnorm_shape(operands: Operands) -> tuple[int, ...]:
    group = _attrs(operands, RmsNormAttrs).group
    (width,), (weight,) = operands.widths, operands.weights
    assert weight == (group,), f"weight {weight} for groups of {group}"
    assert width % group == 0, f"width {width} is not a multiple of the group {group}"
    return (width,)


def _linear_shape(operands: Operands) -> tuple[int, ...]:
    biases = _attrs(operands, LinearAttrs).biases
    assert len(biases) == len(operands.weights), f"{len(biases)} biases for {len(operands.weights)} weights"
    return _matrix_shape(operands)


def _matrix_shape(operands: Operands) -> tuple[int, ...]:
    (width,) = operands.widths
    assert all(weight[1] == width for weight in operands.weights), f"input {width}, weights {operands.weights}"
    return tuple(weight[0] for weight in operands.weights)


def _rope_shape(operands: Operands) -> tuple[int, ...]:
    rope = _attrs(operands, RopeAttrs)
    (width,) = operands.widths
    assert width == rope.num_heads * rope.head_dim, f"width {width}, {rope.num_heads} heads x {rope.head_dim}"
    assert rope.rotary_dim % 2 == 0, f"rotary_dim {rope.rotary_dim} is odd"
    assert 0 < rope.rotary_dim <= rope.head_dim, f"rotary_dim {rope.rotary_dim}, head_dim {rope.head_dim}"
    return (width,)


def _kv_write_shape(operands: Operands) -> tuple[int, ...]:
    kv = _attrs(operands, KVWriteAttrs)
    wanted = kv.num_kv_heads * kv.head_dim
    assert operands.widths == (wanted, wanted), f"k, v are {operands.widths}, {kv.num_kv_heads} heads x {kv.head_dim}"
    return ()


def _attend_shape(operands: Operands) -> tuple[int, ...]:
    attend = _attrs(operands, AttendAttrs)
    (width,) = operands.widths
    assert width == attend.num_heads * attend.head_dim, f"q {width}, {attend.num_heads} heads x {attend.head_dim}"
    assert attend.num_heads % attend.num_kv_heads == 0, f"{attend.num_heads} heads, {attend.num_kv_heads} kv heads"
    return (width,)


def _per_element(count: int) -> Callable[[Operands], Flops]:
    return lambda operands: Flops(per_token=count * operands.widths[0])


def _glu_flops(operands: Operands) -> Flops:
    per_element = {Activation.SILU: 5, Activation.GELU_TANH: 10}[_attrs(operands, GluAttrs).activation]
    return Flops(per_token=per_element * operands.widths[0])


def _matrix_flops(operands: Operands) -> Flops:
    return Flops(per_token=sum(2 * rows * cols for rows, cols in operands.weights))


def _linear_flops(operands: Operands) -> Flops:
    biases = _attrs(operands, LinearAttrs).biases
    added = sum(weight[0] for weight, bias in zip(operands.weights, biases, strict=True) if bias is not None)
    return Flops(per_token=_matrix_flops(operands).per_token + added)


def _rope_flops(operands: Operands) -> Flops:
    rope = _attrs(operands, RopeAttrs)
    return Flops(per_token=3 * rope.num_heads * rope.rotary_dim)


def _attend_flops(operands: Operands) -> Flops:
    """q.k and p.v are a multiply-add per element each; scale, maximum, exponential and sum are 4 per head."""
    attend = _attrs(operands, AttendAttrs)
    return Flops(per_pair=attend.num_heads * (4 * attend.head_dim + 4))


def _no_flops(operands: Operands) -> Flops:
    return Flops()


def _no_traffic(operands: Operands) -> Traffic:
    return Traffic()


def _whole_weights(operands: Operands) -> Traffic:
    return Traffic(whole_weights=True)


def _weight_row(operands: Operands) -> Traffic:
    return Traffic(weight_row=True)


def _kv_written(operands: Operands) -> Traffic:
    return Traffic(kv_written=sum(operands.widths))


def _kv_read(operands: Operands) -> Traffic:
    attend = _attrs(operands, AttendAttrs)
    return Traffic(kv_read=2 * attend.num_kv_heads * attend.head_dim)


OP_TABLE: Mapping[Op, OpRow] = MappingProxyType(
    {
        Op.EMBED: OpRow("token ids -> rows of the weight", NoAttrs, 0, _embed_shape, _no_flops, _weight_row),
        Op.RMSNORM: OpRow(
            "x / sqrt(mean(x^2) + eps) * weight", RmsNormAttrs, 1, _rmsnorm_shape, _per_element(4), _whole_weights
        ),
        Op.LINEAR: OpRow("x @ weight.T + bias", LinearAttrs, 1, _linear_shape, _linear_flops, _whole_weights),
        Op.ROPE: OpRow("pairs of x turned by position", RopeAttrs, 1, _rope_shape, _rope_flops, _no_traffic),
        Op.KV_WRITE: OpRow("k, v -> cache", KVWriteAttrs, 2, _kv_write_shape, _no_flops, _kv_written),
        Op.ATTEND: OpRow(
            "softmax(q.k * scale) @ v over the cache", AttendAttrs, 1, _attend_shape, _attend_flops, _kv_read
        ),
        Op.GLU: OpRow("activation(gate) * up", GluAttrs, 2, _same_width, _glu_flops, _no_traffic),
        Op.ADD: OpRow("a + b", NoAttrs, 2, _same_width, _per_element(1), _no_traffic),
        Op.SCALE: OpRow("x * factor", ScaleAttrs, 1, _same_width, _per_element(1), _no_traffic),
        Op.SOFTCAP: OpRow("cap * tanh(x / cap)", SoftcapAttrs, 1, _same_width, _per_element(3), _no_traffic),
        Op.SELECT: OpRow("tokens that need logits", NoAttrs, 1, _same_width, _no_flops, _no_traffic),
        Op.LOGITS: OpRow("x @ weight.T over the vocabulary", NoAttrs, 1, _matrix_shape, _matrix_flops, _whole_weights),
    }
)
