"""Which rows of a step are drawn from candidates, so that the head need not write their logits. Asked before it runs.

Whether the best few tokens are enough follows from a row's wishes (native/sampling_state.cpp); here stands what a plan
knows of it. Rows of one step may differ.
"""

from collections.abc import Mapping

from twostroke._native import Candidates
from twostroke.core.step import RowPlan, StepPlan
from twostroke.engine.live import Member
from twostroke.sample.sampler import Sampler, SamplingRow

FEWEST_ROWS = 4  # a step of fewer waits for its weights, and a look at every panel holds them up: a hundredth or two


def ask_candidates(
    sampler: Sampler, plan: StepPlan, members: Mapping[int, Member], *, least: int | None
) -> Candidates | None:
    """What the head is to hand on, row by row of its logits; None: all logits of all rows.

    `least`: rows a step must have to ask; None never does.
    """
    if least is None or sum([row.num_logits for row in plan.rows]) < least:
        return None
    rows: list[SamplingRow | None] = []
    for row in plan.rows:
        rows += [None] * row.num_scored
        if row.needs_logits:
            rows += [_sampling_of(row, members[row.sequence_id])] * (1 + len(row.draft_token_ids))
    return sampler.ask(rows) if rows else None


def _sampling_of(row: RowPlan, member: Member) -> SamplingRow | None:
    """None where what a draft adds to its sequence changes what may come behind it."""
    sampling = member.sampling
    if row.draft_token_ids and (sampling.grammar is not None or member.live.request.params.looks_back):
        return None
    return sampling
