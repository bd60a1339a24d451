"""Who comes first: pure functions over read-only views of sequences.

Order of the queue and order of prefills. Each answers the same for the same view and changes nothing.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from twostroke.core.request import Request


class SequenceView(Protocol):
    """What policies may read of a sequence."""

    @property
    def sequence_id(self) -> int: ...
    @property
    def request(self) -> Request: ...
    @property
    def num_computed(self) -> int: ...
    @property
    def num_missing(self) -> int: ...
    @property
    def num_preemptions(self) -> int: ...


S = TypeVar("S", bound=SequenceView)

QueueKey = tuple[float, int]


def queue_key(sequence: SequenceView, *, ageing_s: float) -> QueueKey:
    """Place in the queue, smallest first: arrival, moved back by `ageing_s` per class (0 is the most urgent).

    Within a class that is first come first served, and a preempted sequence is ahead of all that came
    after it. Across classes it ages: after p * ageing_s a class-p request is overtaken by nobody new,
    so no class starves. Fixed at arrival: nothing is ever re-sorted.
    """
    return (sequence.request.arrival_s + sequence.request.priority * ageing_s, sequence.sequence_id)


def prefill_order(sequences: Iterable[S], *, now_s: float, ageing_tokens_per_s: float) -> list[S]:
    """Shortest remaining prefill first, as a short prompt must not wait for a long one that came first.

    Every second of waiting counts as `ageing_tokens_per_s` tokens less, so a prompt with r tokens left
    is overtaken by nobody who arrives r / ageing_tokens_per_s seconds after it.
    """

    def remaining(sequence: S) -> tuple[float, float, int]:
        request = sequence.request
        aged = sequence.num_missing - ageing_tokens_per_s * (now_s - request.arrival_s)
        return (aged, request.arrival_s, sequence.sequence_id)

    return sorted(sequences, key=remaining)
