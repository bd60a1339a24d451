"""The bound program: what does not fit is refused when it is built, a bad step before anything is written."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.native.program_builders import AttentionModel, Heads, make_step
from twostroke import _native
from twostroke.errors import KernelError
from twostroke.phase_threads import PhaseThreads
from twostroke.program.native import FEW_TOKENS, NativeReader
from twostroke.program.program import BoundStep


def model_and_reader(**options: Any) -> tuple[AttentionModel, NativeReader]:
    model = AttentionModel(Heads(2, 1, 8), num_ids=40, context_length=100)
    return model, model.make_reader(**{"num_blocks": 8, "max_tokens": 32, **options})


def ids(*values: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    return np.array(values, np.int32)


GOOD = make_step([([1, 2, 3], 0, [0]), ([4], 20, [1, 2])])
BAD_STEPS: dict[str, tuple[Callable[[BoundStep], BoundStep], str]] = {
    "id beyond the vocabulary": (lambda s: replace(s, token_ids=ids(1, 2, 40, 4)), "token 2 has id 40"),
    "negative id": (lambda s: replace(s, token_ids=ids(-1, 2, 3, 4)), "token 0 has id -1"),
    "no tokens": (
        lambda s: replace(s, token_ids=ids(), row_starts=ids(0), row_positions=ids(), selected=ids()),
        "0 tokens",
    ),
    "too many tokens": (
        lambda s: make_step([(range(33), 0, [0, 1, 2])]),
        "33 tokens, must have 1 to 32",
    ),
    "too many rows": (lambda s: make_step([([1], 0, [0])] * 17), "17 rows, must have 1 to 16"),
    "an empty row": (lambda s: replace(s, row_starts=ids(0, 0, 4)), "row 0 has 0 tokens"),
    "rows that end early": (lambda s: replace(s, row_starts=ids(0, 3, 3)), "row_starts must go from 0 to 4"),
    "rows that run over": (lambda s: replace(s, row_starts=ids(0, 9, 4)), "row 0 has 9 tokens"),
    "one row start missing": (lambda s: replace(s, row_starts=ids(0, 4)), "one entry more"),
    "negative position": (lambda s: replace(s, row_positions=ids(-1, 20)), "positions -1 to 1"),
    "position beyond the context": (lambda s: replace(s, row_positions=ids(0, 100)), "positions 100 to 100"),
    "missing block": (lambda s: make_step([([1], 20, [-1, 2])]), "block 0 of its table is -1"),
    "block beyond the store": (lambda s: make_step([([1], 0, [8])]), "is 8, the store has 8"),
    "table too short": (lambda s: make_step([([1], 32, [0, 1])]), "needs 3 blocks, its table has 2"),
    "no table": (lambda s: replace(s, block_tables=()), "0 block tables, must have 1"),
    "table with too few rows": (lambda s: replace(s, block_tables=(s.block_tables[0][:1],)), "fewer rows"),
    "selected twice": (lambda s: replace(s, selected=ids(1, 1)), "entry 1 is 1"),
    "selected beyond the tokens": (lambda s: replace(s, selected=ids(4)), "entry 0 is 4"),
    "negative selected": (lambda s: replace(s, selected=ids(-1)), "entry 0 is -1"),
}


@pytest.mark.parametrize("case", BAD_STEPS)
def test_a_bad_step_is_refused_and_changes_nothing(case: str) -> None:
    change, message = BAD_STEPS[case]
    _, reader = model_and_reader()
    reader.run(make_step([(range(20), 0, [1, 2])]))
    before = reader.run(GOOD).copy()
    with pytest.raises(KernelError, match=message):
        reader.run(change(GOOD))
    assert np.array_equal(reader.run(GOOD), before)


@pytest.mark.parametrize("isa", _native.usable_isas())
@pytest.mark.parametrize("num_tokens", [1, 3, 40])
@pytest.mark.parametrize("words", [[0, 1], [1 << 31, 0], [7, 1 << 5], [1], []])
def test_panels_of_which_nothing_is_wanted_are_left_out(isa: str, num_tokens: int, words: list[int]) -> None:
    model = AttentionModel(Heads(2, 1, 8), num_ids=40, context_length=100)
    reader = model.make_reader(num_blocks=8, max_tokens=48, isa=isa, threads=2)
    step = make_step([([each % 40 for each in range(num_tokens)], 0, [0, 1, 2])])
    whole = reader.run(step).copy()
    narrow = reader.run(replace(step, wanted=np.array(words, np.uint32)))
    for panel, columns in enumerate((slice(0, 32), slice(32, 40))):
        if panel < len(words) and words[panel]:
            assert np.array_equal(narrow[:, columns], whole[:, columns])
        else:
            assert np.isneginf(narrow[:, columns]).all()
    assert np.array_equal(reader.run(step), whole)


@pytest.mark.parametrize("num_tokens", [1, 4, 5, 40])
def test_phases_run_on_their_own_threads_with_the_same_bits(num_tokens: int) -> None:
    model = AttentionModel(Heads(6, 2, 16), num_ids=500, context_length=100)
    reader = model.make_reader(num_blocks=8, max_tokens=48, threads=3)
    step = make_step([([7 * each for each in range(num_tokens)], 0, [0, 1, 2])])
    whole = reader.run(step).copy()
    seen: list[int] = []
    native_step = reader._bound.step

    def watched(*arguments: Any) -> str:
        seen.append(arguments[-2])
        return native_step(*arguments)

    reader._bound = SimpleNamespace(step=watched)  # type: ignore[assignment]
    for threads in (PhaseThreads(3, 1), PhaseThreads(1, 3), PhaseThreads(2, 2), PhaseThreads(9, 9)):
        reader.threads = threads
        assert np.array_equal(reader.run(step), whole)
        assert seen.pop() == (threads.decode if num_tokens <= FEW_TOKENS else threads.prefill)


def test_arrays_of_the_wrong_kind_are_refused() -> None:
    _, reader = model_and_reader()
    with pytest.raises(KernelError, match="did not run"):
        reader.run(replace(GOOD, token_ids=np.zeros((2, 2), np.int32)))
    with pytest.raises(KernelError, match="did not run"):
        reader.run(replace(GOOD, wanted=np.zeros((2, 1), np.uint32)))


def test_copies_of_blocks_that_do_not_exist_are_refused() -> None:
    _, reader = model_and_reader()
    for group, source, target in ((1, 0, 0), (0, 8, 0), (0, 0, -1)):
        with pytest.raises(KernelError, match=r"is not in \[0, "):
            reader.copy_block(group, source, target)


def test_bytes_of_a_block() -> None:
    for precision, size in (("f32", 4), ("f16", 2), ("bf16", 2)):
        _, reader = model_and_reader(precision=precision)
        assert reader.kv_bytes_per_block == (2 * 16 * 8 * size,)


@pytest.mark.parametrize("group", [-1, 1])
def test_bytes_of_a_group_that_does_not_exist_are_refused(group: int) -> None:
    with pytest.raises(IndexError):
        _native.KVStore("f32", 16, [(1, 2, 8, 4)]).block_bytes(group)


def test_no_selected_token_gives_no_logits_but_writes_the_cache() -> None:
    model, reader = model_and_reader()
    tokens = list(range(5))
    assert reader.run(make_step([(tokens[:4], 0, [0])], selected=[])).shape == (0, model.vocab)
    last = reader.run(make_step([(tokens[4:], 4, [0])])).copy()
    whole = reader.run(make_step([(tokens, 0, [1])]))
    assert np.array_equal(last[0], whole[4])


def make_bound(limits: tuple[int, int, int, int] = (8, 2, 64, 32)) -> _native.Program:
    """Values: 0 and 1 [tokens, 32], 2 [selected, 32], 3 the logits; one rope table of 4 angles."""
    values = [(32, 0, 0, 48), (32, 0, 48, 48), (32, 1, 96, 48), (32, 1, -2, 32)]
    store = _native.KVStore("f32", 16, [(1, 2, 8, 4)])
    return _native.Program(_native.Pool(1), store, "portable", limits, values, [([1.0] * 4, 1.0)])


def square() -> _native.Weight:
    return _native.pack_weight("F32", np.zeros(32 * 32 * 4, np.uint8), 32, 32)


def add(bound: _native.Program, op: str, inputs: list[int], outputs: list[int], **given: Any) -> None:
    parts: dict[str, Any] = {"weights": [], "vectors": [], "ints": [], "floats": [], **given}
    bound.add(op=op, name=f"the {op}", inputs=inputs, outputs=outputs, **parts)


ONES = np.ones(32, np.float32)
BAD_INSTRS: list[tuple[str, list[int], list[int], dict[str, Any], str]] = [
    ("dance", [0], [1], {}, "unknown op dance"),
    ("add", [0], [1], {}, "number of inputs is 1, must be 2"),
    ("add", [0, 9], [1], {}, r"input id is 9, must be in \[0, 3\]"),
    ("add", [0, 0], [-1], {}, "output id is -1"),
    ("add", [0, 2], [1], {}, "different axes"),
    ("select", [2], [2], {}, "goes from tokens to selected"),
    ("rmsnorm", [0], [1], {"vectors": [ONES[:8]], "ints": [32], "floats": [1e-5]}, "norm weight is 8, must be 32"),
    ("rmsnorm", [0], [1], {"vectors": [ONES], "ints": [32], "floats": [float("nan")]}, "eps is not finite"),
    ("rope", [0], [1], {"ints": [4, 8, 8, 2, 0]}, r"style is 2, must be in \[0, 1\]"),
    ("rope", [0], [1], {"ints": [4, 8, 8, 0, 1]}, "table is 1"),
    ("rope", [0], [1], {"ints": [4, 8, 6, 0, 0]}, "rotary_dim is 6, must be 8"),
    ("attend", [0], [1], {"ints": [0, 0, 4, 2, 16, 0], "floats": [1.0, 0.0]}, "head_dim is 16, must be 8"),
    ("attend", [0], [1], {"ints": [0, 1, 4, 2, 8, 0], "floats": [1.0, 0.0]}, "layer is 1"),
    ("attend", [0], [1], {"ints": [1, 0, 4, 2, 8, 0], "floats": [1.0, 0.0]}, "KV group is 1"),
    ("kv_write", [0, 1], [], {"ints": [0, 0, 2, 8]}, "width is 32, must be 16"),
    ("glu", [0, 0], [1], {"ints": [5]}, "activation is 5"),
    ("softcap", [0], [1], {"floats": [0.0]}, "cap must be positive"),
    ("linear", [0], [], {}, "number of weights is 0"),
]


@pytest.mark.parametrize(("op", "inputs", "outputs", "given", "message"), BAD_INSTRS)
def test_a_bad_instr_is_refused_by_name(
    op: str, inputs: list[int], outputs: list[int], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"the {op}: .*{message}"):
        add(make_bound(), op, inputs, outputs, **given)


def test_weights_of_other_shapes_are_refused() -> None:
    narrow = _native.pack_weight("F32", np.zeros(16 * 32 * 4, np.uint8), 16, 32)
    with pytest.raises(ValueError, match="weight rows is 16, must be 32"):
        add(make_bound(), "linear", [0], [1], weights=[narrow], vectors=[ONES[:0]])
    with pytest.raises(ValueError, match="bias is 3, must be 32"):
        add(make_bound(), "linear", [0], [1], weights=[square()], vectors=[ONES[:3]])
    with pytest.raises(ValueError, match="works on tokens"):
        add(make_bound(), "embed", [], [2], weights=[square()])


@pytest.mark.parametrize("groups", [[], [(0, 1)], [(0, 2), (1, 2)], [(1, 2)], [(0, 3)], [(0, 0), (0, 2)]])
def test_groups_that_do_not_cover_the_program_are_refused(groups: list[tuple[int, int]]) -> None:
    bound = make_bound()
    add(bound, "embed", [], [0], weights=[square()])
    add(bound, "scale", [0], [1], floats=[2.0])
    with pytest.raises(ValueError, match="groups must cover all instrs in order"):
        bound.finish(groups)


def test_what_cannot_share_a_phase_is_refused() -> None:
    bound = make_bound()
    add(bound, "embed", [], [0], weights=[square()])
    add(bound, "linear", [0], [1], weights=[square()], vectors=[ONES[:0]])
    add(bound, "select", [1], [2])
    with pytest.raises(ValueError, match="the select: select cannot follow a linear"):
        bound.finish([(0, 1), (1, 3)])


def test_values_must_be_written_once_and_before_they_are_read() -> None:
    bound = make_bound()
    add(bound, "scale", [0], [1], floats=[2.0])
    with pytest.raises(ValueError, match="the scale: reads value 0 too early"):
        bound.finish([(0, 1)])
    bound = make_bound()
    add(bound, "embed", [], [0], weights=[square()])
    add(bound, "scale", [0], [0], floats=[2.0])
    with pytest.raises(ValueError, match="the scale: writes value 0 a second time"):
        bound.finish([(0, 1), (1, 2)])


def test_a_local_value_cannot_be_read_by_another_group() -> None:
    store = _native.KVStore("f32", 16, [(1, 2, 8, 4)])
    values = [(32, 0, -1, 48), (32, 0, 0, 48)]
    bound = _native.Program(_native.Pool(1), store, "portable", (8, 2, 64, 32), values, [])
    add(bound, "embed", [], [0], weights=[square()])
    add(bound, "scale", [0], [1], floats=[2.0])
    with pytest.raises(ValueError, match="the scale: value 0 is local to another group"):
        bound.finish([(0, 1), (1, 2)])
    bound.finish([(0, 2)])


def test_a_phase_stays_on_one_axis() -> None:
    bound = make_bound()
    add(bound, "embed", [], [0], weights=[square()])
    add(bound, "select", [0], [2])
    add(bound, "scale", [0], [1], floats=[2.0])
    add(bound, "logits", [2], [3], weights=[square()])
    with pytest.raises(ValueError, match="another axis"):
        bound.finish([(0, 1), (1, 2), (2, 4)])


def test_a_program_is_finished_once() -> None:
    bound = make_bound()
    add(bound, "embed", [], [0], weights=[square()])
    arrays = (ids(0), ids(0, 1), ids(0), [np.zeros((1, 4), np.int32)], ids(), np.empty((1, 32), np.float32))
    assert bound.step(*arrays) == "the program is not finished"
    bound.finish([(0, 1)])
    assert bound.step(*arrays) == ""
    with pytest.raises(ValueError, match="finished"):
        add(bound, "scale", [0], [1], floats=[1.0])
    with pytest.raises(ValueError, match="finished"):
        bound.finish([(0, 1)])


def test_limits_and_stores_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="limits of a program must be positive"):
        make_bound((0, 1, 1, 32))
    with pytest.raises(ValueError, match="max_tokens is 300000, at most 262144"):
        make_bound((300_000, 1, 1, 32))
    with pytest.raises(ValueError, match="KV block size is 24"):
        _native.KVStore("f32", 24, [(1, 1, 8, 1)])
    with pytest.raises(ValueError, match="head_dim is 7, must be even"):
        _native.KVStore("f32", 16, [(1, 1, 7, 1)])
    with pytest.raises(ValueError, match="unknown KV precision 'f8'"):
        _native.KVStore("f8", 16, [(1, 1, 8, 1)])


def test_more_memory_than_the_address_space_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        _native.KVStore("f32", 32, [(2**20, 2**10, 256, 2**30)])
