"""FLOPs and bytes against counts made by hand, and the fast fold against the slow one."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from tests.builders_sources import VOCAB, make_source
from twostroke.model.families import FAMILIES, build_program
from twostroke.program.cost import Cost, Row, fold_costs, step_cost, step_sizes
from twostroke.program.op import Op
from twostroke.program.program import Program
from twostroke.program.quant import TENSOR_TYPES, Arithmetic

# Multiply-adds of the tiny llama's matrices per token: q, k and v of both layers, output, gate, up and down of each.
QKV_MACS = 2 * (32 * 32 + 16 * 32 + 16 * 32)
OUTPUT_MACS = 32 * 32 + 3 * 64 * 32
LAYER_MACS = QKV_MACS + 2 * OUTPUT_MACS
HEAD_MACS = VOCAB * 32


def costs_of(program: Program, row: Row, op: Op, *, kv_precision: str = "f16") -> Cost:
    per_instr = fold_costs(program, kv_precision=kv_precision).per_instr([row])
    return Cost.total(cost for cost, instr in zip(per_instr, program.instrs, strict=True) if instr.op is op)


def naive_pairs(start_pos: int, num_tokens: int, window: int | None) -> int:
    return sum(min(pos + 1, window or pos + 1) for pos in range(start_pos, start_pos + num_tokens))


def naive_positions(start_pos: int, num_tokens: int, window: int | None) -> int:
    seen = set()
    for pos in range(start_pos, start_pos + num_tokens):
        seen |= set(range(0 if window is None else max(0, pos - window + 1), pos + 1))
    return len(seen)


def test_a_part_of_the_head_costs_that_part_of_its_arithmetic_and_bytes() -> None:
    cost = fold_costs(build_program(make_source()), kv_precision="f16")
    decode = Row(10, 1)
    whole, half, none = (cost.step([decode], head_share=share) for share in (1.0, 0.5, 0.0))
    assert whole == cost.step([decode])
    assert 2 * (whole.total_flops - half.total_flops) == whole.total_flops - none.total_flops == 2 * HEAD_MACS
    assert 2 * (whole.weight_bytes - half.weight_bytes) == whole.weight_bytes - none.weight_bytes == 4 * HEAD_MACS
    assert half.kv_bytes == whole.kv_bytes


@given(st.integers(0, 40), st.integers(1, 40), st.none() | st.integers(1, 50))
def test_pairs_and_positions_equal_a_count_one_by_one(start_pos: int, num_tokens: int, window: int | None) -> None:
    sizes = step_sizes([Row(start_pos, num_tokens)], windows=[window])
    assert sizes.pairs == {window: naive_pairs(start_pos, num_tokens, window)}
    assert sizes.positions == {window: naive_positions(start_pos, num_tokens, window)}


def test_matrix_flops_are_two_per_weight_and_token() -> None:
    program = build_program(make_source())
    every_token = QKV_MACS + OUTPUT_MACS
    assert costs_of(program, Row(0, 7), Op.LINEAR).total_flops == 2 * (7 * every_token + OUTPUT_MACS)
    assert costs_of(program, Row(0, 7), Op.LOGITS).total_flops == 2 * HEAD_MACS


def test_attention_counts_visible_pairs_of_all_heads() -> None:
    program = build_program(make_source())
    per_pair = 2 * 4 * (4 * 8 + 4)  # layers x heads x (q.k and p.v, softmax)
    assert costs_of(program, Row(10, 1), Op.ATTEND).total_flops == 11 * per_pair
    assert costs_of(program, Row(0, 4), Op.ATTEND).total_flops == 10 * per_pair


def test_weights_are_read_once_per_step_and_embedding_rows_once_per_token() -> None:
    program = build_program(make_source())
    one, many = costs_of(program, Row(0, 1), Op.LINEAR), costs_of(program, Row(0, 50), Op.LINEAR)
    assert one.weight_bytes == many.weight_bytes == 4 * LAYER_MACS
    assert costs_of(program, Row(0, 50), Op.EMBED).weight_bytes == 50 * 32 * 4


def test_a_step_without_logits_reads_neither_the_head_nor_what_leads_to_it_alone() -> None:
    program = build_program(make_source())
    with_head = step_cost(program, [Row(0, 5)], kv_precision="f16")
    without = step_cost(program, [Row(0, 5, needs_logits=False)], kv_precision="f16")
    assert with_head.weight_bytes - without.weight_bytes == 4 * (HEAD_MACS + OUTPUT_MACS + 2 * 32)  # and two norms


@pytest.mark.parametrize(("precision", "element_bytes"), [("f32", 4), ("f16", 2), ("bf16", 2), ("int8", 1.5)])
def test_kv_bytes_are_those_stored(precision: str, element_bytes: float) -> None:
    program = build_program(make_source())
    cost = step_cost(program, [Row(9, 3)], kv_precision=precision)
    per_position = 2 * 2 * 2 * 8 * element_bytes  # layers x (K, V) x kv heads x head_dim; int8: 8 and a scale
    assert cost.kv_bytes == 12 * per_position
    assert cost.kv_written_bytes == 3 * per_position


def test_a_window_limits_pairs_and_bytes_of_its_layers_alone() -> None:
    program = build_program(make_source("gemma3"))  # layer 0 sees 4 positions, layer 1 everything
    cost = step_cost(program, [Row(20, 1)], kv_precision="f16")
    assert cost.kv_bytes == (4 + 21) * 2 * 2 * 8 * 2


def test_bytes_follow_the_stored_type_and_flops_its_arithmetic() -> None:
    program = build_program(make_source(tensor_type="Q4_0"))
    cost = step_cost(program, [Row(0, 3)], kv_precision="bf16")
    assert costs_of(program, Row(0, 3), Op.LINEAR).weight_bytes == LAYER_MACS * 18 // 32
    every_token = QKV_MACS + OUTPUT_MACS
    assert cost.flops_by_unit["int8"] == 2 * (3 * every_token + OUTPUT_MACS + HEAD_MACS)  # type: ignore[index]
    attention = costs_of(program, Row(0, 3), Op.ATTEND, kv_precision="bf16")
    assert cost.flops_by_unit[Arithmetic.BF16] == attention.total_flops


@pytest.mark.parametrize(("precision", "unit"), [("f32", "fp32"), ("f16", "fp32"), ("bf16", "bf16"), ("int8", "int8")])
def test_attention_runs_in_the_arithmetic_of_the_cache(precision: str, unit: str) -> None:
    cost = costs_of(build_program(make_source()), Row(5, 1), Op.ATTEND, kv_precision=precision)
    assert {name for name, flops in cost.flops_by_unit.items() if flops} == {unit}


def test_a_linear_of_mixed_types_is_split_between_units() -> None:
    program = build_program(make_source(tensor_type="Q8_0"))
    weights = dict(program.weights)
    weights["blk.0.attn_v.weight"] = replace(weights["blk.0.attn_v.weight"], tensor_type="BF16")
    cost = costs_of(replace(program, weights=weights), Row(0, 1), Op.LINEAR)
    assert cost.flops_by_unit == {"int8": 2 * (LAYER_MACS - 16 * 32), "bf16": 2 * 16 * 32, "fp32": 0}


def test_biases_are_added_and_read() -> None:
    plain, biased = build_program(make_source()), build_program(make_source("qwen2"))
    without, with_bias = costs_of(plain, Row(0, 2), Op.LINEAR), costs_of(biased, Row(0, 2), Op.LINEAR)
    assert with_bias.total_flops - without.total_flops == 2 * 2 * (32 + 16 + 16)
    assert with_bias.weight_bytes - without.weight_bytes == 2 * 4 * (32 + 16 + 16)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_the_summed_fold_equals_the_sum_over_instrs(architecture: str) -> None:
    folded = fold_costs(build_program(make_source(architecture)), kv_precision="bf16")
    for rows in ([Row(0, 13)], [Row(30, 1), Row(3, 1)], [Row(0, 5, False), Row(8, 1), Row(2, 9)], []):
        assert folded.step(rows) == Cost.total(folded.per_instr(rows))


def test_rows_share_the_weights_but_not_the_kv() -> None:
    folded = fold_costs(build_program(make_source()), kv_precision="f16")
    one, two = folded.step([Row(9, 1)]), folded.step([Row(9, 1), Row(9, 1)])
    assert two.weight_bytes - one.weight_bytes == 32 * 4  # one more embedding row
    assert two.kv_bytes == 2 * one.kv_bytes
    assert two.total_flops == 2 * one.total_flops


def test_an_empty_step_costs_nothing() -> None:
    cost = step_cost(build_program(make_source()), [], kv_precision="f16")
    assert (cost.total_flops, cost.bytes_read, cost.kv_written_bytes) == (0, 0, 0)
    assert set(cost.flops_by_unit) == set(Arithmetic)


def test_bytes_read_are_weights_and_kv() -> None:
    cost = Cost(flops_by_unit={Arithmetic.FP32: 5, Arithmetic.INT8: 2}, weight_bytes=10, kv_bytes=3, kv_written_bytes=7)
    assert (cost.bytes_read, cost.total_flops) == (13, 7)


def test_prefill_weight_bytes_cover_the_file_once() -> None:
    program = build_program(make_source())
    stored = sum(TENSOR_TYPES[spec.tensor_type].num_bytes(spec.shape) for spec in program.weights.values())
    embedding = VOCAB * 32 * 4
    cost = step_cost(program, [Row(0, 6)], kv_precision="f16")
    assert cost.weight_bytes == stored - embedding + 6 * 32 * 4


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=5))
def test_a_step_costs_the_sum_of_its_rows_but_for_the_weights(shapes: list[tuple[int, int]]) -> None:
    folded = fold_costs(build_program(make_source("gemma3")), kv_precision="f16")
    rows = [Row(start_pos, num_tokens) for start_pos, num_tokens in shapes]
    together, alone = folded.step(rows), Cost.total(folded.step([row]) for row in rows)
    assert together.flops_by_unit == alone.flops_by_unit
    assert together.kv_bytes == alone.kv_bytes
    assert together.kv_written_bytes == alone.kv_written_bytes
    per_token = 32 * 4
    shared = folded.step([Row(0, 1)]).weight_bytes - per_token
    assert alone.weight_bytes - together.weight_bytes == (len(rows) - 1) * shared


@given(st.integers(1, 60), st.integers(1, 59))
def test_chunks_cost_what_the_whole_costs_but_for_rereading(num_tokens: int, cut: int) -> None:
    cut = min(cut, num_tokens)
    folded = fold_costs(build_program(make_source("gemma3")), kv_precision="f16")
    whole = folded.step([Row(0, num_tokens)])
    chunks = [Row(0, cut, needs_logits=num_tokens == cut), Row(cut, num_tokens - cut)]
    parts = Cost.total(folded.step([row]) for row in chunks if row.num_tokens)
    assert parts.total_flops == whole.total_flops
    assert parts.kv_written_bytes == whole.kv_written_bytes
    assert parts.weight_bytes >= whole.weight_bytes
    assert parts.kv_bytes >= whole.kv_bytes
