"""Drafts from the text itself: what followed the last few tokens the last time they stood in prompt or answer.

Prompt lookup (Saxena 2023). Costs a few dictionary look-ups per token; called by the speculation.
"""

from collections.abc import Sequence as Seq

from twostroke.core.sequence import Sequence

LENGTHS = (4, 3, 2)  # of the tokens to find again, the longest first


class NgramDrafter:
    """Remembers where every short run of tokens of each sequence ended last."""

    def __init__(self) -> None:
        self._runs: dict[int, _Runs] = {}

    def propose(self, sequence: Sequence, limit: int) -> Seq[int]:
        """What followed the latest earlier place that ends like the sequence does."""
        runs = self._runs.setdefault(sequence.sequence_id, _Runs())
        token_ids = sequence.token_ids
        runs.read(token_ids)
        for length in LENGTHS:
            place = runs.find(token_ids[-length:]) if len(token_ids) > length else None
            if place is not None:
                return token_ids[place : place + limit]
        return ()

    def forget(self, sequence_id: int) -> None:
        """The sequence has ended."""
        self._runs.pop(sequence_id, None)


class _Runs:
    """Ends of the runs of one text, all but its very last."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], int] = {}
        self._num_read = 0  # runs that end before it are known

    def read(self, token_ids: Seq[int]) -> None:
        """Take in what is new; the runs that end with the newest token stay unread: they are what is looked for."""
        for end in range(self._num_read + 1, len(token_ids)):
            for length in LENGTHS:
                if end >= length:
                    self._ends[tuple(token_ids[end - length : end])] = end
        self._num_read = max(self._num_read, len(token_ids) - 1)

    def find(self, run: Seq[int]) -> int | None:
        """Where the text went on the last time it read like this."""
        return self._ends.get(tuple(run))
