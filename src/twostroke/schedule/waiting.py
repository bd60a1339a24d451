"""The queue: sequences that hold no row, in the order of their keys. Called by the scheduler alone."""

from bisect import bisect_left, insort

from twostroke.core.sequence import Sequence
from twostroke.schedule.policy import QueueKey, queue_key


class WaitingQueue:
    """Fresh and preempted sequences together; a preempted one keeps its place from arrival."""

    def __init__(self, *, ageing_s: float) -> None:
        self._ageing_s = ageing_s
        self._entries: list[tuple[QueueKey, Sequence]] = []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def first(self) -> Sequence:
        return self._entries[0][1]

    @property
    def sequences(self) -> list[Sequence]:
        """In order, first to be admitted first."""
        return [sequence for _, sequence in self._entries]

    def push(self, sequence: Sequence) -> None:
        """Put a sequence in its place."""
        insort(self._entries, (queue_key(sequence, ageing_s=self._ageing_s), sequence), key=_key)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        at = bisect_left(self._entries, queue_key(sequence, ageing_s=self._ageing_s), key=_key)
        found = self._entries[at : at + 1]
        assert [entry[1].sequence_id for entry in found] == [sequence.sequence_id], f"{sequence.sequence_id} not here"
        del self._entries[at]


def _key(entry: tuple[QueueKey, Sequence]) -> QueueKey:
    return entry[0]
