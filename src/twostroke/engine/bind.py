"""From plan to arrays: what the reader needs to run one step. The arrays are made once; a step gets views of them."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from twostroke._native import Candidates
from twostroke.cache.cache import KVCache
from twostroke.core.step import StepPlan
from twostroke.program.program import BoundStep


class Text(Protocol):
    """What a row is taken from."""

    @property
    def token_ids(self) -> list[int]: ...


class Binder:
    """Owns the arrays every BoundStep is a view of; a bound step is good until the next one is bound."""

    def __init__(
        self,
        cache: KVCache,
        *,
        num_groups: int,
        max_tokens: int,
        max_rows: int,
        max_blocks: int,
        selects_all: bool = False,
    ) -> None:
        """`selects_all`: the output of every token is wanted, not only of those whose next one is sampled."""
        self._cache = cache
        self._selects_all = selects_all
        self._token_ids = np.zeros(max_tokens, np.int32)
        self._row_starts = np.zeros(max_rows + 1, np.int32)
        self._row_positions = np.zeros(max_rows, np.int32)
        self._tables = tuple(np.full((max_rows, max_blocks), -1, np.int32) for _ in range(num_groups))
        self._selected = np.zeros(max_tokens, np.int32)  # a row with drafts selects several tokens

    def bind(
        self,
        plan: StepPlan,
        texts: Mapping[int, Text],
        *,
        wanted: npt.NDArray[np.uint32] | None = None,
        candidates: Candidates | None = None,
    ) -> BoundStep:
        """Lay the rows of `plan` out one after the other; `texts` are those of its sequences."""
        at = num_selected = 0
        for r, row in enumerate(plan.rows):
            token_ids = texts[row.sequence_id].token_ids
            if row.num_tokens == 1:
                self._token_ids[at] = token_ids[row.start_pos]
            else:
                end = row.start_pos + row.num_tokens  # tokens end there or drafts go on behind them
                self._token_ids[at : at + row.num_tokens] = [*token_ids[row.start_pos : end], *row.draft_token_ids]
            self._row_positions[r] = row.start_pos
            at += row.num_tokens
            self._row_starts[r + 1] = at
            for index in range(at - (row.num_tokens if self._selects_all else row.num_logits), at):
                self._selected[num_selected] = index
                num_selected += 1
            for group, tables in enumerate(self._tables):
                table = self._cache.table_array(row.sequence_id, group)
                tables[r, : len(table)] = table
        num_rows = len(plan.rows)
        return BoundStep(
            token_ids=self._token_ids[:at],
            row_starts=self._row_starts[: num_rows + 1],
            row_positions=self._row_positions[:num_rows],
            block_tables=tuple(table[:num_rows] for table in self._tables),
            selected=self._selected[:num_selected],
            wanted=wanted,
            candidates=candidates,
        )

    def bind_all(self, sequence_id: int, token_ids: list[int], *, start_pos: int) -> BoundStep:
        """One row whose every token is selected: scoring a text."""
        count = len(token_ids)
        self._token_ids[:count] = token_ids
        self._row_positions[0] = start_pos
        self._row_starts[1] = count
        for group, tables in enumerate(self._tables):
            table = self._cache.table_array(sequence_id, group)
            tables[0, : len(table)] = table
        return BoundStep(
            token_ids=self._token_ids[:count],
            row_starts=self._row_starts[:2],
            row_positions=self._row_positions[:1],
            block_tables=tuple(table[:1] for table in self._tables),
            selected=np.arange(count, dtype=np.int32),
        )
