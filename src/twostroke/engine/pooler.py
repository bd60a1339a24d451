"""Final states of prompts, as steps bring them chunk by chunk, to one vector each. Owned by the engine of a model that
embeds; never asks whom a vector is for.

A mean is one chain of float64 sums in the order of the tokens, so chunks and neighbours change no bit of it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twostroke.core.pooling import PoolingKind
from twostroke.core.step import RowPlan, StepPlan


@dataclass(slots=True)
class _Pooled:
    """What a prompt's first `num_tokens` tokens come to."""

    state: npt.NDArray[np.float64]  # [width]: their sum, or the state of the one token that counts
    num_tokens: int = 0


class Pooler:
    """Vectors in the making, by sequence."""

    def __init__(self, kind: PoolingKind) -> None:
        self._kind = kind
        self._pooled: dict[int, _Pooled] = {}

    def take(self, plan: StepPlan, states: npt.NDArray[np.float32]) -> dict[int, npt.NDArray[np.float64]]:
        """Vectors [width] of the prompts the step completed. `states` [num_tokens, width] are row by row."""
        vectors, start = {}, 0
        for row in plan.rows:
            pooled = self._add(row, states[start : start + row.num_tokens])
            start += row.num_tokens
            if row.needs_logits:
                is_mean = self._kind is PoolingKind.MEAN
                vectors[row.sequence_id] = pooled.state / pooled.num_tokens if is_mean else pooled.state
        return vectors

    def forget(self, sequence_id: int) -> None:
        """It has its vector, or needs none any more."""
        self._pooled.pop(sequence_id, None)

    def _add(self, row: RowPlan, states: npt.NDArray[np.float32]) -> _Pooled:
        pooled = self._pooled.get(row.sequence_id)
        if pooled is None:
            pooled = self._pooled[row.sequence_id] = _Pooled(np.zeros(states.shape[1]))
        end = row.start_pos + row.num_tokens
        if self._kind is PoolingKind.LAST:
            pooled.state = states[-1].astype(np.float64)
        elif self._kind is PoolingKind.CLS and row.start_pos == 0:
            pooled.state = states[0].astype(np.float64)
        elif self._kind is PoolingKind.MEAN:
            assert row.start_pos <= pooled.num_tokens, f"{row} skips tokens, {pooled.num_tokens} are summed"
            for state in states[pooled.num_tokens - row.start_pos :]:  # after a preemption some come again
                pooled.state += state
        pooled.num_tokens = max(pooled.num_tokens, end)
        return pooled
