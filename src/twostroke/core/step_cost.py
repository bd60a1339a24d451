"""Rows -> seconds: the one cost model scheduler and ledger share. Frozen; written by measurement."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


class CostRow(Protocol):
    """What a row must tell to be priced."""

    @property
    def start_pos(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...


@dataclass(frozen=True, slots=True)
class StepCost:
    """Predicted time of one step (plan to logits, without sampling), affine in the rows' sizes.

    A step reads every weight once (`weights_s`); where that outlasts the arithmetic of its tokens the
    memory time hides it, so the larger of the two counts. Attention adds KV positions read by the
    rows (`kv_s` each) and query x key pairs of chunks (`pair_s` each).
    """

    base_s: float  # a step with nothing in it
    weights_s: float  # all weights read once
    token_s: float  # arithmetic of one token
    row_s: float  # one more row
    kv_s: float  # one stored position read
    pair_s: float  # one query-key pair of a chunk

    def seconds(self, rows: Iterable[CostRow]) -> float:
        """Predicted seconds of a step with these rows; 0 for no rows."""
        num_rows = num_tokens = num_kv = num_pairs = 0
        for row in rows:
            num_rows += 1
            num_tokens += row.num_tokens
            num_kv += row.start_pos + row.num_tokens
            if row.num_tokens > 1:
                num_pairs += row.num_tokens * row.start_pos + row.num_tokens * (row.num_tokens + 1) // 2
        return self.seconds_of(num_rows=num_rows, num_tokens=num_tokens, num_kv=num_kv, num_pairs=num_pairs)

    def seconds_of(self, *, num_rows: int, num_tokens: int, num_kv: int, num_pairs: int) -> float:
        """The same from the rows' totals: tokens, stored positions read, query-key pairs of chunks."""
        if num_rows == 0:
            return 0.0
        linear_s = max(self.weights_s, self.token_s * num_tokens)
        return self.base_s + linear_s + self.row_s * num_rows + self.kv_s * num_kv + self.pair_s * num_pairs
