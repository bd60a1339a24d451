"""Costs with round numbers."""

from twostroke.core.step_cost import Law, StepCost


def make_cost(
    *,
    base_s: float = 0.0,
    row_s: float = 0.0,
    sample_s: float = 0.0,
    weights_s: float = 0.0,
    token_s: float = 0.0,
    head_s: float = 0.0,
    head_row_s: float = 0.0,
    position_s: float = 0.0,
    pair_s: float = 0.0,
    sharpness: float = 1.0,
    windows: tuple[tuple[int | None, float], ...] = ((None, 1.0),),
) -> StepCost:
    """What is not said costs nothing; reads and arithmetic add up unless `sharpness` is above 1."""
    return StepCost(
        base_s=base_s,
        row_s=row_s,
        sample_s=sample_s,
        linear=Law(weights_s, token_s, sharpness),
        head=Law(head_s, head_row_s, sharpness),
        attention=Law(position_s, pair_s, sharpness),
        windows=windows,
    )
