"""What each phase of one request used of the machine: the program's counts over the ledger's own times."""

from collections.abc import Iterable
from typing import NamedTuple

from twostroke.core.account import StepRecord
from twostroke.core.ledger import Part
from twostroke.core.peaks import Peaks
from twostroke.core.phase import Phase
from twostroke.core.report import Bound, PhaseReport, PhaseUse, Result
from twostroke.core.step import RowPlan
from twostroke.program.cost import Cost, ProgramCost
from twostroke.program.quant import Arithmetic


def phase_report(result: Result, *, cost: ProgramCost, peaks: Peaks | None) -> PhaseReport:
    """Tokens, own time, rate and, where the peaks are known, what bound each phase.

    The first output token belongs to prefill, so decode has one token less than the answer. Prompt
    tokens found in the cache are not prefill's.
    """
    account = result.account
    steps = [_Step.of(record, account.request_id) for record, absent in account.steps if absent is None]
    prefills = [step for step in steps if step.rows[0].phase is Phase.PREFILL]
    decodes = [step for step in steps if step.rows[0].phase is Phase.DECODE]
    num_accepted = 0 if result.speculation is None else result.speculation.accepted
    prefill_s = result.ledger.parts.get(Part.PREFILL, 0.0)
    decode_s = result.ledger.parts.get(Part.DECODE, 0.0) + result.ledger.parts.get(Part.SPECULATE, 0.0)
    return PhaseReport(
        prefill=_use(
            prefills,
            num_tokens=_num_sure(prefills),
            time_s=prefill_s,
            cost=cost,
            peaks=peaks,
        ),
        decode=_use(
            decodes,
            num_tokens=_num_sure(decodes) + num_accepted,
            time_s=decode_s,
            cost=cost,
            peaks=peaks,
            tpot_s=result.timing.tpot_s,
        ),
    )


class _Step(NamedTuple):
    """A request's rows in one step."""

    rows: tuple[RowPlan, ...]
    head_share: float

    @staticmethod
    def of(record: StepRecord, request_id: str) -> "_Step":
        return _Step(record.rows_of(request_id), record.head_share)


def _num_sure(steps: list[_Step]) -> int:
    """Tokens computed that were no guesses."""
    return sum(row.num_tokens - len(row.draft_token_ids) for step in steps for row in step.rows)


def _use(
    steps: list[_Step],
    *,
    num_tokens: int,
    time_s: float,
    cost: ProgramCost,
    peaks: Peaks | None,
    tpot_s: float | None = None,
) -> PhaseUse:
    bound_by = utilisation = None
    if peaks is not None and steps and time_s > 0:
        bound_by, utilisation = judge(_total(steps, cost), time_s=time_s, peaks=peaks)
    return PhaseUse(
        tokens=num_tokens,
        time_s=time_s,
        tokens_per_s=num_tokens / time_s if num_tokens and time_s > 0 else None,
        bound_by=bound_by,
        utilisation=utilisation,
        tpot_s=tpot_s,
    )


def _total(steps: list[_Step], cost: ProgramCost) -> Cost:
    return Cost.total(cost.step(step.rows, head_share=step.head_share) for step in steps)


def judge(cost: Cost, *, time_s: float, peaks: Peaks) -> tuple[Bound, float]:
    """The largest of compute at peak, bytes at peak bandwidth and everything else names the phase.

    The share returned is of the resource named; under overhead, of the more used one.
    """
    compute_s, bytes_s = peak_seconds(cost, peaks)
    rest_s = time_s - max(compute_s, bytes_s)
    if rest_s > max(compute_s, bytes_s):
        return Bound.OVERHEAD, max(compute_s, bytes_s) / time_s
    if compute_s > bytes_s:
        return Bound.COMPUTE, compute_s / time_s
    return Bound.BANDWIDTH, bytes_s / time_s


def peak_seconds(cost: Cost, peaks: Peaks) -> tuple[float, float]:
    """What arithmetic and reads would take at their peaks."""
    return sum(flops / rate for flops, rate in _rates(cost, peaks)), cost.bytes_read / peaks.read_bytes_per_s


def _rates(cost: Cost, peaks: Peaks) -> Iterable[tuple[int, float]]:
    per_unit = {
        Arithmetic.INT8: peaks.int8_ops_per_s,
        Arithmetic.BF16: peaks.bf16_ops_per_s,
        Arithmetic.FP32: peaks.fp32_ops_per_s,
    }
    return ((flops, per_unit[unit]) for unit, flops in cost.flops_by_unit.items())
