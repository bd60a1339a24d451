"""The op kinds and the attributes each carries. The table of shape, FLOP and byte rules joins them by spelling."""

from dataclasses import dataclass
from enum import StrEnum


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
    NoAttrs
    | RmsNormAttrs
    | LinearAttrs
    | RopeAttrs
    | KVWriteAttrs
    | AttendAttrs
    | GluAttrs
    | ScaleAttrs
    | SoftcapAttrs
)
