"""What the engine keeps of a request that has not ended, and of each of its sequences."""

from dataclasses import dataclass, field

from twostroke.core.request import Request
from twostroke.core.sequence import Sequence, SequenceStatus
from twostroke.core.strategy import AnswerGrammar, Chooser
from twostroke.engine.beam_stream import BeamStream
from twostroke.engine.embedding_stream import EmbeddingStream
from twostroke.engine.output_stream import OutputStream
from twostroke.sample.sampler import SamplingRow


@dataclass(slots=True)
class Live:
    """One request. `members` are its growing sequences: one, or the beams in their chooser's order."""

    request: Request
    stream: OutputStream | BeamStream | EmbeddingStream
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

    def grammar_behind(self, token_id: int) -> AnswerGrammar | None:
        """What an answer follows that goes on from here with this token; the request's own stays at its beginning."""
        if self.sampling.grammar is None:
            return None
        grammar = self.sampling.grammar.fork()
        grammar.advance(token_id)
        return grammar

    def follow(self, grammar: AnswerGrammar | None) -> None:
        """From now on the sequence follows this one."""
        self.sampling = self.sampling._replace(grammar=grammar)
