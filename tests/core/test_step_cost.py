"""The affine cost of a step."""

import pytest

from twostroke.core.phase import Phase, phase_of
from twostroke.core.step import RowPlan
from twostroke.core.step_cost import StepCost

COST = StepCost(base_s=1.0, weights_s=10.0, token_s=2.0, row_s=0.5, kv_s=0.01, pair_s=0.001)


def row(start_pos: int, num_tokens: int) -> RowPlan:
    return RowPlan(0, start_pos, num_tokens, Phase.PREFILL, needs_logits=False)


def test_no_rows_cost_nothing() -> None:
    assert COST.seconds([]) == 0.0


def test_reading_the_weights_hides_the_arithmetic_of_few_tokens() -> None:
    assert COST.seconds([row(9, 1)]) == pytest.approx(1 + 10 + 0.5 + 0.1)


def test_many_tokens_outlast_the_weights() -> None:
    pairs = 8 * 4 + 8 * 9 // 2
    assert COST.seconds([row(4, 8)]) == pytest.approx(1 + 16 + 0.5 + 0.12 + 0.001 * pairs)


def test_rows_add_up() -> None:
    assert COST.seconds([row(9, 1), row(19, 1)]) == pytest.approx(1 + 10 + 1.0 + 0.3)


@pytest.mark.parametrize(
    ("computed", "new", "drafts", "expected"),
    [
        (0, 8, 0, Phase.PREFILL),
        (7, 1, 0, Phase.PREFILL),
        (8, 1, 0, Phase.DECODE),
        (8, 4, 3, Phase.DECODE),
        (8, 3, 0, Phase.PREFILL),
    ],
)
def test_decode_is_the_newest_verified_token_alone(computed: int, new: int, drafts: int, expected: Phase) -> None:
    assert phase_of(num_computed=computed, num_prompt_tokens=8, num_new_tokens=new, num_draft_tokens=drafts) is expected
