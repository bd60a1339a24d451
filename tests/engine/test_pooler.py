"""One vector of many states, whatever the chunks they come in."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st

from twostroke.core.phase import Phase
from twostroke.core.pooling import PoolingKind
from twostroke.core.step import RowPlan, StepPlan
from twostroke.engine.pooler import Pooler

WIDTH = 5


def states_of(num_tokens: int) -> npt.NDArray[np.float32]:
    """Of sizes so different that the order of a sum shows."""
    random = np.random.default_rng(num_tokens)
    values = random.standard_normal((num_tokens, WIDTH)) * 10.0 ** random.integers(-12, 12, (num_tokens, WIDTH))
    return values.astype(np.float32)


def row(sequence_id: int, start: int, end: int, *, is_last: bool) -> RowPlan:
    return RowPlan(sequence_id, start, end - start, Phase.PREFILL, needs_logits=is_last)


def pool(kind: PoolingKind, states: npt.NDArray[np.float32], cuts: list[int]) -> npt.NDArray[np.float64]:
    """The vector of one text whose chunks end at `cuts` and at its end."""
    pooler, ends = Pooler(kind), [*cuts, len(states)]
    for start, end in itertools.pairwise([0, *ends]):
        plan = StepPlan(1, (row(7, start, end, is_last=end == len(states)),))
        found = pooler.take(plan, states[start:end])
    return found[7]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (PoolingKind.MEAN, [2.0, 20.0]),
        (PoolingKind.CLS, [1.0, 10.0]),
        (PoolingKind.LAST, [3.0, 30.0]),
    ],
)
def test_a_vector_is_the_mean_the_first_or_the_last(kind: PoolingKind, expected: list[float]) -> None:
    states = np.array([[1, 10], [2, 20], [3, 30]], np.float32)
    assert pool(kind, states, []).tolist() == expected


@pytest.mark.parametrize("kind", PoolingKind)
@given(st.data())
def test_chunks_change_no_bit(kind: PoolingKind, data: st.DataObject) -> None:
    states = states_of(data.draw(st.integers(1, 30)))
    cuts = data.draw(st.lists(st.integers(1, len(states)), unique=True).map(sorted))
    whole = pool(kind, states, [])
    assert pool(kind, states, [cut for cut in cuts if cut < len(states)]).tobytes() == whole.tobytes()


@pytest.mark.parametrize("kind", PoolingKind)
def test_rows_of_others_stay_apart(kind: PoolingKind) -> None:
    first, second = states_of(4), states_of(6)
    pooler = Pooler(kind)
    plan = StepPlan(1, (row(1, 0, 4, is_last=True), row(2, 0, 3, is_last=False)))
    found = pooler.take(plan, np.concatenate([first, second[:3]]))
    found |= pooler.take(StepPlan(2, (row(2, 3, 6, is_last=True),)), second[3:])
    assert found[1].tobytes() == pool(kind, first, []).tobytes()
    assert found[2].tobytes() == pool(kind, second, []).tobytes()


@pytest.mark.parametrize("kind", PoolingKind)
def test_tokens_that_come_again_after_a_preemption_count_once(kind: PoolingKind) -> None:
    states, pooler = states_of(8), Pooler(kind)
    pooler.take(StepPlan(1, (row(1, 0, 6, is_last=False),)), states[:6])
    found = pooler.take(StepPlan(2, (row(1, 2, 8, is_last=True),)), states[2:])
    assert found[1].tobytes() == pool(kind, states, []).tobytes()


def test_a_sequence_that_is_forgotten_begins_anew() -> None:
    states, pooler = states_of(4), Pooler(PoolingKind.MEAN)
    pooler.take(StepPlan(1, (row(1, 0, 2, is_last=False),)), states[:2])
    pooler.forget(1)
    pooler.forget(1)
    assert (
        pooler.take(StepPlan(2, (row(1, 0, 4, is_last=True),)), states)[1].tolist()
        == pool(PoolingKind.MEAN, states, []).tolist()
    )
