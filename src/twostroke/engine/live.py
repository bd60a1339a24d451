"""What the engine keeps of a request that has not ended, and of each of its sequences."""

from dataclasses import dataclass, field

from twostroke.core.request import Request
from twostroke.core.sequence import Sequence, SequenceStatus
from twostroke.core.strategy import Chooser
from twostroke.engine.beam_stream import BeamStream
from twostroke.engine.output_stream import OutputStream
from twostroke.sample.sampler import SamplingRow


@dataclass(slots=True)
class Live:
    """One request. `members` are its growing sequences: one, or the beams in their chooser's order."""

    request: Request
    stream: OutputStream | BeamStream
    chooser: Chooser | None = None
    members: "list[Member]" = field(default_factory=list)
    error: str | None = None
    held: tuple[int, ...] | None = None  # blocks per KV group that several sequences held together at their end

    @property
    def is_preempted(self) -> bool:
        return self.members[0].sequence.status is SequenceStatus.PREEMPTED


@dataclass(slots=True)
class Member:
    """One sequence of a request."""

    live: Live
    sequence: Sequence
    sampling: SamplingRow
