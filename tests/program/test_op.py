"""The op table: one row per op; shapes, FLOPs and traffic against small hand counts."""

from dataclasses import fields
from typing import get_args

import pytest

from twostroke.program.op import (
    OP_TABLE,
    Activation,
    AttendAttrs,
    Attrs,
    Flops,
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
    Traffic,
)

ROPE = RopeAttrs(num_heads=2, head_dim=4, rotary_dim=4, style=RopeStyle.HALVES, table=0)
KV_WRITE = KVWriteAttrs(group=0, layer=0, num_kv_heads=2, head_dim=3)
ATTEND = AttendAttrs(group=0, layer=0, num_heads=4, num_kv_heads=2, head_dim=3, scale=1.0, window=None, softcap=None)


def operands(attrs: Attrs, widths: tuple[int, ...], *weights: tuple[int, ...]) -> Operands:
    return Operands(attrs, widths, weights)


CASES = [
    # op, operands, output widths, FLOPs, traffic
    (Op.EMBED, operands(NoAttrs(), (), (10, 8)), (8,), Flops(), Traffic(weight_row=True)),
    (Op.RMSNORM, operands(RmsNormAttrs(1e-5, 8), (8,), (8,)), (8,), Flops(32), Traffic(whole_weights=True)),
    (Op.RMSNORM, operands(RmsNormAttrs(1e-5, 4), (8,), (4,)), (8,), Flops(32), Traffic(whole_weights=True)),
    (
        Op.LINEAR,
        operands(LinearAttrs((None, "b")), (8,), (3, 8), (5, 8)),
        (3, 5),
        Flops(2 * 8 * 8 + 5),
        Traffic(whole_weights=True),
    ),
    (Op.ROPE, operands(ROPE, (8,)), (8,), Flops(3 * 8), Traffic()),
    (Op.KV_WRITE, operands(KV_WRITE, (6, 6)), (), Flops(), Traffic(kv_written=12)),
    (Op.ATTEND, operands(ATTEND, (12,)), (12,), Flops(per_pair=4 * (4 * 3 + 4)), Traffic(kv_read=12)),
    (Op.GLU, operands(GluAttrs(Activation.SILU), (8, 8)), (8,), Flops(40), Traffic()),
    (Op.GLU, operands(GluAttrs(Activation.GELU_TANH), (8, 8)), (8,), Flops(80), Traffic()),
    (Op.ADD, operands(NoAttrs(), (8, 8)), (8,), Flops(8), Traffic()),
    (Op.SCALE, operands(ScaleAttrs(2.0), (8,)), (8,), Flops(8), Traffic()),
    (Op.SOFTCAP, operands(SoftcapAttrs(30.0), (8,)), (8,), Flops(24), Traffic()),
    (Op.SELECT, operands(NoAttrs(), (8,)), (8,), Flops(), Traffic()),
    (Op.LOGITS, operands(NoAttrs(), (8,), (10, 8)), (10,), Flops(160), Traffic(whole_weights=True)),
]


@pytest.mark.parametrize(("op", "given", "widths", "flops", "traffic"), CASES, ids=[case[0] for case in CASES])
def test_rules(op: Op, given: Operands, widths: tuple[int, ...], flops: Flops, traffic: Traffic) -> None:
    row = OP_TABLE[op]
    assert row.shape(given) == widths
    assert row.flops(given) == flops
    assert row.traffic(given) == traffic
    assert row.num_inputs == len(given.widths)
    assert isinstance(given.attrs, row.attrs)


def test_every_op_has_a_row_and_a_case() -> None:
    assert list(OP_TABLE) == list(Op)
    assert {case[0] for case in CASES} == set(Op)


@pytest.mark.parametrize("op", Op)
def test_every_row_has_one_line_of_documentation(op: Op) -> None:
    assert OP_TABLE[op].doc
    assert "\n" not in OP_TABLE[op].doc


def test_every_attribute_class_belongs_to_an_op() -> None:
    assert {row.attrs for row in OP_TABLE.values()} == set(get_args(Attrs))


def test_attributes_are_frozen_and_hashable() -> None:
    for given in (case[1] for case in CASES):
        assert hash(given.attrs) == hash(given.attrs)
        for field in fields(given.attrs):
            with pytest.raises(AttributeError):
                setattr(given.attrs, field.name, None)


@pytest.mark.parametrize(
    ("op", "given", "message"),
    [
        (Op.RMSNORM, operands(RmsNormAttrs(1e-5, 8), (8,), (4,)), r"weight \(4,\) for groups of 8"),
        (Op.RMSNORM, operands(RmsNormAttrs(1e-5, 3), (8,), (3,)), "width 8 is not a multiple of the group 3"),
        (Op.RMSNORM, operands(NoAttrs(), (8,), (8,)), "wanted RmsNormAttrs"),
        (Op.LINEAR, operands(LinearAttrs((None,)), (8,), (3, 7)), r"input 8, weights \(\(3, 7\),\)"),
        (Op.LINEAR, operands(LinearAttrs(()), (8,), (3, 8)), "0 biases for 1 weights"),
        (Op.LOGITS, operands(NoAttrs(), (8,), (10, 9)), "input 8, weights"),
        (Op.ROPE, operands(ROPE, (9,)), "width 9, 2 heads x 4"),
        (Op.KV_WRITE, operands(KV_WRITE, (6, 9)), r"k, v are \(6, 9\), 2 heads x 3"),
        (Op.ATTEND, operands(ATTEND, (9,)), "q 9, 4 heads x 3"),
        (Op.ADD, operands(NoAttrs(), (8, 9)), r"inputs have widths \(8, 9\)"),
        (Op.GLU, operands(GluAttrs(Activation.SILU), (9, 8)), r"inputs have widths \(9, 8\)"),
    ],
)
def test_sizes_that_disagree_are_named(op: Op, given: Operands, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        OP_TABLE[op].shape(given)


def test_values_are_the_names_in_lower_case() -> None:
    assert [op.value for op in Op] == [op.name.lower() for op in Op]
