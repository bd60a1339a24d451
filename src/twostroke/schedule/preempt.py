"""Who gives way when blocks or rows run out: pure functions over read-only views."""

from collections.abc import Iterable

from twostroke.schedule.policy import QueueKey, S, SequenceView, queue_key


def victims(sequences: Iterable[S], *, max_preemptions: int | None) -> list[S]:
    """All that may give way, the first to go first.

    Least urgent class, then least to recompute (a tail can only be lost if it was computed, so few
    computed tokens mean little waste), then the youngest. Preempted `max_preemptions` times means
    pinned: its worst case was set aside when it came back. None: no pins.
    """
    able = [each for each in sequences if max_preemptions is None or each.num_preemptions < max_preemptions]
    return sorted(able, key=_cost_of_loss)


def outranked(sequences: Iterable[S], *, by: SequenceView, max_preemptions: int, ageing_s: float) -> list[S]:
    """Victims a waiting sequence may displace: of a less urgent class, and behind it in the queue too.

    The second rule stops a pair from displacing each other when the queue has aged one past the other.
    """
    key: QueueKey = queue_key(by, ageing_s=ageing_s)
    return [
        sequence
        for sequence in victims(sequences, max_preemptions=max_preemptions)
        if sequence.request.priority > by.request.priority and queue_key(sequence, ageing_s=ageing_s) > key
    ]


def _cost_of_loss(sequence: SequenceView) -> tuple[int, int, float, int]:
    request = sequence.request
    return (-request.priority, sequence.num_computed, -request.arrival_s, -sequence.sequence_id)
