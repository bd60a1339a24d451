"""The native reader: packs a program's weights, hands its instrs over once and runs each step in one call.

The engine creates it through `llm.py`; it owns threads, KV bytes and packed weights until `close`. Token
and block ids are checked by the native side before anything is written.
"""

from collections.abc import Callable, Mapping

import numpy as np

from twostroke import _native
from twostroke.errors import ConfigError, KernelError
from twostroke.phase_threads import PhaseThreads
from twostroke.program.fuse import Groups, fuse, verify_groups
from twostroke.program.memory import plan_memory
from twostroke.program.op import (
    Activation,
    AttendAttrs,
    Attrs,
    GluAttrs,
    KVWriteAttrs,
    LinearAttrs,
    NoAttrs,
    RmsNormAttrs,
    RopeAttrs,
    RopeStyle,
    ScaleAttrs,
    SoftcapAttrs,
)
from twostroke.program.packed import KeptMatrices, pack_matrices, stored_tensor
from twostroke.program.program import Axis, BoundStep, Instr, Program, WeightSpec
from twostroke.program.quant import FloatArray, StoredTensor, dequantise
from twostroke.program.reader import KVSpec

FEW_TOKENS = 4  # a step of so many waits for its weights, not for arithmetic: it runs on the threads of decode


class NativeReader:
    """Runs a program with the kernels of one ISA. Implements `Reader`.

    `threads` may change between two steps; it changes no bit. More than the pool has count as all.
    """

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, StoredTensor],
        *,
        kv: KVSpec,
        threads: int,
        max_tokens: int,
        max_rows: int,
        isa: str | None = None,
        groups: Groups | None = None,
        kept: KeptMatrices | None = None,
        pool: _native.Pool | None = None,
    ) -> None:
        """`isa` None takes the fastest this machine can run; `groups` None fuses what can be fused.

        `kept` is where packed matrices stay from one load to the next. `pool`: the threads of another reader that
        never runs at the same time; None makes `threads` of its own.
        """
        self.isa = _choose_isa(isa)
        self._program = program
        self._output = np.empty((1, program.output_width), np.float32)
        groups = fuse(program) if groups is None else groups
        verify_groups(program, groups)
        try:
            self._pool = pool or _native.Pool(threads)
            self._store = _make_store(program, kv)
            self._bound = self._bind(tensors, groups, limits=(max_tokens, max_rows), kept=kept)
            self.threads = PhaseThreads(self._pool.num_threads, self._pool.num_threads)
        except (ValueError, RuntimeError, MemoryError) as error:
            raise KernelError(f"the program cannot run here: {error}") from error

    def run(self, step: BoundStep) -> FloatArray:
        """Logits [num_selected, vocab], or states [num_selected, width], overwritten by the next run.

        Rows with candidates are not written, and where all have them there may be none.
        """
        num_selected, num_tokens = len(step.selected), len(step.token_ids)
        are_written = step.candidates is None or step.candidates.num_whole > 0
        if are_written and num_selected > len(self._output):
            self._output = np.empty((num_selected, self._program.output_width), np.float32)
        try:
            problem = self._bound.step(
                step.token_ids,
                step.row_starts,
                step.row_positions,
                list(step.block_tables),
                step.selected,
                self._output,
                step.wanted,
                self.threads.decode if num_tokens <= FEW_TOKENS else self.threads.prefill,
                step.candidates,
            )
        except (RuntimeError, TypeError) as error:
            raise KernelError(f"step did not run: {error}") from error
        if problem:
            raise KernelError(problem)
        return self._output[:num_selected]

    def copy_block(self, group: int, source: int, target: int) -> None:
        """Bytes of block `source` of every layer of a KV group go to block `target`."""
        try:
            self._store.copy_block(group, source, target)
        except IndexError as error:
            raise KernelError(f"copy of a KV block: {error}") from error

    @property
    def kv_bytes_per_block(self) -> tuple[int, ...]:
        """Bytes of one block over all layers, per KV group."""
        return tuple(self._store.block_bytes(group) for group in range(len(self._program.kv_groups)))

    @property
    def brings_candidates(self) -> bool:
        """Whether a step may ask for candidates instead of logits."""
        return self._bound.brings_candidates

    @property
    def pool(self) -> _native.Pool:
        """The threads of its steps, free between two of them."""
        return self._pool

    @property
    def memory_bytes(self) -> int:
        """Bytes of working memory: values, scratch, rope tables; weights and KV not included."""
        return self._bound.memory_bytes

    def close(self) -> None:
        """Frees weights, KV and threads; a closed reader may be closed again."""
        for name in ("_bound", "_store", "_pool"):
            self.__dict__.pop(name, None)

    def _bind(
        self,
        tensors: Mapping[str, StoredTensor],
        groups: Groups,
        *,
        limits: tuple[int, int],
        kept: KeptMatrices | None,
    ) -> _native.Program:
        program = self._program
        memory = plan_memory(program, groups)
        bound = _native.Program(
            self._pool,
            self._store,
            self.isa,
            (*limits, program.context_length, program.vocab_size),
            [
                (value.width, int(value.axis is Axis.SELECTED), offset, stride)
                for value, offset, stride in zip(program.values, memory.offsets, memory.strides, strict=True)
            ],
            [(list(table.inv_freq), table.magnitude) for table in program.rope_tables],
            output_width=program.output_width,
        )
        matrices = pack_matrices(program, tensors, pool=self._pool, kept=kept)
        for instr in program.instrs:
            _add(bound, instr, matrices=matrices, vector=lambda name: _vector(tensors, program.weights[name]))
        bound.finish(list(groups))
        return bound


def _choose_isa(isa: str | None) -> str:
    usable = _native.usable_isas()
    if isa is None:
        return usable[0]
    if isa not in usable:
        raise ConfigError(f"ISA {isa!r} cannot run on this machine; it has {', '.join(usable)}")
    return isa


def _make_store(program: Program, kv: KVSpec) -> _native.KVStore:
    if len(kv.num_blocks) != len(program.kv_groups):
        raise KernelError(f"{len(kv.num_blocks)} block counts for {len(program.kv_groups)} KV groups")
    groups = [
        (len(group.layers), group.num_kv_heads, group.head_dim, num_blocks)
        for group, num_blocks in zip(program.kv_groups, kv.num_blocks, strict=True)
    ]
    return _native.KVStore(kv.precision, kv.block_size, groups)


def _vector(tensors: Mapping[str, StoredTensor], spec: WeightSpec) -> FloatArray:
    tensor = stored_tensor(tensors, spec)
    return np.ascontiguousarray(dequantise(tensor.tensor_type, tensor.data, tensor.shape), np.float32)


def _add(
    bound: _native.Program,
    instr: Instr,
    *,
    matrices: Mapping[str, _native.Weight],
    vector: Callable[[str], FloatArray],
) -> None:
    ints, floats = _numbers(instr.attrs)
    weights: list[_native.Weight] = []
    vectors: list[FloatArray] = []
    if isinstance(instr.attrs, RmsNormAttrs):
        vectors = [vector(instr.weights[0])]
    else:
        weights = [matrices[name] for name in instr.weights]
    if isinstance(instr.attrs, LinearAttrs):
        empty = np.empty(0, np.float32)
        vectors = [empty if name is None else vector(name) for name in instr.attrs.biases]
    bound.add(
        op=instr.op.value,
        name=instr.name,
        inputs=list(instr.inputs),
        outputs=list(instr.outputs),
        weights=weights,
        vectors=vectors,
        ints=ints,
        floats=floats,
    )


def _numbers(attrs: Attrs) -> tuple[list[int], list[float]]:
    """Attributes in the order of `enum Op` in native/instr.h."""
    match attrs:
        case NoAttrs() | LinearAttrs():
            return [], []
        case RmsNormAttrs():
            return [attrs.group], [attrs.eps]
        case RopeAttrs():
            style = list(RopeStyle).index(attrs.style)
            return [attrs.num_heads, attrs.head_dim, attrs.rotary_dim, style, attrs.table], []
        case KVWriteAttrs():
            return [attrs.group, attrs.layer, attrs.num_kv_heads, attrs.head_dim], []
        case AttendAttrs():
            heads = [attrs.num_heads, attrs.num_kv_heads, attrs.head_dim]
            return [attrs.group, attrs.layer, *heads, attrs.window or 0], [attrs.scale, attrs.softcap or 0.0]
        case GluAttrs():
            return [list(Activation).index(attrs.activation)], []
        case ScaleAttrs():
            return [], [attrs.factor]
        case SoftcapAttrs():
            return [], [attrs.cap]
