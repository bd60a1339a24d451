"""Who took how much of one step: the sums every request's share needs, found once for all of them.

Asked by accounts when they are read, never inside a step.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from twostroke.core.ledger import StallKind
from twostroke.core.phase import Phase
from twostroke.core.step import RowPlan
from twostroke.core.step_cost import StepCost


class _Sum(NamedTuple):
    """What rows add up to before they have a price together."""

    num_tokens: int = 0
    num_sampled: int = 0
    rows_s: float = 0.0

    def plus(self, other: "_Sum") -> "_Sum":
        return _Sum(
            self.num_tokens + other.num_tokens, self.num_sampled + other.num_sampled, self.rows_s + other.rows_s
        )


class StepShares:
    """The split of a step's time among its requests. Rows of a group count as one."""

    def __init__(self, rows: tuple[RowPlan, ...], request_ids: tuple[str, ...], *, cost: StepCost) -> None:
        self._cost = cost
        self._rows: dict[str, tuple[RowPlan, ...]] = {}
        for request_id, row in zip(request_ids, rows, strict=True):
            self._rows[request_id] = (*self._rows.get(request_id, ()), row)
        self._whole_s = 0.0  # nothing to share
        if len(self._rows) > 1:
            self._weigh(rows, request_ids)

    def _weigh(self, rows: tuple[RowPlan, ...], request_ids: tuple[str, ...]) -> None:
        row_seconds = self._cost.row_seconds
        sums = [_Sum(row.num_tokens, row.num_logits, row_seconds(row.start_pos, row.num_tokens)) for row in rows]
        self._sums: dict[str, _Sum] = {}
        for request_id, each in zip(request_ids, sums, strict=True):
            others = self._sums.get(request_id)
            self._sums[request_id] = each if others is None else others.plus(each)
        self._decodes = _total([each for row, each in zip(rows, sums, strict=True) if row.phase is Phase.DECODE])
        self._decodes_s = self._seconds(self._decodes)
        self._prefills = [  # of each row its request, and what it adds to the decodes
            (request_id, self._seconds(self._decodes.plus(each)) - self._decodes_s)
            for request_id, row, each in zip(request_ids, rows, sums, strict=True)
            if row.phase is Phase.PREFILL
        ]
        self._whole_s = self._seconds(_total(sums)) if self._prefills else self._decodes_s

    def rows_of(self, request_id: str) -> tuple[RowPlan, ...]:
        """The rows of one request, none where it was not in the step."""
        return self._rows.get(request_id, ())

    def of(self, request_id: str, *, wall_s: float) -> tuple[float, dict[tuple[StallKind, str | None], float]]:
        """Split `wall_s`, from plan to logits, for one request: its own part, and what others cost it.

        c is StepCost and k = wall / c(all rows), so own + stalls = wall exactly.
        """
        if self._whole_s <= 0:
            return wall_s, {}
        scale = wall_s / self._whole_s
        own, is_decode = self._sums[request_id], self._rows[request_id][0].phase is Phase.DECODE
        alone_s = self._seconds(own)
        with_decodes_s = self._decodes_s if is_decode else self._seconds(own.plus(self._decodes))
        others_s = scale * (with_decodes_s - alone_s)
        if not self._prefills:
            return scale * alone_s, {(StallKind.DECODE_OF_OTHERS, None): others_s}
        lost: dict[tuple[StallKind, str | None], float] = defaultdict(float)
        lost[StallKind.DECODE_OF_OTHERS, None] = others_s
        prefills = [(other_id, weight) for other_id, weight in self._prefills if other_id != request_id]
        blame = sum(weight for _, weight in prefills)
        rest_s = scale * (self._whole_s - with_decodes_s)
        for other_id, weight in prefills:
            share = weight / blame if blame > 0 else 1 / len(prefills)
            lost[StallKind.PREFILL_OF_OTHER, other_id] += rest_s * share
        return scale * alone_s, dict(lost)

    def _seconds(self, rows: _Sum) -> float:
        return self._cost.seconds_of(num_tokens=rows.num_tokens, num_sampled=rows.num_sampled, rows_s=rows.rows_s)


def _total(sums: Sequence[_Sum]) -> _Sum:
    return _Sum(
        sum([each.num_tokens for each in sums]),
        sum([each.num_sampled for each in sums]),
        sum([each.rows_s for each in sums]),
    )
