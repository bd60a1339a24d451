"""From logits to tokens: one for every row that needs logits, and one more behind each draft that was right.

At every drafted position the model draws its own token, with that position's noise and penalties; a draft is kept if it
is that very token. So drafts change how many tokens a step brings and never which (design after Leviathan et al. 2023,
exact here because noise belongs to positions). Called by the engine's step.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twostroke._native import Candidates
from twostroke.core.step import RowPlan, SampledToken, StepPlan
from twostroke.engine.live import Member
from twostroke.sample.sampler import Sampler


class _Place(NamedTuple):
    """Where the next token of a row is drawn: behind `depth` right drafts, from this row of logits."""

    row: RowPlan
    member: Member
    depth: int
    logits_row: int


def draw_tokens(
    sampler: Sampler,
    logits: npt.NDArray[np.float32],
    plan: StepPlan,
    members: Mapping[int, Member],
    *,
    candidates: Candidates | None = None,
) -> list[SampledToken]:
    """Tokens in rounds, each sequence's in their order. `logits` [rows, vocab] are those of the plan, row by row.

    Rows of `candidates` stand for theirs where they were enough.
    The sampling row of a sequence grows by each drawn token, its grammar too, unless a chooser decides about it.
    """
    places, start = [], 0
    for row in plan.rows:
        if row.needs_logits:
            places.append(_Place(row, members[row.sequence_id], 0, start + row.num_scored))
        start += row.num_logits
    drawn: list[SampledToken] = []
    while places:
        rows, at = [place.member.sampling for place in places], [place.logits_row for place in places]
        tokens = sampler.sample(logits, rows, at=at, candidates=candidates)
        drawn += tokens
        places = [place for place in map(_behind, places, tokens) if place is not None]
    return drawn


def _is_right(drafted: int, drawn: int) -> bool:
    return drafted == drawn


def _behind(place: _Place, token: SampledToken) -> _Place | None:
    """Take the token in; the place behind it if the draft there was right and the answer goes on."""
    live = place.member.live
    if token.error is not None or live.chooser is not None:
        return None
    place.member.sampling.grow(token.token_id)
    drafts = place.row.draft_token_ids
    if place.depth == len(drafts) or not _is_right(drafts[place.depth], token.token_id):
        return None
    if token.token_id in live.request.stop_token_ids:
        return None
    return place._replace(depth=place.depth + 1, logits_row=place.logits_row + 1)
