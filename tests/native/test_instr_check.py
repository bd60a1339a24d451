"""Every fact of an instr is checked when it is added: the message names the instr, the fact and both numbers."""

from typing import Any

import numpy as np
import pytest

from twostroke import _native

EMPTY = np.empty(0, np.float32)
ONES = np.ones(32, np.float32)
TOKENS, MORE_TOKENS, NARROW, SELECTED, LOGITS, WIDE = range(6)
VOCAB = 40


def matrix(rows: int, cols: int, tensor_type: str = "F32") -> _native.Weight:
    size = {"F32": 4 * rows * cols, "Q8_0": rows * cols // 32 * 34}[tensor_type]
    return _native.pack_weight(tensor_type, np.zeros(size, np.uint8), rows, cols)


def make_bound(*, pool: _native.Pool | None = None) -> _native.Program:
    """Values of width 32, 32, 16 and 8 on tokens, 32 and the logits on selected; one group of 2 heads of 8."""
    values = [
        (32, 0, 0, 32),
        (32, 0, 32, 32),
        (16, 0, 64, 16),
        (32, 1, 80, 32),
        (VOCAB, 1, -2, VOCAB),
        (64, 0, 112, 64),
    ]
    store = _native.KVStore("f32", 16, [(2, 2, 8, 4), (1, 1, 16, 4)])
    return _native.Program(pool or _native.Pool(1), store, "portable", (8, 2, 64, VOCAB), values, [([1.0] * 4, 1.0)])


def good_instrs() -> dict[str, dict[str, Any]]:
    """One instr of every op that is taken as it stands."""
    return {
        "embed": {"outputs": [TOKENS], "weights": [matrix(VOCAB, 32)]},
        "rmsnorm": {"inputs": [TOKENS], "outputs": [MORE_TOKENS], "vectors": [ONES], "ints": [32], "floats": [1e-5]},
        "linear": {"inputs": [TOKENS], "outputs": [NARROW], "weights": [matrix(16, 32)], "vectors": [ONES[:16]]},
        "rope": {"inputs": [TOKENS], "outputs": [MORE_TOKENS], "ints": [4, 8, 8, 0, 0]},
        "kv_write": {"inputs": [NARROW, NARROW], "ints": [0, 1, 2, 8]},
        "attend": {"inputs": [TOKENS], "outputs": [MORE_TOKENS], "ints": [0, 1, 4, 2, 8, 0], "floats": [0.3, 0.0]},
        "glu": {"inputs": [TOKENS, TOKENS], "outputs": [MORE_TOKENS], "ints": [1]},
        "add": {"inputs": [TOKENS, MORE_TOKENS], "outputs": [MORE_TOKENS]},
        "scale": {"inputs": [TOKENS], "outputs": [MORE_TOKENS], "floats": [2.0]},
        "softcap": {"inputs": [TOKENS], "outputs": [MORE_TOKENS], "floats": [30.0]},
        "select": {"inputs": [TOKENS], "outputs": [SELECTED]},
        "logits": {"inputs": [SELECTED], "outputs": [LOGITS], "weights": [matrix(VOCAB, 32)]},
    }


OPS = tuple(good_instrs())
PARTS = ("inputs", "outputs", "weights", "vectors", "ints", "floats")


def add(bound: _native.Program, op: str, **changed: Any) -> None:
    parts: dict[str, Any] = {part: [] for part in PARTS} | good_instrs()[op] | changed
    bound.add(op=op, name=f"the {op}", **parts)


@pytest.mark.parametrize("op", OPS)
def test_the_good_instr_of_every_op_is_taken(op: str) -> None:
    add(make_bound(), op)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("part", PARTS)
def test_one_entry_too_many_or_too_few_is_refused_with_both_counts(op: str, part: str) -> None:
    given = good_instrs()[op].get(part, [])
    spare = {"inputs": TOKENS, "outputs": TOKENS, "weights": matrix(32, 32), "vectors": ONES, "ints": 1, "floats": 1.0}
    changes = [[*given, spare[part]]] + ([given[:-1]] if given else [])
    for changed in changes:
        if op == "linear" and part == "outputs":
            counts = f"number of weights is 1, must be {len(changed)}"
        else:
            counts = f"number of {part} is {len(changed)}, must be {len(given)}"
        with pytest.raises(ValueError, match=f"^the {op}: {counts}$"):
            add(make_bound(), op, **{part: changed})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("part", ["inputs", "outputs"])
@pytest.mark.parametrize("id", [-1, 6, 2**31 - 1])
def test_ids_of_no_value_are_refused(op: str, part: str, id: int) -> None:
    given = good_instrs()[op].get(part, [])
    for place in range(len(given)):
        changed = [*given[:place], id, *given[place + 1 :]]
        with pytest.raises(ValueError, match=rf"^the {op}: {part[:-1]} id is {id}, must be in \[0, 5\]$"):
            add(make_bound(), op, **{part: changed})


# op -> per integer: its name, the least and the most it may be
RANGES: dict[str, list[tuple[str, int, int]]] = {
    "rmsnorm": [("group", 1, 2**20)],
    "rope": [
        ("num_heads", 1, 2**20),
        ("head_dim", 2, 2**20),
        ("rotary_dim", 2, 8),
        ("style", 0, 1),
        ("table", 0, 0),
    ],
    "kv_write": [("KV group", 0, 1), ("layer", 0, 1), ("num_kv_heads", 1, 2**20), ("head_dim", 2, 2**20)],
    "attend": [
        ("KV group", 0, 1),
        ("layer", 0, 1),
        ("num_heads", 1, 2**20),
        ("num_kv_heads", 1, 2**20),
        ("head_dim", 2, 2**20),
        ("window", 0, 2**31 - 1),
    ],
    "glu": [("activation", 0, 1)],
}
PLACES = [(op, place) for op, ranges in RANGES.items() for place in range(len(ranges))]


@pytest.mark.parametrize(("op", "place"), PLACES)
def test_every_integer_has_its_range(op: str, place: int) -> None:
    name, least, most = RANGES[op][place]
    for value in (least - 1, most + 1, -(2**63), 2**63 - 1, 2**32 + least):
        ints = list(good_instrs()[op]["ints"])
        ints[place] = value
        with pytest.raises(ValueError, match=rf"^the {op}: {name} is {value}, must be in \[{least}, {most}\]$"):
            add(make_bound(), op, ints=ints)


FLOATS = {"rmsnorm": ["eps"], "attend": ["scale", "softcap"], "scale": ["factor"], "softcap": ["cap"]}


@pytest.mark.parametrize(("op", "place"), [(op, place) for op, names in FLOATS.items() for place in range(len(names))])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_every_number_must_be_finite(op: str, place: int, value: float) -> None:
    floats = list(good_instrs()[op]["floats"])
    floats[place] = value
    with pytest.raises(ValueError, match=f"^the {op}: {FLOATS[op][place]} is not finite$"):
        add(make_bound(), op, floats=floats)


BAD_SHAPES: list[tuple[str, dict[str, Any], str]] = [
    ("embed", {"outputs": [NARROW]}, "weight columns is 32, must be 16"),
    ("embed", {"weights": [matrix(39, 32)]}, "weight rows is 39, must be 40"),
    ("embed", {"outputs": [SELECTED]}, "works on tokens"),
    ("rmsnorm", {"outputs": [NARROW]}, "width is 16, must be 32"),
    ("rmsnorm", {"outputs": [SELECTED]}, "its values are on different axes"),
    ("rmsnorm", {"ints": [5], "vectors": [ONES[:5]]}, "width modulo group is 2, must be 0"),
    ("rmsnorm", {"vectors": [ONES[:31]]}, "norm weight is 31, must be 32"),
    ("linear", {"inputs": [NARROW]}, "weight columns is 32, must be 16"),
    ("linear", {"outputs": [TOKENS]}, "weight rows is 16, must be 32"),
    ("linear", {"outputs": [SELECTED], "weights": [matrix(32, 32)]}, "its values are on different axes"),
    ("linear", {"vectors": [ONES[:15]]}, "bias is 15, must be 16"),
    ("rope", {"outputs": [NARROW]}, "width is 16, must be 32"),
    ("rope", {"inputs": [SELECTED], "outputs": [SELECTED]}, "works on tokens"),
    ("rope", {"ints": [3, 8, 8, 0, 0]}, "width is 32, must be 24"),
    ("rope", {"ints": [4, 8, 4, 0, 0]}, "rotary_dim is 4, must be 8"),
    ("kv_write", {"inputs": [TOKENS, NARROW]}, "width is 32, must be 16"),
    ("kv_write", {"inputs": [NARROW, TOKENS]}, "width is 32, must be 16"),
    ("kv_write", {"ints": [0, 0, 2, 16]}, "head_dim is 16, must be 8"),
    ("kv_write", {"ints": [0, 0, 1, 8]}, "num_kv_heads is 1, must be 2"),
    ("kv_write", {"ints": [1, 1, 1, 16]}, r"layer is 1, must be in \[0, 0\]"),
    ("attend", {"inputs": [WIDE]}, "width is 64, must be 32"),
    ("attend", {"outputs": [NARROW]}, "width is 16, must be 32"),
    ("attend", {"outputs": [SELECTED]}, "works on tokens"),
    ("attend", {"ints": [0, 0, 3, 2, 8, 0]}, "width is 32, must be 24"),
    ("attend", {"ints": [0, 0, 4, 4, 8, 0]}, "num_kv_heads is 4, must be 2"),
    ("glu", {"inputs": [TOKENS, NARROW]}, "width is 16, must be 32"),
    ("glu", {"outputs": [NARROW]}, "width is 16, must be 32"),
    ("glu", {"inputs": [TOKENS, SELECTED]}, "its values are on different axes"),
    ("add", {"inputs": [NARROW, TOKENS]}, "width is 32, must be 16"),
    ("add", {"outputs": [SELECTED]}, "its values are on different axes"),
    ("scale", {"outputs": [WIDE]}, "width is 64, must be 32"),
    ("scale", {"outputs": [SELECTED]}, "its values are on different axes"),
    ("softcap", {"inputs": [NARROW]}, "width is 32, must be 16"),
    ("softcap", {"floats": [-1.0]}, "cap must be positive"),
    ("select", {"inputs": [NARROW]}, "width is 32, must be 16"),
    ("select", {"inputs": [SELECTED]}, "goes from tokens to selected"),
    ("select", {"outputs": [MORE_TOKENS]}, "goes from tokens to selected"),
    ("logits", {"outputs": [SELECTED]}, "weight rows is 40, must be 32"),
    ("logits", {"outputs": [SELECTED], "weights": [matrix(32, 32)]}, "width is 32, must be 40"),
    ("logits", {"inputs": [TOKENS]}, "its values are on different axes"),
]


@pytest.mark.parametrize(("op", "changed", "message"), BAD_SHAPES)
def test_what_does_not_fit_is_refused_with_both_numbers(op: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^the {op}: {message}$"):
        add(make_bound(), op, **changed)


def test_three_heads_over_two_kv_heads_are_refused() -> None:
    store = _native.KVStore("f32", 16, [(1, 2, 8, 4)])
    bound = _native.Program(_native.Pool(1), store, "portable", (8, 2, 64, VOCAB), [(24, 0, 0, 32)] * 2, [])
    with pytest.raises(ValueError, match=r"^the attend: num_heads modulo num_kv_heads is 1, must be 0$"):
        add(bound, "attend", inputs=[0], outputs=[1], ints=[0, 0, 3, 2, 8, 0])


def test_one_linear_may_have_64_outputs_and_no_more() -> None:
    store = _native.KVStore("f32", 16, [(1, 2, 8, 4)])
    values = [(32, 0, 0, 32)] * 66
    bound = _native.Program(_native.Pool(1), store, "portable", (8, 2, 64, VOCAB), values, [])
    weight = matrix(32, 32)
    for count in (64, 65):
        parts = {"outputs": list(range(1, count + 1)), "weights": [weight] * count, "vectors": [EMPTY] * count}
        if count == 64:
            add(bound, "linear", **parts)
            continue
        with pytest.raises(ValueError, match=r"^the linear: number of weights is 65, must be in \[1, 64\]$"):
            add(bound, "linear", **parts)


def test_arguments_of_other_kinds_are_type_errors() -> None:
    bound = make_bound()
    for changed in (
        {"weights": [None]},
        {"weights": [object()]},
        {"vectors": [[1.0]]},
        {"outputs": [0.5]},
        {"outputs": [2**31]},
        {"ints": ["1"]},
        {"floats": ["1"]},
    ):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            add(bound, "embed", **changed)
    add(bound, "embed")


def test_refused_instrs_leave_no_trace_in_the_program() -> None:
    bound = make_bound()
    add(bound, "embed")
    for op, changed, _ in BAD_SHAPES:
        with pytest.raises(ValueError, match=r"^the "):
            add(bound, op, **changed)
    add(bound, "select")
    add(bound, "logits")
    bound.finish([(0, 1), (1, 2), (2, 3)])
    logits = np.full((1, VOCAB), 7, np.float32)
    one, starts = np.array([3], np.int32), np.array([0, 1], np.int32)
    zero, table = np.array([0], np.int32), np.zeros((1, 1), np.int32)
    assert bound.step(one, starts, zero, [table, table], zero, logits) == ""
    assert not logits.any()


BAD_VALUES: list[tuple[tuple[int, int, int, int], str]] = [
    ((0, 0, 0, 16), "value 1: width must be positive"),
    ((-5, 0, 0, 16), "value 1: width must be positive"),
    ((8, 0, -3, 16), "value 1: offset must be a multiple of 16"),
    ((8, 0, 8, 16), "value 1: offset must be a multiple of 16"),
    ((8, 0, 16, 0), "value 1: stride must be a multiple of 16 that holds it"),
    ((17, 0, 16, 16), "value 1: stride must be a multiple of 16 that holds it"),
    ((8, 0, 16, 24), "value 1: stride must be a multiple of 16 that holds it"),
    ((VOCAB, 0, -2, VOCAB), "value 1 cannot live in the logits buffer"),
    ((VOCAB - 1, 1, -2, VOCAB), "value 1 cannot live in the logits buffer"),
]


@pytest.mark.parametrize(("value", "message"), BAD_VALUES)
def test_values_without_a_proper_place_are_refused(value: tuple[int, int, int, int], message: str) -> None:
    store = _native.KVStore("f32", 16, [(1, 2, 8, 4)])
    with pytest.raises(ValueError, match=f"^{message}$"):
        _native.Program(_native.Pool(1), store, "portable", (8, 2, 64, VOCAB), [(8, 0, 0, 16), value], [])


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("value", [0, -1])
def test_every_limit_must_be_positive(place: int, value: int) -> None:
    limits = [8, 2, 64, VOCAB]
    limits[place] = value
    store = _native.KVStore("f32", 16, [(1, 2, 8, 4)])
    with pytest.raises(ValueError, match=r"^limits of a program must be positive$"):
        _native.Program(_native.Pool(1), store, "portable", (limits[0], limits[1], limits[2], limits[3]), [], [])


@pytest.mark.parametrize("group", [(0, 2, 8, 4), (1, 0, 8, 4), (1, 2, 8, 0), (-1, 2, 8, 4)])
def test_a_kv_group_of_nothing_is_refused(group: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least one layer, head and block"):
        _native.KVStore("f32", 16, [(1, 2, 8, 4), group])


@pytest.mark.parametrize("precision", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("block_size", [16, 32])
@pytest.mark.parametrize(("layers", "heads", "head_dim"), [(1, 1, 2), (3, 2, 8), (2, 5, 18), (1, 3, 80)])
def test_bytes_of_a_block_are_its_keys_and_values(
    precision: str, block_size: int, layers: int, heads: int, head_dim: int
) -> None:
    store = _native.KVStore(precision, block_size, [(1, 1, 64, 1), (layers, heads, head_dim, 3)])
    numbers = 2 * layers * heads * head_dim * block_size
    assert store.block_bytes(1) >= numbers * (4 if precision == "f32" else 2)
    assert store.block_bytes(1) % (layers * heads * block_size // 16) == 0
    if head_dim % 16 == 0:
        assert store.block_bytes(1) == numbers * (4 if precision == "f32" else 2)


@pytest.mark.parametrize("precision", ["f32", "f16", "bf16"])
def test_copies_reach_the_last_block_of_every_group_and_no_further(precision: str) -> None:
    counts = [3, 1, 5]
    store = _native.KVStore(precision, 16, [(1, 1, 8, count) for count in counts])
    for group, count in enumerate(counts):
        store.copy_block(group, 0, count - 1)
        store.copy_block(group, count - 1, 0)
        for source, target, wrong in ((count, 0, count), (0, count, count), (-1, 0, -1), (0, -(2**31), -(2**31))):
            with pytest.raises(IndexError, match=rf"^block {wrong} is not in \[0, {count}\)$"):
                store.copy_block(group, source, target)
    for group in (-1, 3):
        with pytest.raises(IndexError, match=rf"^KV group {group} is not in \[0, 3\)$"):
            store.copy_block(group, 0, 0)


def test_what_a_program_uses_lives_as_long_as_the_program() -> None:
    bound = make_bound(pool=_native.Pool(2))
    add(bound, "embed")
    add(bound, "select")
    add(bound, "logits", weights=[matrix(VOCAB, 32, "Q8_0")])
    bound.finish([(0, 1), (1, 2), (2, 3)])
    ids, starts = np.array([1, 2], np.int32), np.array([0, 2], np.int32)
    tables = [np.zeros((1, 1), np.int32)] * 2
    logits = np.full((2, VOCAB), 7, np.float32)
    assert bound.step(ids, starts, np.array([0], np.int32), tables, np.array([0, 1], np.int32), logits) == ""
    assert not logits.any()
