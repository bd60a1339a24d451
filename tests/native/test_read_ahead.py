"""What a thread asks for while it waits: the front of its own share of the next weights, and nothing beside them."""

import numpy as np
import pytest

from twostroke import _native

MOST_BYTES = 16 * 1024
PANEL_ROWS = 32


def matrix(rows: int, cols: int) -> _native.Weight:
    return _native.pack_weight("F32", np.zeros(4 * rows * cols, np.uint8), rows, cols)


def finished(threads: int, *linears: list[_native.Weight], joined: bool = False) -> _native.Program:
    """embed, then linears that read its value; `joined`: a glu behind the first one joins its two weights."""
    cols = linears[0][0].cols
    values = [(cols, 0, 0, cols)]
    store = _native.KVStore("f32", 16, [(1, 1, 8, 1)])
    offset = cols
    outputs = []
    for weights in linears:
        outputs.append(list(range(len(values), len(values) + len(weights))))
        for weight in weights:
            stride = -(-weight.rows // 16) * 16
            values.append((weight.rows, 0, offset, stride))
            offset += stride
    if joined:
        values.append((*values[outputs[0][0]][:2], offset, values[outputs[0][0]][3]))
    limits = (4, 2, 64, 32)
    bound = _native.Program(_native.Pool(threads), store, "portable", limits, values, [([1.0], 1.0)])
    empty = [np.empty(0, np.float32)]

    def add(op: str, **parts: list[object]) -> None:
        full: dict[str, list[object]] = {
            "inputs": [],
            "outputs": [],
            "weights": [],
            "vectors": [],
            "ints": [],
            "floats": [],
        } | parts
        bound.add(op=op, name=op, **full)  # type: ignore[arg-type]

    add("embed", outputs=[0], weights=[matrix(32, cols)])
    groups = [(0, 1)]
    for weights, out in zip(linears, outputs, strict=True):
        add("linear", inputs=[0], outputs=[*out], weights=[*weights], vectors=[*(empty * len(weights))])
        groups.append((groups[-1][1], groups[-1][1] + 1))
    if joined:
        add("glu", inputs=[*outputs[0]], outputs=[len(values) - 1], ints=[0])
        groups = [(0, 1), (1, 3)]
    bound.finish(groups)
    return bound


def within(stretch: tuple[int, int], weight: _native.Weight) -> bool:
    return weight.address <= stretch[0] and stretch[0] + stretch[1] <= weight.address + weight.num_bytes


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize(("rows", "cols"), [(1, 16), (32, 16), (33, 64), (1000, 16), (320, 512)])
def test_nothing_outside_the_weights_is_asked_for(threads: int, rows: int, cols: int) -> None:
    weights = [matrix(rows, cols), matrix(rows + 40, cols)]
    bound = finished(threads, weights, [matrix(rows, cols)])
    for worker in range(threads):
        phases = bound.first_reads(worker)
        assert len(phases) == 2  # embed reads rows of its own choice: there is nothing to ask for
        for stretch in phases[0]:
            assert any(within(stretch, weight) for weight in weights)
        for stretches in phases:
            assert 0 < sum(num_bytes for _, num_bytes in stretches) <= MOST_BYTES


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_thread_begins_with_its_own_share(threads: int) -> None:
    weight = matrix(96 * PANEL_ROWS, 16)
    panel_bytes = weight.num_bytes // 96
    bound = finished(threads, [weight])
    starts = [bound.first_reads(worker)[0][0][0] for worker in range(threads)]
    assert starts == [weight.address + panel_bytes * 96 * worker // threads for worker in range(threads)]


def test_a_share_follows_the_order_of_the_weights_it_covers() -> None:
    first, second = matrix(32, 16), matrix(64, 16)
    bound = finished(1, [first, second])
    panel_bytes = first.num_bytes
    assert bound.first_reads(0) == [
        [(first.address, panel_bytes), (second.address, panel_bytes), (second.address + panel_bytes, panel_bytes)]
    ]


def test_joined_weights_are_read_panel_by_panel() -> None:
    gate, up = matrix(64, 16), matrix(64, 16)
    panel_bytes = gate.num_bytes // 2
    bound = finished(1, [gate, up], joined=True)
    addresses = [address for address, _ in bound.first_reads(0)[0]]
    assert addresses == [gate.address, up.address, gate.address + panel_bytes, up.address + panel_bytes]


def test_a_stretch_ends_where_the_limit_is_reached() -> None:
    weight = matrix(64, 112)  # panels of 14 KiB
    (stretches,) = finished(1, [weight]).first_reads(0)
    assert stretches == [(weight.address, 14_336), (weight.address + 14_336, MOST_BYTES - 14_336)]


@pytest.mark.parametrize("worker", [-1, 2])
def test_other_workers_have_no_plan(worker: int) -> None:
    bound = finished(2, [matrix(32, 16)])
    with pytest.raises(ValueError, match="no such worker"):
        bound.first_reads(worker)
