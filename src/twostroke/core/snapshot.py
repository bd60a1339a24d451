"""The engine at one moment, as facts for gauges and pages."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counts now. Blocks are summed over KV groups: free + cached + held = total."""

    num_running: int
    num_waiting: int
    num_preemptions: int
    blocks_free: int
    blocks_cached: int
    blocks_held: int
    blocks_total: int
    prefix_queries: int
    prefix_hits: int
    waste_ratio: float = 0.0  # of the slots in the blocks of live sequences, those without a token
    refused_draft_share: float | None = None  # of all StepCost, what went into refused drafts; None without drafts
