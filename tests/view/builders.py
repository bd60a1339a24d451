"""Made-up answers for the views: numbers that fit in the head."""

from dataclasses import replace
from typing import Any

from twostroke.core.account import Account
from twostroke.core.event import KVUsage, Timing, Usage
from twostroke.core.ledger import Ledger, Part, Stall, StallKind
from twostroke.core.report import Bound, PhaseReport, PhaseUse, Result
from twostroke.core.sequence import FinishReason

LEDGER = Ledger(
    parts={
        Part.TOKENIZE: 0.002,
        Part.PREFILL: 0.04,
        Part.FIRST_SAMPLE: 0.001,
        Part.DECODE: 0.5,
        Part.OVERHEAD: 0.00001,
    },
    stalls=(Stall(StallKind.PREFILL_OF_OTHER, 0.03, "request-7"), Stall(StallKind.DECODE_OF_OTHERS, 0.01, None)),
)
TTFT_LEDGER = Ledger(parts={Part.TOKENIZE: 0.002, Part.PREFILL: 0.04, Part.FIRST_SAMPLE: 0.001}, stalls=())


class Told(Account):
    """An account that comes to the ledgers one names."""

    def __init__(
        self, ledger: Ledger, ttft_ledger: Ledger | None = None, *, request_id: str = "request-1", **facts: Any
    ) -> None:
        first_token_s = None if ttft_ledger is None else 0.043
        super().__init__(request_id, arrival_s=0.0, before={}, first_token_s=first_token_s, **facts)
        self.told, self.told_ttft = ledger, ttft_ledger

    def read(self, *, until_s: float | None = None) -> Ledger:
        if until_s is None:
            return self.told
        assert self.told_ttft is not None
        return self.told_ttft


def make_result(*, ledger: Ledger = LEDGER, ttft_ledger: Ledger | None = TTFT_LEDGER, **changes: Any) -> Result:
    """Twenty prompt tokens, three of an answer, 0.6 s in all."""
    result = Result(
        request_id="request-1",
        text="Blue.",
        token_ids=(5, 6, 7),
        finish_reason=FinishReason.STOP,
        usage=Usage(prompt_tokens=20, cached_tokens=16, completion_tokens=3),
        timing=Timing(ttft_s=0.043, tpot_s=0.25, e2e_s=0.58301, first_text_s=0.043),
        kv=KVUsage(tokens=22, bytes=2_500_000, blocks=2, waste_ratio=0.3125),
        account=Told(ledger, ttft_ledger),
        seed=11,
    )
    return replace(result, **changes)


def make_report(*, is_probed: bool = True) -> PhaseReport:
    """Compute-bound prefill at 61 % of peak, bandwidth-bound decode at 88 %."""
    return PhaseReport(
        prefill=PhaseUse(4, 0.04, 100.0, Bound.COMPUTE if is_probed else None, 0.61 if is_probed else None),
        decode=PhaseUse(2, 0.5, 4.0, Bound.BANDWIDTH if is_probed else None, 0.88 if is_probed else None, 0.25),
    )


EMPTY_USE = PhaseUse(tokens=0, time_s=0.0, tokens_per_s=None, bound_by=None, utilisation=None)
