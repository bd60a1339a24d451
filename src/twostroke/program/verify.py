"""What must hold for every program, after building and after every pass.

`verify_weights` judges the user's file (typed errors that name tensor, found and wanted shape);
`verify` judges our own work (assertions with the numbers). Neither changes anything.
"""

from collections.abc import Mapping

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.program.op import OP_TABLE, AttendAttrs, KVWriteAttrs, LinearAttrs, Op, Operands, RopeAttrs
from twostroke.program.program import Axis, Instr, KVGroup, Program
from twostroke.program.quant import TENSOR_TYPES, StoredTensor


def verify_weights(program: Program, tensors: Mapping[str, StoredTensor], *, file: object) -> None:
    """Every weight is in the file, of a supported type, in the shape the program expects."""
    for spec in program.weights.values():
        tensor = tensors.get(spec.name)
        if tensor is None:
            raise ModelFileError(file, f"tensor {spec.name} {list(spec.shape)} is missing")
        if tensor.tensor_type not in TENSOR_TYPES:
            raise UnsupportedModelError(
                f"{file}: tensor {spec.name} has type {tensor.tensor_type}; supported are {', '.join(TENSOR_TYPES)}"
            )
        if tuple(tensor.shape) != spec.shape:
            raise ModelFileError(
                file, f"tensor {spec.name} has shape {list(tensor.shape)}, the model needs {list(spec.shape)}"
            )
        block_size = TENSOR_TYPES[tensor.tensor_type].block_size
        if spec.shape[-1] % block_size:
            raise ModelFileError(
                file,
                f"tensor {spec.name} has rows of {spec.shape[-1]} elements, "
                f"not a multiple of {tensor.tensor_type}'s block of {block_size}",
            )


def verify(program: Program) -> None:
    """Asserts that values, axes, widths, weights, rope tables and KV groups fit together."""
    written: set[int] = set()
    for instr in program.instrs:
        _verify_instr(program, instr, written)
    assert len(written) == len(program.values), f"{len(program.values)} values, {len(written)} written"
    for index, value in enumerate(program.values):
        assert value.id == index, f"value {index} calls itself {value.id}"
    _verify_kv(program)
    last = program.values[program.instrs[-1].outputs[0]]
    assert last.axis is Axis.SELECTED, f"the last value {last.name} is on the {last.axis} axis"
    if program.has_head:
        assert last.width == program.vocab_size, f"logits have width {last.width}, vocabulary {program.vocab_size}"


def _verify_instr(program: Program, instr: Instr, written: set[int]) -> None:
    row = OP_TABLE[instr.op]
    assert isinstance(instr.attrs, row.attrs), f"{instr.name}: {instr.op} with {type(instr.attrs).__name__}"
    assert len(instr.inputs) == row.num_inputs, f"{instr.name}: {len(instr.inputs)} inputs, wants {row.num_inputs}"
    for value in instr.inputs:
        assert value in written, f"{instr.name} reads value {value} before it is written"
    for value in instr.outputs:
        assert value not in written, f"{instr.name} writes value {value} a second time"
        written.add(value)
    shapes = []
    for weight in instr.weights:
        assert weight in program.weights, f"{instr.name}: weight {weight} is not in the program"
        shapes.append(program.weights[weight].shape)
    widths = tuple(program.values[value].width for value in instr.inputs)
    wanted = row.shape(Operands(instr.attrs, widths, tuple(shapes)))
    found = tuple(program.values[value].width for value in instr.outputs)
    assert found == wanted, f"{instr.name}: outputs are {found} wide, the {instr.op} rule says {wanted}"
    _verify_axes(program, instr)
    _verify_named(program, instr)


def _verify_axes(program: Program, instr: Instr) -> None:
    axes = [program.values[value].axis for value in instr.inputs]
    assert len(set(axes)) <= 1, f"{instr.name} mixes axes {axes}"
    if instr.op is Op.SELECT:
        assert axes == [Axis.TOKENS], f"{instr.name} selects from the {axes[0]} axis"
        axis = Axis.SELECTED
    else:
        axis = axes[0] if axes else Axis.TOKENS
    for value in instr.outputs:
        assert program.values[value].axis is axis, f"{instr.name}: value {value} should be on the {axis} axis"


def _verify_named(program: Program, instr: Instr) -> None:
    """Attributes that point elsewhere in the program: biases, rope tables."""
    if isinstance(instr.attrs, LinearAttrs):
        for weight, bias in zip(instr.weights, instr.attrs.biases, strict=True):
            if bias is not None:
                assert bias in program.weights, f"{instr.name}: bias {bias} is not in the program"
                rows = program.weights[weight].shape[0]
                assert program.weights[bias].shape == (rows,), f"{bias} is {program.weights[bias].shape}, wants {rows}"
    if isinstance(instr.attrs, RopeAttrs):
        num_tables = len(program.rope_tables)
        assert 0 <= instr.attrs.table < num_tables, f"{instr.name}: rope table {instr.attrs.table} of {num_tables}"
        num_pairs = len(program.rope_tables[instr.attrs.table].inv_freq)
        assert 2 * num_pairs == instr.attrs.rotary_dim, f"{instr.name}: {num_pairs} angles, {instr.attrs.rotary_dim}"


def _verify_kv(program: Program) -> None:
    """Every layer of every group is written once, then read with the group's shape and window."""
    for index, group in enumerate(program.kv_groups):
        assert group.id == index, f"KV group {index} calls itself {group.id}"
    places: set[tuple[int, int]] = set()
    for instr in program.instrs:
        if not isinstance(instr.attrs, KVWriteAttrs | AttendAttrs):
            continue
        place = (instr.attrs.group, instr.attrs.layer)
        group = _group_of(program, instr)
        shape = (instr.attrs.num_kv_heads, instr.attrs.head_dim)
        assert shape == (group.num_kv_heads, group.head_dim), f"{instr.name}: kv shape {shape}, group {group}"
        if isinstance(instr.attrs, KVWriteAttrs):
            assert place not in places, f"{instr.name} writes layer {place} a second time"
            places.add(place)
        else:
            assert instr.attrs.window == group.window, f"{instr.name}: window {instr.attrs.window}, group {group}"
            assert place in places, f"{instr.name} reads layer {place} before it is written"
    num_layers = sum(len(group.layers) for group in program.kv_groups)
    assert len(places) == num_layers, f"{num_layers} layers in KV groups, {len(places)} written"


def _group_of(program: Program, instr: Instr) -> KVGroup:
    assert isinstance(instr.attrs, KVWriteAttrs | AttendAttrs)
    num_groups = len(program.kv_groups)
    assert 0 <= instr.attrs.group < num_groups, f"{instr.name}: KV group {instr.attrs.group} of {num_groups}"
    group = program.kv_groups[instr.attrs.group]
    assert 0 <= instr.attrs.layer < len(group.layers), f"{instr.name}: layer {instr.attrs.layer} of {group}"
    return group
