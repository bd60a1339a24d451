"""What `show` prints: every instr once, equal layers folded, totals that add up, valid JSON."""

import json
import re

import pytest
from hypothesis import given, strategies as st

from tests.builders_sources import make_source
from twostroke.model.families import FAMILIES, build_program
from twostroke.program.listing import (
    Listing,
    count_text,
    list_program,
    listing_dict,
    listing_text,
    num_parameters,
    size_text,
    weight_bytes,
)


def make_listing(architecture: str = "llama", *, tensor_type: str = "F32", kv_precision: str = "f16") -> Listing:
    program = build_program(make_source(architecture, tensor_type=tensor_type))
    return list_program(program, kv_precision=kv_precision, prefill_tokens=16, decode_depth=20)


def line_of(text: list[str], start: str) -> str:
    (line,) = [line for line in text if line.startswith(start)]
    return line


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_instr_is_in_exactly_one_line(architecture: str) -> None:
    listing = make_listing(architecture)
    assert sum(line.times for line in listing.lines) == len(listing.program.instrs)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_the_lines_add_up_to_the_totals(architecture: str) -> None:
    listing = make_listing(architecture)
    for phase in ("prefill", "decode"):
        total = getattr(listing, phase)
        lines = [getattr(line, phase) for line in listing.lines]
        assert sum(cost.total_flops for cost in lines) == total.total_flops
        assert sum(cost.bytes_read for cost in lines) == total.bytes_read
        assert sum(cost.kv_written_bytes for cost in lines) == total.kv_written_bytes


def test_equal_layers_are_shown_once_with_their_number() -> None:
    names = {line.name: line.times for line in make_listing().lines}
    assert names["blk.*.attn_q+attn_k+attn_v"] == 2
    assert names["token_embd"] == 1
    own = [name for name in names if re.match(r"blk\.\d", name)]
    behind_attention = ("attn_output", "attn_add", "ffn_norm", "ffn_gate+ffn_up", "glu", "ffn_down", "ffn_add")
    assert own == [f"blk.{layer}.{name}" for layer in (0, 1) for name in behind_attention]  # the last: selected tokens


def test_layers_that_differ_keep_their_own_lines() -> None:
    attends = [line for line in make_listing("gemma3").lines if line.op == "attend"]
    assert [(line.name, line.times) for line in attends] == [("blk.0.attend", 1), ("blk.1.attend", 1)]
    assert "window 4" in attends[0].shape
    assert "window" not in attends[1].shape


def test_shapes_say_widths_and_attributes() -> None:
    shapes = {line.name: line.shape for line in make_listing("qwen2").lines}
    assert shapes["token_embd"] == "ids -> 32"
    assert shapes["blk.*.attn_q+attn_k+attn_v"] == "32 -> 32 16 16 (bias)"
    assert shapes["blk.*.rope_q"] == "32 -> 32 (4 heads, 8 of 8, halves)"
    assert shapes["blk.*.kv_write"] == "16 16 -> cache"
    assert shapes["blk.*.attend"] == "32 -> 32 (4/2 heads of 8)"
    assert shapes["output_norm"] == "32 -> 32 (groups of 32) selected"
    assert shapes["logits"] == "32 -> 40 selected"


def test_text_has_head_table_totals_and_kv() -> None:
    text = listing_text(make_listing(tensor_type="Q8_0", kv_precision="bf16"))
    assert text[0] == "llama: 2 layers, width 32, vocabulary 40, context 64"
    assert text[1].endswith("B")
    assert line_of(text, "op ").split()[:5] == ["op", "name", "times", "shape", "weights"]
    assert "Q8_0" in line_of(text, "logits")
    prefill = line_of(text, "prefill of 16 tokens:")
    assert re.search(r"FLOPs \(.* int8, .* bf16, .* fp32\)", prefill)
    assert line_of(text, "decode of 1 token at depth 20:")
    assert line_of(text, "KV group 0:") == (
        "KV group 0: 2 layers, 2 heads of 8, all positions, 128 B per token as bf16"
    )


def test_units_that_do_nothing_are_left_out_of_the_text() -> None:
    prefill = line_of(listing_text(make_listing()), "prefill")
    assert "int8" not in prefill
    assert "fp32" in prefill


def test_columns_line_up_and_no_line_ends_in_spaces() -> None:
    text = listing_text(make_listing("gemma3"))
    start = text.index("") + 1
    table = text[start : text.index("", start)]
    column = table[0].index("times")
    assert all(line[column].isdigit() for line in table[1:])
    assert all(line == line.rstrip() for line in text)


def test_the_dict_is_json_with_exact_numbers() -> None:
    listing = make_listing("gemma3")
    data = json.loads(json.dumps(listing_dict(listing)))
    assert data["architecture"] == "gemma3"
    assert data["phases"]["prefill"]["tokens"] == 16
    assert data["phases"]["decode"]["depth"] == 20
    assert data["phases"]["prefill"]["flops"] == listing.prefill.total_flops
    assert sum(data["phases"]["decode"]["flops_by_unit"].values()) == data["phases"]["decode"]["flops"]
    assert [group["window"] for group in data["kv_groups"]] == [4, None]
    assert sum(op["prefill"]["flops"] for op in data["ops"]) == data["phases"]["prefill"]["flops"]
    assert data["num_parameters"] == num_parameters(listing.program)


def test_a_tied_matrix_counts_once() -> None:
    untied = build_program(make_source())
    tied = build_program(make_source(shapes={"output.weight": None}))
    assert num_parameters(untied) - num_parameters(tied) == 40 * 32
    assert weight_bytes(untied) - weight_bytes(tied) == 40 * 32 * 4


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.00k"),
        (9_994, "9.99k"),
        (9_996, "10.0k"),
        (12_345, "12.3k"),
        (99_960, "100k"),
        (999_499, "999k"),
        (999_999, "1.00M"),
        (2_500_000, "2.50M"),
        (10**12, "1.00T"),
        (1234 * 10**12, "1234T"),
    ],
)
def test_counts_have_three_digits(value: int, text: str) -> None:
    assert count_text(value) == text


@given(st.integers(0, 10**15 - 10**12))
def test_counts_are_right_within_half_a_digit(value: int) -> None:
    text = count_text(value)
    number = float(text.rstrip("kMGT")) * 1000 ** ("kMGT".index(text[-1]) + 1 if text[-1] in "kMGT" else 0)
    assert number == pytest.approx(value, rel=5.1e-3)
    assert len(text.strip("kMGT").replace(".", "")) <= 3


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (96_612_480, "96.6 MB")]
)
def test_sizes_are_spaced_as_everywhere(num_bytes: int, text: str) -> None:
    assert size_text(num_bytes) == text


def test_a_deeper_decode_reads_more_kv_and_the_same_weights() -> None:
    program = build_program(make_source())
    near, far = (
        list_program(program, kv_precision="f16", prefill_tokens=8, decode_depth=depth).decode for depth in (10, 50)
    )
    assert far.kv_bytes - near.kv_bytes == 40 * 2 * 2 * 2 * 8 * 2
    assert far.weight_bytes == near.weight_bytes


def test_a_window_stops_the_growth_in_its_layers() -> None:
    program = build_program(make_source("gemma3"))
    listing = list_program(program, kv_precision="f16", prefill_tokens=8, decode_depth=1000)
    window, everything = [line.decode.kv_bytes for line in listing.lines if line.op == "attend"]
    assert (window, everything) == (4 * 2 * 2 * 8 * 2, 1001 * 2 * 2 * 8 * 2)


@pytest.mark.parametrize("tensor_type", ["F16", "BF16", "Q8_0", "Q4_1", "Q5_0"])
def test_types_are_shown_as_stored(tensor_type: str) -> None:
    weights = {line.name: line.weights for line in make_listing(tensor_type=tensor_type).lines}
    assert weights["blk.*.attn_q+attn_k+attn_v"] == " ".join([tensor_type] * 3)
    assert weights["blk.*.attn_norm"] == "F32"
    assert weights["blk.*.attend"] == ""


def test_every_fact_of_a_line_and_a_group_has_its_key() -> None:
    data = listing_dict(make_listing("qwen2", tensor_type="Q8_0", kv_precision="bf16"))
    assert {key: data[key] for key in ("width", "vocab_size", "context_length", "kv_precision")} == {
        "width": 32,
        "vocab_size": 40,
        "context_length": 64,
        "kv_precision": "bf16",
    }
    assert data["kv_groups"] == [{"layers": [0, 1], "num_kv_heads": 2, "head_dim": 8, "window": None}]
    (write,) = [op for op in data["ops"] if op["op"] == "kv_write"]
    assert {key: write[key] for key in ("name", "times", "shape", "weights")} == {
        "name": "blk.*.kv_write",
        "times": 2,
        "shape": "16 16 -> cache",
        "weights": "",
    }
    per_token = 2 * 2 * 16 * 2  # layers x (K, V) x elements x bytes
    assert write["decode"] == {
        "flops": 0,
        "flops_by_unit": {"int8": 0, "bf16": 0, "fp32": 0},
        "weight_bytes": 0,
        "kv_bytes": 0,
        "kv_written_bytes": per_token,
    }
    assert write["prefill"]["kv_written_bytes"] == 16 * per_token
    phases = data["phases"]
    assert phases["decode"]["kv_bytes"] == 21 * per_token
    assert phases["prefill"]["kv_bytes"] == 16 * per_token
    assert phases["prefill"]["weight_bytes"] - phases["decode"]["weight_bytes"] == 15 * 34  # embedding rows of Q8_0


def test_texts_stand_left_and_numbers_right() -> None:
    text = listing_text(make_listing())
    start = text.index("") + 1
    head, *rows = text[start : text.index("", start)]
    shape, weights = head.index("shape"), head.index("weights")
    assert all(row[shape] != " " and row[shape - 1] == " " for row in rows)
    assert all(row[weights - 1] == " " for row in rows)
    assert len({len(row) for row in (head, *rows)}) == 1, "the last column ends on one line"


def test_totals_of_a_phase_are_spelled_in_full() -> None:
    text = listing_text(make_listing())
    decode = make_listing().decode
    assert line_of(text, "decode") == (
        f"decode of 1 token at depth 20: {count_text(decode.total_flops)} FLOPs "
        f"({count_text(decode.total_flops)} fp32), {size_text(decode.weight_bytes)} of weights, "
        "2.69 kB of KV read, 128 B written"
    )


def test_a_windowed_group_and_single_things_are_spelled_so() -> None:
    text = listing_text(make_listing("gemma3", kv_precision="f32"))
    assert line_of(text, "KV group 0") == "KV group 0: 1 layer, 2 heads of 8, a window of 4, 128 B per token as f32"
    assert line_of(text, "KV group 1") == "KV group 1: 1 layer, 2 heads of 8, all positions, 128 B per token as f32"


def test_the_head_counts_parameters_and_their_bytes() -> None:
    listing = make_listing(tensor_type="F16")
    matrices = 2 * 40 * 32 + 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32)
    norms = 5 * 32
    assert num_parameters(listing.program) == matrices + norms
    assert weight_bytes(listing.program) == 2 * matrices + 4 * norms
    assert listing_text(listing)[1] == (
        f"{count_text(matrices + norms)} parameters in {size_text(2 * matrices + 4 * norms)}"
    )
