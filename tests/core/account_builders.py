"""Steps with round numbers, as accounts remember them."""

from tests.builders_cost import make_cost
from twostroke.core.account import StepRecord
from twostroke.core.phase import Phase
from twostroke.core.step import RowPlan

COST = make_cost(
    base_s=0.001, weights_s=0.010, token_s=0.001, row_s=0.0001, position_s=1e-6, pair_s=1e-7, sharpness=1.5
)


def row(sequence_id: int, *, start: int, tokens: int, phase: Phase) -> RowPlan:
    return RowPlan(sequence_id, start, tokens, phase, needs_logits=True)


def record(*rows: RowPlan, start_s: float = 0.0, wall_s: float = 0.1, mask_s: float = 0.0) -> StepRecord:
    return StepRecord(
        start_s=start_s,
        logits_s=start_s + wall_s,
        sampled_s=start_s + wall_s + 0.002,
        handed_s=start_s + wall_s + 0.003,
        rows=rows,
        request_ids=tuple(f"r{each.sequence_id}" for each in rows),
        cost=COST,
        mask_s=mask_s,
    )
