"""The names of a request's time, and the closed account they add up to."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """Names of the parts, in the order a request meets them."""

    PARSE = "parse"
    LOAD = "load"
    TEMPLATE = "template"
    TOKENIZE = "tokenize"
    GRAMMAR_COMPILE = "grammar_compile"
    PREFIX_LOOKUP = "prefix_lookup"
    CACHE_RESTORE = "cache_restore"
    QUEUE = "queue"
    PREFILL = "prefill"
    FIRST_SAMPLE = "first_sample"
    DECODE = "decode"
    SAMPLE = "sample"
    SPECULATE = "speculate"
    DETOKENIZE = "detokenize"
    HOLD_BACK = "hold_back"
    BACKPRESSURE = "backpressure"
    OVERHEAD = "overhead"


class StallKind(StrEnum):
    """Why a started sequence lost time to something else."""

    DECODE_OF_OTHERS = "decode_of_others"
    PREFILL_OF_OTHER = "prefill_of_other"
    SCHEDULER = "scheduler"
    PREEMPTION = "preemption"


@dataclass(frozen=True, slots=True)
class Stall:
    """Time lost to `request_id` (None where no single request is to blame)."""

    kind: StallKind
    time_s: float
    request_id: str | None


@dataclass(frozen=True, slots=True)
class Ledger:
    """Seconds per part (parts without time are absent) and the stalls; `total_s` is their sum."""

    parts: Mapping[Part, float]
    stalls: tuple[Stall, ...]

    @property
    def total_s(self) -> float:
        return sum(self.parts.values()) + sum(stall.time_s for stall in self.stalls)

    def with_delivery(self, *, waited_s: float, total_s: float) -> "Ledger":
        """The account of a reply that took `total_s` to send, `waited_s` of it for its client to read."""
        parts = dict(self.parts)
        for part, time_s in ((Part.BACKPRESSURE, waited_s), (Part.OVERHEAD, total_s - waited_s)):
            parts[part] = parts.get(part, 0.0) + time_s
        return Ledger({part: parts[part] for part in Part if parts.get(part)}, self.stalls)
