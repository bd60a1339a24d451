"""ProgramBuilder: small verbs that append instrs and return value ids. The model families call it, nobody else.

It names values, looks weights up in the file, groups layers of equal KV shape, and hands over a frozen
Program that `verify` has passed. It never reads a weight's bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from twostroke.errors import ModelFileError
from twostroke.program.op import (
    OP_TABLE,
    Activation,
    AttendAttrs,
    Attrs,
    GluAttrs,
    KVWriteAttrs,
    LinearAttrs,
    NoAttrs,
    Op,
    Operands,
    RmsNormAttrs,
    RopeAttrs,
    RopeStyle,
    ScaleAttrs,
    SoftcapAttrs,
)
from twostroke.program.program import Axis, Instr, KVGroup, Program, RopeTable, Value, WeightSpec
from twostroke.program.quant import StoredTensor
from twostroke.program.verify import verify, verify_weights


@dataclass(frozen=True, slots=True)
class KVShape:
    """What layers must share to share block tables."""

    num_kv_heads: int
    head_dim: int
    window: int | None


@dataclass(frozen=True, slots=True)
class KVLayer:
    """Where one layer's keys and values live: a KV group and the layer's index in it."""

    group: int
    index: int
    shape: KVShape


class ProgramBuilder:
    """Appends one instr per verb. Value ids are ints; `tensors` is what the file holds, `file` names it in errors."""

    def __init__(self, tensors: Mapping[str, StoredTensor], *, file: object, architecture: str) -> None:
        self._tensors = tensors
        self._file = file
        self._architecture = architecture
        self._values: list[Value] = []
        self._instrs: list[Instr] = []
        self._weights: dict[str, WeightSpec] = {}
        self._rope_tables: list[RopeTable] = []
        self._kv_groups: dict[KVShape, list[int]] = {}

    def has(self, weight: str) -> bool:
        """Whether the file holds this tensor."""
        return weight in self._tensors

    def embed(self, weight: str, *, vocab_size: int, width: int) -> int:
        """Rows of `weight` [vocab_size, width] for the step's token ids."""
        self._need(weight, (vocab_size, width))
        return self._emit(Op.EMBED, (), NoAttrs(), weights=(weight,), name=_stem(weight))[0]

    def rmsnorm(self, x: int, weight: str, *, eps: float, group: int | None = None) -> int:
        """Normalises runs of `group` elements: the whole width when None, head_dim for a qk-norm."""
        group = self._values[x].width if group is None else group
        self._need(weight, (group,))
        return self._emit(Op.RMSNORM, (x,), RmsNormAttrs(eps, group), weights=(weight,), name=_stem(weight))[0]

    def linear(self, x: int, outputs: Mapping[str, int], *, needs_bias: bool = False) -> list[int]:
        """One value per entry: stem of the tensor's name -> output width.

        A bias is used where the file has one; `needs_bias` makes its absence an error.
        """
        width = self._values[x].width
        biases: list[str | None] = []
        for stem, num_out in outputs.items():
            self._need(f"{stem}.weight", (num_out, width))
            bias = f"{stem}.bias"
            if needs_bias or self.has(bias):
                self._need(bias, (num_out,))
                biases.append(bias)
            else:
                biases.append(None)
        return self._emit(
            Op.LINEAR,
            (x,),
            LinearAttrs(tuple(biases)),
            weights=tuple(f"{stem}.weight" for stem in outputs),
            name=_joined(list(outputs)),
            output_names=tuple(outputs),
        )

    def rope_table(self, table: RopeTable) -> int:
        """Index of `table` in the program, added when it is new."""
        if table not in self._rope_tables:
            self._rope_tables.append(table)
        return self._rope_tables.index(table)

    def rope(self, x: int, *, head_dim: int, rotary_dim: int, style: RopeStyle, table: int, name: str) -> int:
        """Turns the heads of x by their token's position."""
        attrs = RopeAttrs(self._values[x].width // head_dim, head_dim, rotary_dim, style, table)
        return self._emit(Op.ROPE, (x,), attrs, name=name)[0]

    def kv_layer(self, layer: int, *, num_kv_heads: int, head_dim: int, window: int | None = None) -> KVLayer:
        """A place in the cache for model layer `layer`; layers of equal shape and window share a group."""
        shape = KVShape(num_kv_heads, head_dim, window)
        layers = self._kv_groups.setdefault(shape, [])
        layers.append(layer)
        return KVLayer(list(self._kv_groups).index(shape), len(layers) - 1, shape)

    def kv_write(self, k: int, v: int, *, to: KVLayer, name: str) -> None:
        """Stores keys and values of the step's tokens."""
        attrs = KVWriteAttrs(to.group, to.index, to.shape.num_kv_heads, to.shape.head_dim)
        self._emit(Op.KV_WRITE, (k, v), attrs, name=name)

    def attend(self, q: int, *, to: KVLayer, scale: float, softcap: float | None = None, name: str) -> int:
        """Causal attention of q over what the layer has stored, the step's own tokens included."""
        shape = to.shape
        attrs = AttendAttrs(
            group=to.group,
            layer=to.index,
            num_heads=self._values[q].width // shape.head_dim,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            scale=scale,
            window=shape.window,
            softcap=softcap,
        )
        return self._emit(Op.ATTEND, (q,), attrs, name=name)[0]

    def glu(self, gate: int, up: int, *, activation: Activation, name: str) -> int:
        return self._emit(Op.GLU, (gate, up), GluAttrs(activation), name=name)[0]

    def add(self, a: int, b: int, *, name: str) -> int:
        return self._emit(Op.ADD, (a, b), NoAttrs(), name=name)[0]

    def scale(self, x: int, *, factor: float, name: str) -> int:
        return self._emit(Op.SCALE, (x,), ScaleAttrs(factor), name=name)[0]

    def softcap(self, x: int, *, cap: float, name: str) -> int:
        return self._emit(Op.SOFTCAP, (x,), SoftcapAttrs(cap), name=name)[0]

    def select(self, x: int) -> int:
        """Keeps the tokens that need logits; everything after lives on the selected axis."""
        return self._emit(Op.SELECT, (x,), NoAttrs(), name="select", axis=Axis.SELECTED)[0]

    def logits(self, x: int, weight: str, *, vocab_size: int) -> int:
        self._need(weight, (vocab_size, self._values[x].width))
        return self._emit(Op.LOGITS, (x,), NoAttrs(), weights=(weight,), name="logits")[0]

    def finish(self, *, vocab_size: int, context_length: int) -> Program:
        """The frozen program, verified; its last value holds the logits, or states where it has no head."""
        groups = [
            KVGroup(index, tuple(layers), shape.num_kv_heads, shape.head_dim, shape.window)
            for index, (shape, layers) in enumerate(self._kv_groups.items())
        ]
        program = Program(
            architecture=self._architecture,
            values=tuple(self._values),
            instrs=tuple(self._instrs),
            weights=MappingProxyType(dict(self._weights)),
            rope_tables=tuple(self._rope_tables),
            kv_groups=tuple(groups),
            width=self._values[0].width,
            vocab_size=vocab_size,
            context_length=context_length,
        )
        verify_weights(program, self._tensors, file=self._file)
        verify(program)
        return program

    def _need(self, name: str, shape: tuple[int, ...]) -> None:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise ModelFileError(
                self._file, f"tensor {name} {list(shape)} is missing: a {self._architecture} model needs it"
            )
        spec = WeightSpec(name, shape, tensor.tensor_type)
        known = self._weights.setdefault(name, spec)
        assert known == spec, f"{name} is used as {known.shape} and as {shape}"

    def _emit(
        self,
        op: Op,
        inputs: tuple[int, ...],
        attrs: Attrs,
        *,
        weights: tuple[str, ...] = (),
        name: str,
        output_names: tuple[str, ...] | None = None,
        axis: Axis | None = None,
    ) -> list[int]:
        widths = tuple(self._values[value].width for value in inputs)
        shapes = tuple(self._weights[weight].shape for weight in weights)
        output_widths = OP_TABLE[op].shape(Operands(attrs, widths, shapes))
        if axis is None:
            axis = self._values[inputs[0]].axis if inputs else Axis.TOKENS
        outputs = []
        for output_name, width in zip(output_names or (name,) * len(output_widths), output_widths, strict=True):
            outputs.append(len(self._values))
            self._values.append(Value(len(self._values), output_name, width, axis))
        self._instrs.append(Instr(op, inputs, tuple(outputs), weights, attrs, name))
        return outputs


def _stem(weight: str) -> str:
    return weight.removesuffix(".weight")


def _joined(stems: list[str]) -> str:
    """blk.3.attn_q, blk.3.attn_k -> blk.3.attn_q+attn_k"""
    return "+".join([stems[0], *(stem.rpartition(".")[2] for stem in stems[1:])])
